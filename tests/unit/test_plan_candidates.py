"""Which files are chosen, which are left, and why."""

from __future__ import annotations

import numpy as np
import pytest

from lakehand.planning import compaction
from lakehand.planning.compaction import paths_to_survey
from lakehand.planning.policy import CompactionPolicy, Reason
from lakehand.settings import Settings
from support.plans import (
    groups,
    keys_of,
    plan,
    plan_sizes,
    reasons,
    snapshot_of,
    survey_of,
    with_policy,
)

FOUR = with_policy(min_files=4)
MIB = 2**20
LARGE = CompactionPolicy(target_file_bytes=128 * MIB)


def test_small_files_are_chosen_and_large_ones_are_left():
    planning = plan_sizes([60, 10, 10, 99])

    assert groups(planning) == [(1, 2)]
    assert reasons(planning) == ["large_enough", "small", "small", "large_enough"]


def test_the_plan_counts_files_by_reason():
    result = plan_sizes([60, 10, 10, 99, 10, 10], keys=["a"] * 4 + ["b", "c"]).plan

    assert result.chosen == {"small": 2}
    assert result.left == {"large_enough": 2, "below_minimum_files": 2}


def test_too_few_small_files_in_a_partition_are_left_alone():
    planning = plan_sizes([10, 10, 10], policy=FOUR)

    assert groups(planning) == []
    assert reasons(planning) == ["below_minimum_files"] * 3


def test_the_minimum_is_asked_of_the_partition_and_not_of_each_group():
    assert groups(plan_sizes([40, 40, 40, 40], policy=FOUR)) == [(0, 1), (2, 3)]


def test_a_worn_file_is_rewritten_even_alone():
    planning = plan_sizes([90, 90], deleted=[0, 6], policy=FOUR)

    assert groups(planning) == [(1,)]
    assert planning.plan.groups[0].reason == "1 file with more than 5% of rows deleted"


def test_a_share_of_deleted_rows_at_the_limit_is_borne():
    assert groups(plan_sizes([90], deleted=[5])) == []


def test_an_oversized_file_is_split_even_alone():
    planning = plan_sizes([1040], policy=FOUR)

    assert reasons(planning) == ["oversized"]
    assert planning.plan.groups[0].expected_files == 10
    assert planning.plan.groups[0].target_file_bytes == 104


def test_a_file_of_ten_targets_is_left_whole():
    assert reasons(plan_sizes([1000])) == ["large_enough"]


def test_a_single_small_file_has_nothing_to_merge_with():
    policy = with_policy(small_file_ratio=0.9)
    planning = plan_sizes([80, 30], policy=policy)

    assert groups(planning) == []
    assert reasons(planning) == ["single_file"] * 2


def test_a_file_that_is_small_and_worn_is_chosen_once():
    planning = plan_sizes([10, 10, 10], deleted=[50, 0, 0])

    assert groups(planning) == [(0, 1, 2)]
    assert reasons(planning) == ["worn", "small", "small"]


def test_few_small_files_do_not_ride_along_with_a_worn_one():
    planning = plan_sizes([10, 90], deleted=[0, 50], policy=FOUR)

    assert groups(planning) == [(1,)]
    assert reasons(planning) == ["below_minimum_files", "worn"]


def test_a_file_that_does_not_say_its_rows_counts_as_whole():
    planning = plan_sizes([60, 60], rows=[None, 100], deleted=[30, 30])

    assert reasons(planning) == ["large_enough", "worn"]


def test_rows_that_only_the_footer_tells_reveal_a_worn_file():
    survey = survey_of([{"path": "f0", "row_groups": [(60, 40)]}])

    assert reasons(plan_sizes([60], rows=[None], deleted=[30], survey=survey)) == ["worn"]


def test_more_deleted_rows_than_rows_are_all_rows():
    [group] = plan_sizes([60], rows=[10], deleted=[20]).plan.groups

    assert (group.expected_files, group.expected_bytes) == (0, 0)


def test_files_with_tiny_row_groups_are_found_by_their_footers():
    survey = survey_of(
        [
            {"path": "f0", "row_groups": [(100_000, 1000)] * 1000},
            {"path": "f1", "row_groups": [(25 * MIB, 500_000)] * 4},
        ]
    )
    planning = plan_sizes([100 * MIB] * 2, policy=LARGE, survey=survey)

    assert reasons(planning) == ["small_row_groups", "large_enough"]
    assert planning.plan.groups[0].reason == "1 file with very small row groups"


