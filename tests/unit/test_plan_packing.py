"""How files are put together."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.planning import compaction
from lakehand.planning.compaction import Items, Limits, first_fit_decreasing, next_fit, pack
from lakehand.planning.policy import CompactionPolicy
from support.plans import groups, plan_sizes, survey_of, with_policy

MIB = 2**20
STRATEGIES = ["greedy", "bin-packing", "sort-by-size"]
#: What a million files may take: thirty times what an idle machine needs.
LIMIT_SECONDS = 60


def test_greedy_fills_groups_in_the_order_of_the_files():
    assert groups(plan_sizes([40, 40, 40, 10, 30])) == [(0, 1), (2, 3, 4)]


def test_bin_packing_fills_gaps_with_smaller_files():
    policy = with_policy(strategy="bin-packing")

    assert groups(plan_sizes([30, 45, 20, 45, 8, 40], policy=policy)) == [(1, 3, 4), (0, 2, 5)]


def test_sort_by_size_puts_like_to_like():
    policy = with_policy(strategy="sort-by-size")

    assert groups(plan_sizes([45, 30, 30, 45, 30, 5], policy=policy)) == [(1, 2, 4, 5), (0, 3)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partitions_are_never_mixed_and_null_is_one(strategy):
    planning = plan_sizes(
        [10] * 6, keys=["a", None, "b", None, "a", "b"], policy=with_policy(strategy=strategy)
    )

    assert sorted(groups(planning)) == [(0, 4), (1, 3), (2, 5)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_neighbours_stay_together_in_a_clustered_table(strategy):
    order = pa.table({"min": [4, 1, 3, 2], "max": [9, 9, 9, 9]})
    policy = with_policy(strategy=strategy)
    planning = plan_sizes([40, 45, 30, 49], policy=policy, order_keys=order)

    assert groups(planning) == [(1, 3), (2, 0)]
    assert planning.plan.policy.strategy == "greedy"


def test_deleted_rows_take_no_room():
    assert groups(plan_sizes([90, 90, 90], deleted=[70, 70, 70])) == [(0, 1, 2)]


def test_crumbs_between_worn_files_find_each_other():
    sizes, deleted = [30, 90, 30, 90, 30], [0, 10, 0, 10, 0]

    assert sorted(groups(plan_sizes(sizes, deleted=deleted))) == [(0, 2, 4), (1,), (3,)]


def test_files_that_may_come_out_small_are_merged_beyond_the_target():
    sizes = [26, 26, 49, 49, 26, 26, 49, 49]

    assert groups(plan_sizes(sizes)) == [(0, 1, 4, 5), (2, 3), (6, 7)]


def test_footers_take_no_room_where_they_are_known():
    survey = survey_of([{"path": f"f{n}", "row_groups": [(20, 10)]} for n in range(5)])

    assert groups(plan_sizes([40] * 5, survey=survey)) == [(0, 1, 2, 3, 4)]


def test_files_that_can_be_copied_together_are_packed_together():
    policy = CompactionPolicy(target_file_bytes=128 * MIB)
    survey = survey_of(
        {"path": f"f{n}", "row_groups": [(50 * MIB, 500_000)], "copy_class": "ab"[n % 2]}
        for n in range(4)
    )
    planning = plan_sizes([50 * MIB] * 4, policy=policy, survey=survey)

    assert groups(planning) == [(0, 2), (1, 3)]
    assert {group.method for group in planning.plan.groups} == {"copy"}


def test_what_stays_small_is_merged_across_copy_classes():
    policy = CompactionPolicy(target_file_bytes=128 * MIB)
    survey = survey_of(
        {"path": f"f{n}", "row_groups": [(5 * MIB, 50_000)], "copy_class": "ab"[n % 2]}
        for n in range(4)
    )
    planning = plan_sizes([5 * MIB] * 4, policy=policy, survey=survey)

    assert groups(planning) == [(0, 1, 2, 3)]
    [group] = planning.plan.groups
    assert (group.method, group.recoded) == ("copy", (1, 3))


def naive_first_fit_decreasing(sizes, capacity):
    bins, room = {}, []
    for item in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        fitting = [n for n, free in enumerate(room) if sizes[item] <= free]
        if not fitting:
            room.append(capacity)
        number = fitting[0] if fitting else len(room) - 1
        room[number] -= sizes[item]
        bins[item] = number
    return [bins[n] for n in range(len(sizes))]


@given(st.lists(st.integers(0, 120), max_size=60))
def test_first_fit_decreasing_is_what_its_definition_says(sizes):
    found = first_fit_decreasing(
        np.array(sizes, np.int64), np.zeros(len(sizes), np.int64), capacity=100
    )

    assert found.tolist() == naive_first_fit_decreasing(sizes, 100)


def test_next_fit_without_a_limit_makes_one_bin_of_each_segment():
    most = np.iinfo(np.int64).max
    segments = np.array([0] * 4 + [1] * 4)
    found = next_fit(np.full(8, 10), segments, capacity=most)
    assert found.tolist() == segments.tolist()


def naive_next_fit(sizes, segments, capacity):
    bins, filled, number = [], 0, -1
    for index, size in enumerate(sizes):
        starts = index == 0 or segments[index] != segments[index - 1] or filled + size > capacity
        number, filled = (number + 1, 0) if starts else (number, filled)
        filled += size
        bins.append(number)
    return bins


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 120)), max_size=60))
def test_next_fit_is_what_its_definition_says(items):
    items = sorted(items, key=lambda item: item[0])
    segments, sizes = [segment for segment, _ in items], [size for _, size in items]
    found = next_fit(np.array(sizes, np.int64), np.array(segments, np.int64), capacity=100)

    assert found.tolist() == naive_next_fit(sizes, segments, 100)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("partitions", [1, 20_000])
def test_a_million_files_are_packed_in_seconds(strategy, partitions):
    random = np.random.default_rng(7)
    count = 1_000_000
    items = Items(
        sizes=(sizes := random.integers(1, 64 * MIB, count)),
        expected=sizes,
        partition=random.integers(0, partitions, count),
        affinity=np.zeros(count, np.int64),
    )
    started = time.process_time()
    limits = Limits(capacity=128 * MIB, small_bytes=70 * MIB, fullest=140 * MIB)
    bins = pack(items, strategy, limits)

    assert time.process_time() - started < LIMIT_SECONDS
    assert np.bincount(bins, weights=items.sizes).max() <= 140 * MIB


@pytest.mark.parametrize("order_keys", [None, pa.table({"a": [(n * 7) % 40 for n in range(40)]})])
def test_many_files_are_planned_in_portions_of_whole_partitions(monkeypatch, order_keys):
    sizes = [10 + n % 5 for n in range(40)]
    keys = [f"p{n % 6}" if n % 6 else None for n in range(40)]
    whole = plan_sizes(sizes, keys=keys, order_keys=order_keys)
    monkeypatch.setattr(compaction, "_PORTION_FILES", 15)
    divided = plan_sizes(sizes, keys=keys, order_keys=order_keys)

    assert len(whole.plan.groups) == 6
    assert set(groups(divided)) == set(groups(whole))
    assert divided.reasons.equals(whole.reasons)
    assert divided.plan.forecast == whole.plan.forecast


def test_only_a_partition_larger_than_a_portion_is_divided(monkeypatch):
    monkeypatch.setattr(compaction, "_PORTION_FILES", 10)
    planning = plan_sizes([4] * 25, keys=["a"] * 22 + ["b"] * 3)

    assert sorted(map(len, groups(planning))) == [2, 3, 10, 10]
    assert sorted(file for group in groups(planning) for file in group) == list(range(25))
