"""Compactions of Lance tables killed at every step: the next call ends the job."""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehand
from lakehand.observe.steps import Step, listen
from lakehand.sink import TableSink
from support.crash import REWRITE_STEPS, kill_at, run_and_kill
from support.formats import open_here, tasks_inline
from support.lance_tables import (
    add_indices,
    compact_in_halves,
    fragment_count,
    make_lance,
    rows_of,
    searches,
    some_rows,
    unknown_files,
)

#: From here on the table has the outputs, or may have them as far as the next run can tell.
IN_DOUBT = {Step.RUN_COMMITTING, Step.COMMIT_PREPARED}


@pytest.fixture
def path(tmp_path):
    path = make_lance(tmp_path / "t")
    add_indices(path)
    return path


@kill_at(*REWRITE_STEPS)
def test_a_killed_compaction_harms_nothing_and_is_ended_by_the_next_call(path, step):
    rows, found = rows_of(path), searches(path)
    run_and_kill(step, compact_in_halves, path)
    assert rows_of(path) == rows

    compact_in_halves(path, "0s")

    assert fragment_count(path) == 2
    assert (rows_of(path), searches(path)) == (rows, found)
    # What a run was about to commit when it died is left to vacuum, whose age rule is safe.
    assert not unknown_files(path) or step in IN_DOUBT


@pytest.fixture
def plain_path(tmp_path):
    """Return a table without indices, whose fragments lakehand writes itself."""
    return make_lance(tmp_path / "t")


@kill_at(*REWRITE_STEPS)
def test_a_killed_compaction_whose_files_lakehand_writes_harms_nothing(plain_path, step):
    rows = rows_of(plain_path)
    run_and_kill(step, compact_in_halves, plain_path)
    assert rows_of(plain_path) == rows

    compact_in_halves(plain_path, "0s")

    assert fragment_count(plain_path) == 2
    assert rows_of(plain_path) == rows
    assert not unknown_files(plain_path) or step in IN_DOUBT


@kill_at(Step.RUN_TOOK_OVER, Step.RUN_ADOPTED)
def test_a_run_killed_while_it_takes_over_harms_nothing(plain_path, step):
    rows = rows_of(plain_path)
    run_and_kill(Step.TASK_RECORDED, compact_in_halves, plain_path)
    run_and_kill(step, compact_in_halves, plain_path, "0s")
    assert rows_of(plain_path) == rows

    compact_in_halves(plain_path, "0s")

    assert (rows_of(plain_path), fragment_count(plain_path)) == (rows, 2)
    assert not unknown_files(plain_path)


@pytest.mark.parametrize("name", ["path", "plain_path"])
def test_compactions_are_killed_at_every_step_that_they_reach(request, name):
    seen = set()
    listen(seen.add)
    try:
        compact_in_halves(request.getfixturevalue(name))
    finally:
        listen(None)
    assert seen == {*REWRITE_STEPS}


@kill_at(Step.COMMIT_PUT)
def test_the_proof_of_a_commit_that_nobody_noted_is_found_again(path, step):
    run_and_kill(step, compact_in_halves, path)

    compact_in_halves(path, "0s")

    newest = next(entry for entry in lakehand.open_table(path).history() if entry.proof)
    assert newest.operation == "compact"
    assert newest.proof["rows"] == rows_of(path).num_rows


def delete_here(path, takeover_after="2m"):
    with tasks_inline():
        open_here(path, takeover_after=takeover_after).delete(where="id < 100")


@kill_at(Step.TASK_WRITTEN, Step.RUN_COMMITTING, Step.COMMIT_PREPARED, Step.COMMIT_PUT)
def test_a_killed_deletion_deletes_all_of_its_rows_or_none(path, step):
    rows, found = rows_of(path), searches(path)
    run_and_kill(step, delete_here, path)
    kept = rows.filter(pc.greater_equal(rows["id"], 100))
    is_done = step is Step.COMMIT_PUT
    assert rows_of(path) == (kept if is_done else rows)
    assert is_done or searches(path) == found

    delete_here(path, "0s")

    assert rows_of(path) == kept
    assert step in IN_DOUBT or deletion_files(path) == {True}


def deletion_files(path):
    """Say of the deletion files in storage whether a version knows them."""
    dataset = lance.dataset(path)
    known = set(dataset.tracked_files().read_all()["path"].to_pylist())
    stored = dataset.all_files().read_all()["path"].to_pylist()
    return {key in known for key in stored if key.startswith("_deletions/")}


def append_here(path):
    open_here(path).append(some_rows(7000, 5), writer_id="w", epoch=1)


@kill_at(Step.SINK_STAGED, Step.COMMIT_PREPARED, Step.COMMIT_PUT, Step.COMMIT_CONFIRMED)
def test_an_epoch_of_a_killed_writer_is_written_once(path, step):
    rows = rows_of(path)
    run_and_kill(step, append_here, path)
    append_here(path)
    assert rows_of(path) == pa.concat_tables([rows, some_rows(7000, 5)])
    assert lakehand.open_table(path).transactions() == {"w": 1}


def overwrite_here(path):
    open_here(path).overwrite(some_rows(7000, 5))


@kill_at(Step.SINK_STAGED, Step.COMMIT_PREPARED, Step.COMMIT_PUT, Step.COMMIT_CONFIRMED)
def test_a_killed_overwrite_replaces_all_rows_or_none(path, step):
    rows = rows_of(path)
    run_and_kill(step, overwrite_here, path)
    is_done = step in (Step.COMMIT_PUT, Step.COMMIT_CONFIRMED)
    assert rows_of(path) == (some_rows(7000, 5) if is_done else rows)

    overwrite_here(path)

    assert rows_of(path) == some_rows(7000, 5)
    assert lance.dataset(path).to_table(filter="id = 70").num_rows == 0
    assert lance.dataset(path).to_table(filter="id = 7003").num_rows == 1


def write_beside_upkeep(path):
    """Write ten epochs by a sink that compacts its table at every fifth of them."""
    options = {"maintenance_commits": 5, "automatic_min_files": 4, "quiet_period": "0s"}
    with tasks_inline(), TableSink(path, writer_id="w", takeover_after="0s", **options) as sink:
        for epoch in range((sink.last_committed_epoch or 0) + 1, 11):
            sink.begin_epoch(epoch)
            sink.write(some_rows(7000 + epoch, 1))
            sink.commit_epoch()


@kill_at(
    Step.TASK_WRITTEN,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.RUN_COMMITTED,
)
def test_a_sink_killed_while_it_compacts_has_written_every_epoch_once(path, step):
    rows = rows_of(path)
    # Before the compaction, five epochs have passed these steps.
    occurrence = 6 if step in (Step.COMMIT_PREPARED, Step.COMMIT_PUT) else 1
    run_and_kill(step, write_beside_upkeep, path, occurrence=occurrence)

    write_beside_upkeep(path)

    expected = pa.concat_tables([rows, *(some_rows(7000 + epoch, 1) for epoch in range(1, 11))])
    assert rows_of(path) == expected
    assert lakehand.open_table(path).transactions() == {"w": 10}
