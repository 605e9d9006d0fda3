"""Clustering killed at every step: no row is lost or doubled, and the next call ends the job."""

from __future__ import annotations

import pytest

from lakehand.observe.steps import Step
from support.compactions import cluster_inline, open_table
from support.crash import kill_at, run_and_kill
from support.small_tables import make_table, read_sorted
from support.unharmed import assert_unharmed, files_in_ledgers, staged_files

#: By one task, and by many.
WAYS = [2**30, 0]


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture
def rows(place):
    return read_sorted(place)


@pytest.mark.parametrize("sort_task_bytes", WAYS, ids=["one-task", "many-tasks"])
@kill_at(
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.TASK_RECORDED,
    Step.COMMIT_PUT,
    Step.RUN_COMMITTED,
)
def test_a_run_that_died_is_ended_by_the_next_call(place, rows, step, sort_task_bytes):
    run_and_kill(step, cluster_inline, str(place), "2m", sort_task_bytes)
    assert_unharmed(place, rows)

    cluster_inline(str(place), "0s", sort_task_bytes)

    assert open_table(str(place)).snapshot().file_count == 2
    assert staged_files(place) <= files_in_ledgers(place)
    assert_unharmed(place, rows)
