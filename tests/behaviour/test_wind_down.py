"""An operation that is wound down commits what is proved, and leaves the rest to a later one."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehand
from lakehand.engine import LocalRunner
from lakehand.engine.inline import InlineRunner
from lakehand.engine.runner_contract import CancelToken
from lakehand.runs import Run, list_runs, sweep
from lakehand.runs.control import RunControl, controlled
from support.rows import delta_table

PARTS, FILES = 4, 3


@pytest.fixture
def table(tmp_path):
    schema = pa.schema({"part": pa.int64(), "id": pa.int64()})
    made = lakehand.create_table(tmp_path, schema, partition_by=["part"], engine="local")
    for number in range(FILES):
        rows = {"part": list(range(PARTS)), "id": [number] * PARTS}
        made.append(pa.table(rows, schema=schema))
    return made


def rows_of(table):
    return sorted(zip(*table.to_arrow().to_pydict().values(), strict=True))


def double(payload):
    return {"n": payload["n"] * 2}


@pytest.mark.parametrize(
    "runner", [InlineRunner(), LocalRunner(parallelism=1)], ids=["inline", "local"]
)
def test_a_runner_begins_no_further_task(runner):
    cancel = CancelToken()
    with runner:
        outcomes = runner.run(
            double,
            [{"n": number} for number in range(20)],
            on_result=lambda _: cancel.wind_down(),
            cancel=cancel,
            may_wind_down=True,
        )
    assert 1 <= len(outcomes) < 20
    assert [outcome.result["n"] for outcome in outcomes] == [2 * n for n in range(len(outcomes))]


def test_a_runner_that_may_not_wind_down_runs_every_task():
    cancel = CancelToken()
    cancel.wind_down()
    with LocalRunner(parallelism=1) as runner:
        assert len(runner.run(double, [{"n": 1}, {"n": 2}], cancel=cancel)) == 2


@pytest.mark.parametrize("commits", [None, 1])
def test_what_is_proved_is_committed_and_the_rest_is_left(table, commits):
    before = rows_of(table)
    control = RunControl()

    def stop(progress):
        if progress.phase == "rewrite" and progress.done:
            control.cancel.wind_down()

    with controlled(control):
        report = table.compact(min_files=2, on_progress=stop, commit_every_groups=commits)
    assert (report.outcome, report.stopped_early) == ("committed", True)
    assert 1 <= report.groups.committed < PARTS
    assert rows_of(table) == before
    assert list_runs(delta_table(table.url).store) == []
    again = table.compact(min_files=2)
    assert (again.stopped_early, again.groups.committed) == (False, PARTS - report.groups.committed)
    assert rows_of(table) == before


def test_nothing_is_committed_if_it_winds_down_at_once(table):
    control = RunControl()
    control.cancel.wind_down()
    with controlled(control):
        report = table.compact(min_files=2)
    assert (report.outcome, report.stopped_early) == ("nothing_to_do", True)


def test_maintain_takes_no_further_step(table):
    control = RunControl()

    def stop(progress):
        if progress.phase == "rewrite" and progress.done:
            control.cancel.wind_down()

    with controlled(control):
        report = table.maintain(automatic_min_files=2, quiet_period=0, on_progress=stop)
    assert [step.outcome for step in report.steps] == ["committed", *["left_out"] * 3]
    assert report.steps[0].report.stopped_early


def test_a_run_that_is_known_to_be_dead_is_not_waited_for(table):
    handle = delta_table(table.url)
    run = Run.start(
        handle.store,
        {},
        snapshot=handle.snapshot(),
        inputs=handle.snapshot().files["path"].to_pylist(),
    )
    run.beat()
    assert sweep(handle).dropped == []
    assert table.compact(min_files=2).left_to_runs == (run.id,)
    with controlled(RunControl(known_dead=frozenset({run.id}))):
        assert table.compact(min_files=2).outcome == "committed"
    assert list_runs(handle.store) == []


def test_runs_tell_of_themselves_before_they_write(table):
    seen = []

    def note(run_id):
        seen.append((run_id, Run.open(delta_table(table.url).store, run_id).identity() is not None))

    with controlled(RunControl(labels={"job": "7"}, on_start=note)):
        table.compact(min_files=2)
    assert [known for _, known in seen] == [True]
