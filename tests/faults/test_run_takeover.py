"""A run that is stopped, taken over by another and then continued harms nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.observe.steps import Step
from lakehand.runs import Run, list_runs, resume, sweep
from support.compactions import compact_inline, open_table
from support.pausing import PausedProcess
from support.small_tables import make_table, read_sorted

AT_ONCE = timedelta(0)
#: Both groups are rewritten and recorded; what is to become of them is not decided.
BEFORE_FATE = (Step.TASK_RECORDED, 2)
#: The run has won its fate and has put nothing.
BEFORE_COMMIT = (Step.RUN_COMMITTING, 1)
#: The version is put, and the run does not know it yet.
AFTER_PUT = (Step.COMMIT_PUT, 1)


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


def data_files(place):
    paths = (path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path.relative_to(place).as_posix() for path in paths}


def live_files(place):
    return set(open_table(str(place)).snapshot().files["path"].to_pylist())


def assert_unharmed(place, rows):
    assert live_files(place) <= data_files(place)
    assert read_sorted(place) == rows


def test_a_run_stopped_before_its_fate_gives_way_to_the_run_that_took_it(place):
    rows = read_sorted(place)
    with PausedProcess([BEFORE_FATE], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        report = compact_inline(str(place), "0s")
        committed = live_files(place)

        assert sleeper.end() == "RunTakenError"

    assert report.outcome == "committed"
    assert live_files(place) == committed
    assert_unharmed(place, rows)
    assert list_runs(open_table(str(place)).store) == []


def test_a_run_stopped_before_its_fate_deletes_nothing_that_was_adopted(place):
    rows, table = read_sorted(place), open_table(str(place))
    with PausedProcess([BEFORE_FATE], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        snapshot = table.snapshot()
        heir = Run.start(table.store, {"groups": []}, snapshot=snapshot)
        adopted = resume(heir, table, snapshot, wanted=lambda plan: True, takeover_after=AT_ONCE)

        assert sleeper.end() == "RunTakenError"

    outputs = {file.path for item in adopted for file in item.result.outputs}
    assert len(adopted) == 2
    assert outputs <= data_files(place)
    assert_unharmed(place, rows)


def test_a_run_stopped_before_its_commit_loses_against_the_one_that_was_faster(place):
    rows, before = read_sorted(place), data_files(place)
    with PausedProcess([BEFORE_COMMIT], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        compact_inline(str(place), "0s")
        committed = live_files(place)

        assert sleeper.end() == "CommitConflictError"

    assert live_files(place) == committed
    assert data_files(place) == before | committed
    assert_unharmed(place, rows)


def test_a_run_stopped_before_its_commit_keeps_its_files_through_a_sweep(place):
    rows = read_sorted(place)
    with PausedProcess([BEFORE_COMMIT], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        report = sweep(open_table(str(place)), takeover_after=AT_ONCE)

        assert sleeper.end() is None

    assert (len(report.kept), report.files_deleted) == (1, [])
    assert len(live_files(place)) == 2
    assert_unharmed(place, rows)


def test_a_run_stopped_after_its_put_learns_that_it_won(place):
    rows = read_sorted(place)
    with PausedProcess([AFTER_PUT], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        report = sweep(open_table(str(place)), takeover_after=AT_ONCE)

        assert sleeper.end() is None

    assert (len(report.dropped), report.files_deleted) == (1, [])
    assert len(live_files(place)) == 2
    assert_unharmed(place, rows)


def test_a_run_stopped_before_its_fate_and_again_before_its_commit_harms_nothing(place):
    rows = read_sorted(place)
    with PausedProcess([BEFORE_FATE, BEFORE_COMMIT], compact_inline, str(place)) as sleeper:
        sleeper.wait_until_stopped()
        sleeper.proceed()
        sleeper.wait_until_stopped()
        compact_inline(str(place), "0s")
        committed = live_files(place)

        assert sleeper.end() == "CommitConflictError"

    assert live_files(place) == committed
    assert_unharmed(place, rows)
