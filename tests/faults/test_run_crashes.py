"""A run that is killed leaves the table as it was, and every staged file gone or accounted for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.model.work import Change, Replacement
from lakehand.observe.steps import Step
from lakehand.runs import Run, commit_results, list_runs, resume, sweep
from support.compactions import compact_inline, open_table
from support.crash import kill_at, run_and_kill
from support.small_tables import make_table, read_sorted

UNDECIDED = (
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_RECORDED,
)
AT_ONCE = timedelta(0)


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


def data_files(place):
    paths = (path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path.relative_to(place).as_posix() for path in paths}


def live_files(place):
    return set(open_table(str(place)).snapshot().files["path"].to_pylist())


@kill_at(*UNDECIDED)
def test_a_run_killed_before_its_fate_leaves_nothing_after_a_sweep(place, step):
    rows, files = read_sorted(place), data_files(place)

    run_and_kill(step, compact_inline, str(place))
    report = sweep(open_table(str(place)), takeover_after=AT_ONCE)

    assert len(report.dropped) == 1
    assert data_files(place) == files == live_files(place)
    assert list_runs(open_table(str(place)).store) == []
    assert read_sorted(place) == rows


@kill_at(Step.RUN_COMMITTING)
def test_a_run_killed_with_its_fate_decided_has_its_files_left_to_vacuum(place, step):
    rows, files = read_sorted(place), data_files(place)
    table = open_table(str(place))

    run_and_kill(step, compact_inline, str(place))
    staged = data_files(place) - files
    report = sweep(table, takeover_after=AT_ONCE)

    (run_id,) = list_runs(table.store)
    assert "left to vacuum" in report.kept[run_id]
    assert staged == set(Run.open(table.store, run_id).fates()[0].outputs)
    assert data_files(place) == files | staged
    assert live_files(place) == files
    assert read_sorted(place) == rows


@kill_at(Step.RUN_COMMITTED)
def test_a_run_killed_after_its_commit_keeps_its_files_and_loses_its_ledger(place, step):
    rows = read_sorted(place)

    run_and_kill(step, compact_inline, str(place))
    report = sweep(open_table(str(place)), takeover_after=AT_ONCE)

    assert (len(report.dropped), report.files_deleted) == (1, [])
    assert len(live_files(place)) == 2
    assert live_files(place) <= data_files(place)
    assert read_sorted(place) == rows


def test_work_that_was_done_before_a_kill_is_adopted_and_committed(place):
    rows, table = read_sorted(place), open_table(str(place))
    run_and_kill(Step.TASK_RECORDED, compact_inline, str(place))
    snapshot = table.snapshot()

    heir = Run.start(table.store, {"operation": "compact", "groups": []}, snapshot=snapshot)
    (adopted,) = resume(heir, table, snapshot, wanted=is_compaction, takeover_after=AT_ONCE)
    commit_results(heir, table, change_of(adopted, snapshot.version), results=[adopted.result])
    heir.finish()

    assert {file.path for file in adopted.result.outputs} <= live_files(place) <= data_files(place)
    assert list_runs(table.store) == []
    assert read_sorted(place) == rows


def is_compaction(plan):
    return plan["operation"] == "compact"


def change_of(adopted, version):
    group = adopted.group
    item = Replacement(group=group.id, removes=group.inputs, adds=adopted.result.outputs)
    return Change(kind="rewrite", base_version=version, operation="OPTIMIZE", replacements=(item,))
