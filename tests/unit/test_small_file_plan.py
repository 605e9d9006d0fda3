"""The plan of a compaction: pure, and true to its policy."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakehand.planning.small_files import CompactionPolicy, plan_compaction
from lakehand.settings import Settings

POLICY = CompactionPolicy(
    target_file_bytes=100, small_file_ratio=0.5, deleted_row_ratio=0.05, min_files=2
)


def plan(sizes, *, keys=None, deleted=None, policy=POLICY):
    files = pa.table(
        {
            "bytes": pa.array(sizes, pa.int64()),
            "rows": pa.array([100] * len(sizes), pa.int64()),
            "deleted_rows": pa.array(deleted or [0] * len(sizes), pa.int64()),
        }
    )
    return plan_compaction(files, pa.array(keys or [0] * len(sizes)), policy)


def positions(result):
    return [group.positions for group in result.groups]


def test_small_files_are_packed_up_to_the_target():
    assert positions(plan([40, 40, 40, 10, 30])) == [(0, 1), (2, 3, 4)]


def test_files_of_two_partitions_are_never_mixed():
    assert positions(plan([10, 10, 10, 10], keys=["a", "b", "a", "b"])) == [(0, 2), (1, 3)]


def test_a_null_partition_is_a_partition():
    assert positions(plan([10, 10, 10, 10], keys=["a", None, "a", None])) == [(0, 2), (1, 3)]


def test_large_files_are_left_and_counted():
    result = plan([60, 10, 10, 99])

    assert positions(result) == [(1, 2)]
    assert result.left == {"large enough": 2}


def test_too_few_small_files_are_left_alone():
    result = plan([10, 10], policy=CompactionPolicy(**{**_fields(POLICY), "min_files": 3}))

    assert result.groups == ()
    assert result.left == {"too few to merge": 2}


def test_a_worn_file_is_rewritten_even_alone():
    [group] = plan([90, 90], deleted=[0, 6]).groups

    assert group.positions == (1,)
    assert group.reason == "1 file with more than 5% of rows deleted"


def test_deleted_rows_take_no_room():
    assert positions(plan([90, 90, 90], deleted=[70, 70, 70])) == [(0, 1, 2)]


def test_the_largest_group_comes_first_and_says_why():
    groups = plan([5, 5, 45, 45], keys=["a", "a", "b", "b"]).groups

    assert [group.input_bytes for group in groups] == [90, 10]
    assert groups[0].reason == "2 files below 50 B"


def test_an_empty_table_has_an_empty_plan():
    assert plan([]).groups == ()


def test_files_that_do_not_say_their_rows_count_as_whole():
    files = pa.table(
        {
            "bytes": pa.array([10, 10], pa.int64()),
            "rows": pa.array([None, 5], pa.int64()),
            "deleted_rows": pa.array([0, 0], pa.int64()),
        }
    )

    assert len(plan_compaction(files, pa.array([0, 0]), POLICY).groups) == 1


def test_settings_make_the_policy():
    policy = CompactionPolicy.from_settings(Settings({"target_file_bytes": "1MiB"}, environment={}))

    assert (policy.small_file_bytes, policy.min_files) == (512 * 1024, 4)


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 3)), max_size=40))
def test_every_small_file_is_planned_once_or_left_and_no_group_passes_the_target(files):
    sizes = [size for size, _ in files]
    result = plan(sizes, keys=[key for _, key in files])

    planned = [position for group in result.groups for position in group.positions]
    assert len(planned) == len(set(planned))
    assert len(planned) + sum(result.left.values()) == len(sizes)
    assert all(group.input_bytes <= 100 for group in result.groups)
    assert all(sizes[position] < 50 for position in planned)


def _fields(policy):
    names = ("target_file_bytes", "small_file_ratio", "deleted_row_ratio", "min_files")
    return {name: getattr(policy, name) for name in names}
