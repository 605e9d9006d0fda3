"""Compactions of Lance tables killed at every step: the next call ends the job."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.lance_tables import (
    add_indices,
    compact_in_halves,
    fragment_count,
    make_lance,
    rows_of,
    searches,
    unknown_files,
)

STEPS = (
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.TASK_RECORDED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
    Step.RUN_CLOSED,
    Step.RUN_CLEANED,
)
#: From here on the table has the outputs, or may have them as far as the next run can tell.
IN_DOUBT = {Step.RUN_COMMITTING, Step.COMMIT_PREPARED}


@pytest.fixture
def path(tmp_path):
    path = make_lance(tmp_path / "t")
    add_indices(path)
    return path


@kill_at(*STEPS)
def test_a_killed_compaction_harms_nothing_and_is_ended_by_the_next_call(path, step):
    rows, found = rows_of(path), searches(path)
    run_and_kill(step, compact_in_halves, path)
    assert rows_of(path) == rows

    compact_in_halves(path, "0s")

    assert fragment_count(path) == 2
    assert (rows_of(path), searches(path)) == (rows, found)
    # What a run was about to commit when it died is left to vacuum, whose age rule is safe.
    assert not unknown_files(path) or step in IN_DOUBT


@kill_at(Step.COMMIT_PUT)
def test_the_proof_of_a_commit_that_nobody_noted_is_found_again(path, step):
    run_and_kill(step, compact_in_halves, path)

    compact_in_halves(path, "0s")

    newest = next(entry for entry in lakehand.open_table(path).history() if entry.proof)
    assert newest.operation == "compact"
    assert newest.proof["rows"] == rows_of(path).num_rows
