"""Rewrites killed at every step: no row is lost or doubled, and the next call ends the job."""

from __future__ import annotations

import pytest

from lakehand.observe.steps import Step
from support.compactions import (
    COMPACT,
    KillingTask,
    compact_with_tasks,
    leave_dead_run,
    open_table,
    rewrites_in_turn,
)
from support.crash import COMMIT_STEPS, END_STEPS, TASK_STEPS, kill_at, run_and_kill
from support.small_tables import make_table, read_sorted
from support.unharmed import assert_clean, assert_unharmed, files_in_ledgers, staged_files


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture
def rows(place):
    return read_sorted(place)


def assert_next_call_ends_the_job(place, rows, rewrite=COMPACT, **settings):
    rewrite(place, "0s", **settings)

    assert open_table(str(place)).snapshot().file_count == 2
    assert staged_files(place) <= files_in_ledgers(place)
    assert_unharmed(place, rows)


@rewrites_in_turn
@kill_at(Step.RUN_STARTED, *TASK_STEPS, *COMMIT_STEPS, *END_STEPS)
def test_a_run_of_one_commit_is_ended_by_the_next_call(place, rows, step, rewrite):
    run_and_kill(step, rewrite, str(place))
    assert_unharmed(place, rows)

    assert_next_call_ends_the_job(place, rows, rewrite)


@rewrites_in_turn
@kill_at(Step.RUN_TOOK_OVER, Step.RUN_ADOPTED)
def test_a_run_killed_while_it_takes_over_another_is_ended_by_the_next_call(
    place, rows, step, rewrite
):
    leave_dead_run(place, rewrite=rewrite)
    run_and_kill(step, rewrite, str(place), "0s")
    assert_unharmed(place, rows)

    assert_next_call_ends_the_job(place, rows, rewrite)
    assert staged_files(place) == set()


@rewrites_in_turn
@kill_at(Step.TASK_PROVED, *COMMIT_STEPS)
def test_a_run_killed_at_its_second_batch_keeps_the_first(place, rows, step, rewrite):
    run_and_kill(step, rewrite_singly, rewrite, str(place), occurrence=2)
    assert_unharmed(place, rows)
    assert open_table(str(place)).snapshot().version >= 6

    assert_next_call_ends_the_job(place, rows, rewrite, commit_every_groups=1)


def rewrite_singly(rewrite, path):
    rewrite(path, commit_every_groups=1)


@pytest.mark.parametrize("step", TASK_STEPS)
def test_a_task_whose_process_is_killed_is_done_by_another(place, rows, step, tmp_path):
    report = compact_with_tasks(
        place, lambda task: KillingTask(task, step=step, mark=tmp_path / "mark")
    )

    assert (tmp_path / "mark").exists()
    assert (report.groups.committed, report.errors) == (2, ())
    assert_clean(place)
    assert_unharmed(place, rows)


class BrokenTask:
    """A task that fails, for one group, in a way that nobody foresaw."""

    def __init__(self, function):
        self._function = function

    def __call__(self, payload):
        if payload["group"]["id"] == 0:
            raise ZeroDivisionError("nobody foresaw this")
        return self._function(payload)


def test_a_group_that_fails_whatever_is_tried_does_not_sink_the_others(place, rows):
    report = compact_with_tasks(place, BrokenTask)

    assert (report.groups.planned, report.groups.committed) == (2, 1)
    assert [error["code"] for error in report.errors] == ["TASK_FAILED"]
    assert "failed 3 times: ZeroDivisionError: nobody foresaw this" in report.errors[0]["message"]
    assert_clean(place)
    assert_next_call_ends_the_job(place, rows)
