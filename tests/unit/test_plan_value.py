"""The plan as a value: stored, sent, found again, capped and priced."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakehand.errors import ReplanError
from lakehand.planning.compaction import plan_compaction
from lakehand.planning.plan import (
    Plan,
    TablePaths,
    expected_file_counts,
    locate_inputs,
    task_seconds,
)
from lakehand.planning.policy import CompactionPolicy
from support.plans import groups, keys_of, plan, plan_sizes, reasons, snapshot_of, with_policy
from support.snapshots import make_snapshot

MIB = 2**20
#: Thirty times what an idle machine needs.
LIMIT_SECONDS = 30


def test_a_plan_survives_a_file():
    result = plan_sizes([10, 10, 90, 2000], deleted=[0, 0, 50, 0]).plan

    assert Plan.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_plan_says_what_it_was_made_from():
    result = plan(snapshot_of([10, 10]), with_policy(min_files=3)).plan

    assert (result.table, result.version) == ("memory://t", 0)
    assert result.to_json()["policy"]["min_files"] == 3


def test_a_stored_plan_finds_its_files_wherever_they_are():
    result = plan_sizes([10, 10, 90, 10, 10], keys=["a", "a", "b", "b", "b"]).plan
    files = snapshot_of([10, 10, 90, 10, 10]).files.take([4, 3, 2, 1, 0])

    assert [rows.tolist() for rows in locate_inputs(result, files)] == [[4, 3], [1, 0]]


def test_a_plan_whose_file_is_gone_asks_for_a_new_one():
    result = plan_sizes([10, 10]).plan

    with pytest.raises(ReplanError, match="contains f1, which is not in the table"):
        locate_inputs(result, snapshot_of([10]).files)


def test_an_empty_plan_has_nothing_to_find():
    assert locate_inputs(plan_sizes([90]).plan, snapshot_of([90]).files) == []


def test_the_largest_group_comes_first_and_says_why():
    result = plan_sizes([5, 5, 45, 45], keys=["a", "a", "b", "b"]).plan

    assert [group.input_bytes for group in result.groups] == [90, 10]
    assert [group.id for group in result.groups] == [0, 1]
    assert result.groups[0].reason == "2 files below 50 B"


def test_the_forecast_counts_what_comes_and_goes():
    forecast = plan_sizes([10, 10, 100, 100], deleted=[0, 0, 40, 0]).plan.forecast

    assert (forecast.files_before, forecast.files_after) == (4, 2)
    assert (forecast.bytes_before, forecast.bytes_after) == (220, 180)
    assert (forecast.bytes_read, forecast.bytes_written) == (120, 80)


def test_nothing_is_expected_of_files_without_rows():
    [group] = plan_sizes([10, 10], rows=[0, 0]).plan.groups

    assert (group.expected_files, group.expected_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("size", "ratio", "count"), [(149, 0.5, 1), (150, 0.5, 2), (150, 0.9, 1), (0, 0.5, 0)]
)
def test_a_group_becomes_files_near_the_target_and_none_that_is_small(size, ratio, count):
    policy = with_policy(small_file_ratio=ratio)

    assert expected_file_counts(np.array([size]), policy).tolist() == [count]


def test_a_single_output_takes_all_there_is():
    [group] = plan_sizes([145], deleted=[6]).plan.groups

    assert (group.expected_files, group.target_file_bytes) == (1, 137)


def test_copying_is_cheaper_than_recoding_and_more_bytes_cost_more():
    copied, recoded, more = task_seconds(
        copied_bytes=np.array([100, 0, 0]) * MIB,
        recoded_bytes=np.array([0, 100, 200]) * MIB,
        encoded_bytes=np.array([0, 100, 100]) * MIB,
        file_counts=np.array([10, 10, 10]),
    )

    assert copied < recoded < more


def test_a_cap_keeps_the_groups_that_take_most_files_away():
    sizes = [40, 40, *[2] * 20]
    keys = ["a", "a", *["b"] * 20]
    planning = plan_sizes(sizes, keys=keys, policy=with_policy(max_bytes_per_run=100))

    assert groups(planning) == [tuple(range(2, 22))]
    assert reasons(planning)[:2] == ["later_run", "later_run"]
    assert planning.plan.remaining.files == 2


def test_a_group_that_does_not_fit_gives_way_to_smaller_ones():
    keys = ["a", "a", "a", "b", "b"]
    policy = with_policy(max_files_per_run=4)
    planning = plan_sizes([30, 30, 30, 40, 40], keys=keys, policy=policy)

    assert groups(planning) == [(0, 1, 2)]
    assert planning.plan.remaining.files == 2


@pytest.mark.parametrize("cap", [{"max_bytes_per_run": 50}, {"max_files_per_run": 2}])
def test_a_group_above_a_cap_is_cut_to_it(cap):
    planning = plan_sizes([20] * 6, policy=with_policy(target_file_bytes=1000, **cap))

    assert [len(group) for group in groups(planning)] == [2]
    assert planning.plan.remaining.files == 4
    assert "above_cap" not in planning.plan.left


def test_a_file_above_a_cap_is_left_by_name_and_the_others_go_on():
    policy = with_policy(target_file_bytes=1000, max_bytes_per_run=50)
    planning = plan_sizes([20, 20, 60, 40], policy=policy)

    assert groups(planning) == [(0, 1)]
    assert reasons(planning)[2:] == ["above_cap", "above_cap"]
    assert planning.plan.remaining.files == 0


def test_a_cut_never_rewrites_one_file_into_itself():
    planning = plan_sizes(
        [40] * 5, policy=with_policy(target_file_bytes=1000, max_bytes_per_run=50)
    )

    assert groups(planning) == []
    assert planning.plan.left == {"above_cap": 5}


def test_runs_with_a_cap_come_to_an_end():
    policy, snapshot = with_policy(max_groups_per_run=1), snapshot_of([40] * 6)
    remaining = [plan(snapshot, policy).plan.remaining.groups]
    for _ in range(3):
        done = plan(snapshot, policy)
        rows = {int(row) for group in locate_inputs(done.plan, snapshot.files) for row in group}
        kept = [f for n, f in enumerate(snapshot.files.to_pylist()) if n not in rows]
        snapshot = make_snapshot(kept, partition_columns=["key"])
        remaining.append(plan(snapshot, policy).plan.remaining.groups)

    assert remaining == [2, 1, 0, 0]


def test_a_million_files_are_planned_in_seconds():
    count, one = 1_000_000, snapshot_of([1])
    copies = np.zeros(count, np.int64)
    sizes = np.random.default_rng(7).integers(1, 2 * MIB, count)
    files = one.files.take(copies).drop_columns("bytes").append_column("bytes", [sizes])
    snapshot = replace(one, files=files)
    policy = CompactionPolicy(target_file_bytes=128 * MIB)
    started = time.process_time()
    result = plan_compaction(snapshot, keys_of(one).take(copies), policy).plan

    assert time.process_time() - started < LIMIT_SECONDS
    assert result.chosen == {"small": count}
    assert result.forecast.files_after < 10_000


def test_paths_of_a_plan_become_strings_only_when_they_are_needed():
    snapshot = snapshot_of([40] * 4)
    (group,) = plan(snapshot, with_policy(target_file_bytes=200)).plan.groups

    assert isinstance(group.paths, TablePaths)
    assert (len(group.paths), group.paths[-1], group.paths[:2]) == (4, "f3", ("f0", "f1"))
    assert group.paths == ("f0", "f1", "f2", "f3") == tuple(pickle.loads(pickle.dumps(group.paths)))
    assert hash(group.paths) == hash(tuple(group.paths))
    assert group.paths != ("f0", "f1", "f2")


def test_paths_in_several_pieces_are_found_as_well():
    snapshot = snapshot_of([40, 40])
    pieces = pa.concat_tables([snapshot.files.slice(0, 1), snapshot.files.slice(1)])
    made = plan(replace(snapshot, files=pieces)).plan

    assert [list(group.paths) for group in made.groups] == [["f0", "f1"]]
    assert [rows.tolist() for rows in locate_inputs(made, pieces)] == [[0, 1]]
    assert [rows.tolist() for rows in locate_inputs(made, snapshot.files)] == [[0, 1]]
    assert [rows.tolist() for rows in locate_inputs(made, pieces.take([1, 0]))] == [[1, 0]]


def test_rows_are_those_of_the_same_column_only_not_of_another_slice_of_its_memory():
    column = pa.array(["a", "b", "c", "d"])
    paths = TablePaths(column.slice(0, 3), np.array([0, 2], np.int32))
    assert (paths[0], paths[-1], paths[:1], paths[::-1]) == ("a", "c", ("a",), ("c", "a"))
    with pytest.raises(IndexError):
        paths[2]
    assert paths.are_of(pa.chunked_array([column.slice(0, 3)]))
    assert not paths.are_of(pa.chunked_array([column.slice(1, 3)]))
    assert not paths.are_of(pa.chunked_array([pa.array(["a", "b", "c"])]))
    assert not paths.are_of(pa.chunked_array([], pa.string()))
