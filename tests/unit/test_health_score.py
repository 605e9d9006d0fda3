"""The health score: every part of it moves alone, by the formula that the reference prints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lakehand.assess.health_score import Measures, assess_health

PERFECT = Measures(
    file_count=100,
    small_file_count=0,
    excess_file_count=0,
    deleted_rows=0,
    physical_rows=1_000,
    files_without_rows=0,
    commits_since_checkpoint=0,
    checkpoint_interval=10,
    small_file_bytes=64,
    total_bytes=1_000,
)
#: At ten commits a checkpoint is due, which costs two points by itself.
DUE = {"commits_since_checkpoint": 10}


def cost(code: str, **measures: object) -> int:
    """Return what one finding costs, having made sure that nothing else has changed the score."""
    health = assess_health(replace(PERFECT, **measures))
    others = [reason.code for reason in health.reasons if reason.code != code]
    assert others in ([], ["checkpoint_overdue"])
    return sum(reason.points for reason in health.reasons if reason.code == code)


def test_a_table_without_findings_has_all_points():
    assert assess_health(PERFECT).score == 100


@pytest.mark.parametrize(("excess", "points"), [(1, 0), (2, 1), (50, 25), (100, 50)])
def test_small_files_cost_half_a_point_for_each_percent_that_compaction_saves(excess, points):
    assert cost("small_files", excess_file_count=excess, small_file_count=excess) == points


@pytest.mark.parametrize(("deleted", "points"), [(10, 1), (125, 10), (250, 20), (900, 20)])
def test_deleted_rows_cost_most_from_a_quarter_on(deleted, points):
    assert cost("deleted_rows", deleted_rows=deleted) == points


@pytest.mark.parametrize(("commits", "points"), [(9, 0), (10, 2), (50, 10), (100, 20), (500, 20)])
def test_commits_to_replay_cost_two_points_an_interval(commits, points):
    assert cost("checkpoint_overdue", commits_since_checkpoint=commits) == points


@pytest.mark.parametrize(("days", "points"), [(1, 0), (3, 1), (15, 5), (30, 10), (300, 10)])
def test_a_checkpoint_that_is_due_costs_a_point_every_three_days(days, points):
    assert cost("checkpoint_old", uncovered_age=timedelta(days=days), **DUE) == points


def test_old_commits_cost_nothing_while_no_checkpoint_is_due():
    assert cost("checkpoint_old", uncovered_age=timedelta(days=300)) == 0


@pytest.mark.parametrize(
    ("orphans", "points"), [(None, 0), (0, 0), (100, 1), (500, 5), (9_000, 10)]
)
def test_orphans_cost_a_point_for_each_tenth_of_the_tables_size(orphans, points):
    assert cost("orphans", orphan_bytes=orphans) == points


@pytest.mark.parametrize(("files", "points"), [(10, 1), (100, 10)])
def test_files_without_row_counts_cost_a_point_for_each_tenth(files, points):
    assert cost("no_row_counts", files_without_rows=files) == points


@pytest.mark.parametrize(
    ("depth", "points"),
    [(None, 0), (0.0, 0), (1.0, 0), (1.75, 1), (8.5, 10), (16.0, 20), (99.0, 20)],
)
def test_files_over_one_another_cost_most_from_sixteen_on(depth, points):
    assert cost("overlap", overlap_depth=depth) == points


def test_the_worst_table_has_no_points_and_not_fewer():
    worst = replace(
        PERFECT, excess_file_count=100, deleted_rows=900, commits_since_checkpoint=900,
        uncovered_age=timedelta(days=900), orphan_bytes=9_000, files_without_rows=100,
        overlap_depth=99.0,
    )  # fmt: skip
    health = assess_health(worst)
    assert (health.score, sum(reason.points for reason in health.reasons)) == (0, 140)