def test_a_small_last_row_group_is_no_reason():
    row_groups = [(25 * MIB, 500_000)] * 4 + [(1000, 10)]
    survey = survey_of([{"path": "f0", "row_groups": row_groups}])

    assert reasons(plan_sizes([100 * MIB], policy=LARGE, survey=survey)) == ["large_enough"]


def test_a_few_small_row_groups_are_not_worth_a_rewrite():
    row_groups = [(99 * MIB, 5000)] + [(100_000, 1000)] * 3
    survey = survey_of([{"path": "f0", "row_groups": row_groups}])

    assert reasons(plan_sizes([100 * MIB], policy=LARGE, survey=survey)) == ["large_enough"]


def test_row_groups_of_small_targets_are_measured_by_them():
    survey = survey_of([{"path": "f0", "row_groups": [(22, 25)] * 4}])

    assert reasons(plan_sizes([90], survey=survey)) == ["large_enough"]


@pytest.mark.parametrize("reason", ["outside_predicate", "outside_filter", "recently_written"])
def test_excluded_files_are_left_whatever_their_state(reason):
    snapshot = snapshot_of([10, 10, 10, 90], deleted=[0, 0, 0, 50])
    masks = {Reason(reason): np.array([False, False, True, True])}
    planning = plan(snapshot, exclusions=masks)

    assert groups(planning) == [(0, 1)]
    assert reasons(planning) == ["small", "small", reason, reason]


def test_excluded_files_do_not_count_towards_the_minimum():
    masks = {Reason.OUTSIDE_FILTER: np.array([True, False, False, False])}
    planning = plan(snapshot_of([10] * 4), FOUR, exclusions=masks)

    assert groups(planning) == []


def test_the_survey_asks_for_the_largest_candidates_first():
    snapshot = snapshot_of([10, 45, 90, 30], keys=["a"] * 4)
    wanted = paths_to_survey(snapshot, keys_of(snapshot), with_policy(), limit=2)

    assert wanted == ["f1", "f3"]


def test_the_survey_can_look_at_healthy_files_too():
    snapshot = snapshot_of([10, 10, 90, 95])
    options = {"limit": 3, "with_healthy": True}
    wanted = paths_to_survey(snapshot, keys_of(snapshot), with_policy(), **options)

    assert wanted == ["f0", "f1", "f3"]


def test_of_files_too_small_to_be_copied_only_some_are_surveyed():
    snapshot = snapshot_of([5 * MIB, *[MIB] * 1_000], rows=[200_000, *[100] * 1_000])
    policy = with_policy(target_file_bytes=128 * MIB)
    wanted = paths_to_survey(snapshot, keys_of(snapshot), policy, limit=10_000)

    assert (wanted[0], len(wanted)) == ("f0", 33)


def test_footers_of_files_that_were_not_surveyed_are_guessed_from_others():
    survey = survey_of([{"path": "f0", "row_groups": [(40, 10)]}])
    planning = plan_sizes([60, 60, 60], policy=with_policy(target_file_bytes=200), survey=survey)

    assert planning.plan.forecast.bytes_written == 3 * 40


def test_an_empty_table_has_an_empty_plan():
    planning = plan_sizes([])

    assert planning.plan.groups == ()
    assert len(planning.reasons) == 0
    assert planning.plan.forecast.files_after == 0


def test_settings_make_the_policy():
    given = {"target_file_bytes": "1MiB", "strategy": "bin-packing", "maxBytesPerRun": "1GiB"}
    policy = CompactionPolicy.from_settings(Settings(given, environment={}))

    assert policy.small_file_bytes == 512 * 1024
    assert (policy.min_files, policy.strategy, policy.max_bytes_per_run) == (
        4,
        "bin-packing",
        2**30,
    )


def test_files_are_surveyed_alike_in_portions(monkeypatch):
    snapshot = snapshot_of([5 * MIB + n for n in range(40)], keys=[f"p{n % 7}" for n in range(40)])
    policy = with_policy(target_file_bytes=128 * MIB)
    wanted = paths_to_survey(snapshot, keys_of(snapshot), policy, limit=9)
    monkeypatch.setattr(compaction, "_PORTION_FILES", 10)

    assert paths_to_survey(snapshot, keys_of(snapshot), policy, limit=9) == wanted
