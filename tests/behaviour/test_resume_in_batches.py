"""Long runs commit as they go: every version is whole, and trouble costs what is not committed."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable as DeltaRsTable

from lakehand.errors import CancelledError, CommitConflictError, CorruptFileError
from lakehand.observe.clock import ManualClock
from lakehand.runs import Run, list_runs
from support.compactions import compact_inline, leave_dead_run, open_table
from support.rows import assert_same_rows, lakehand_rows
from support.small_tables import make_table, read_sorted


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


def compact_singly(place, **options):
    return compact_inline(place, commit_every_groups=1, **options)


def live_files(place, version=None):
    return set(open_table(str(place)).snapshot(version=version).files["path"].to_pylist())


def data_files(place):
    paths = (path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path.relative_to(place).as_posix() for path in paths}


def after_first_commit(action):
    """Return a callback that acts once, when one group of two is committed."""
    pending = [action]

    def on_progress(event):
        if event.phase == "commit" and event.done == 1 and pending:
            pending.pop()()

    return on_progress


def test_every_batch_is_a_version_with_all_rows(place):
    before, seen = read_sorted(place), lakehand_rows(place)

    report = compact_singly(place)

    assert (report.version, report.versions) == (7, (6, 7))
    assert (report.files_after, report.files_removed, report.files_added) == (2, 12, 2)
    assert report.proof.rows == report.rows_written == 60
    assert [len(live_files(place, version)) for version in (5, 6, 7)] == [12, 7, 2]
    assert_same_rows(lakehand_rows(place, version=6), seen)
    assert read_sorted(place).equals(before)


def test_groups_are_committed_when_the_last_commit_is_long_enough_ago(place):
    clock, before = ManualClock(), read_sorted(place)

    def pass_time(event):
        if event.phase == "rewrite":
            clock.advance(601)

    report = compact_inline(place, on_progress=pass_time, clock=clock, commit_every="10m")

    assert report.versions == (6, 7)
    assert read_sorted(place).equals(before)


def test_time_and_number_are_both_waited_for_until_the_run_ends(place):
    report = compact_inline(place, commit_every="10m", commit_every_groups=3)

    assert report.versions == (6,)


def test_a_later_batch_that_loses_drops_its_own_groups_only(place):
    def delete_what_is_left():
        (rest,) = {"eu", "us"} - {path.split("/")[0][7:] for path in lakehand_files(place)}
        DeltaRsTable(str(place)).delete(f"region = '{rest}'")

    report = compact_singly(place, on_progress=after_first_commit(delete_what_is_left))

    assert (report.groups.committed, report.groups.dropped, report.versions) == (1, 1, (6,))
    assert report.errors == ()
    assert len(read_sorted(place)) == 30
    assert data_files(place) - original_files(place) == live_files(place)


def lakehand_files(place):
    return {path for path in live_files(place) if "lakehand-" in path}


def original_files(place):
    return {path for path in data_files(place) if "lakehand-" not in path}


def test_a_table_that_changes_its_shape_stops_the_run_and_keeps_what_is_committed(place):
    before = read_sorted(place)

    def change_a_property():
        DeltaRsTable(str(place)).alter.set_table_properties({"delta.appendOnly": "false"})

    report = compact_singly(place, on_progress=after_first_commit(change_a_property))

    assert (report.versions, report.groups.committed) == ((6,), 1)
    assert [error["code"] for error in report.errors] == ["REPLAN"]
    assert data_files(place) == original_files(place) | lakehand_files(place)
    assert list_runs(open_table(str(place)).store) == []
    assert read_sorted(place).equals(before)


def test_if_every_batch_loses_that_is_the_error(place):
    def delete_all(event):
        if event.phase == "rewrite" and event.done == 0:
            DeltaRsTable(str(place)).delete()

    with pytest.raises(CommitConflictError):
        compact_singly(place, on_progress=delete_all)

    assert data_files(place) == original_files(place)


def test_stopping_between_batches_keeps_the_first_and_nothing_else(place):
    before = read_sorted(place)

    def stop():
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        compact_singly(place, on_progress=after_first_commit(stop))

    assert (len(live_files(place)), len(lakehand_files(place))) == (7, 1)
    assert data_files(place) == original_files(place) | lakehand_files(place)
    assert list_runs(open_table(str(place)).store) == []
    assert read_sorted(place).equals(before)


def test_who_cancels_between_batches_is_told_what_was_committed(place):
    def cancel():
        raise CancelledError("stopped")

    with pytest.raises(CancelledError, match="1 group had been committed, in version 6"):
        compact_singly(place, on_progress=after_first_commit(cancel))

    assert (len(live_files(place)), len(lakehand_files(place))) == (7, 1)


def test_a_group_that_fails_is_told_whatever_the_batches(place):
    broken = min(path for path in place.rglob("*.parquet") if "region=eu" in path.as_posix())
    broken.write_bytes(broken.read_bytes()[:-30])

    report = compact_singly(place)

    assert (report.groups.committed, report.versions) == (1, (6,))
    assert [error["code"] for error in report.errors] == [CorruptFileError.code]


def test_adopted_groups_are_committed_with_the_first_batch(place):
    before, run = read_sorted(place), leave_dead_run(place)

    report = compact_inline(place, "0s", commit_every_groups=2)

    assert (report.groups.adopted, report.versions) == (1, (6,))
    assert not Run(store=run.store, id=run.id).entries()
    assert read_sorted(place).equals(before)
