from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.assess.health_score import Measures, assess_health
from lakehand.assess.inspection import inspect_snapshot
from lakehand.settings import Settings
from support.snapshots import make_snapshot

MIB = 2**20
SETTINGS = Settings(environment={})


def inspect(files, **options):
    return inspect_snapshot(make_snapshot(files, **options), format_name="x", settings=SETTINGS)


def test_an_empty_table_is_healthy():
    report = inspect([])
    assert (report.file_count, report.total_bytes, report.row_count) == (0, 0, 0)
    assert (report.partition_count, report.average_file_bytes) == (0, 0)
    assert report.health.score == 100


def test_rows_that_are_deleted_do_not_count_as_rows():
    report = inspect([{"rows": 10, "deleted_rows": 4}, {"rows": 20}])
    assert (report.row_count, report.deleted_row_count) == (26, 4)


def test_a_file_without_row_count_makes_the_total_unknown_and_says_so():
    report = inspect([{"rows": None}, {"rows": 5}])
    assert report.row_count is None
    assert "no_row_counts" in [reason.code for reason in report.health.reasons]


def test_small_is_below_half_of_the_target():
    report = inspect([{"bytes": 64 * MIB - 1}, {"bytes": 64 * MIB}])
    assert report.small_file_count == 1


def test_small_files_that_cannot_be_merged_cost_nothing():
    lonely = [{"partition": {"day": str(day)}} for day in range(50)]
    report = inspect(lonely, partition_columns=["day"])
    assert (report.small_file_count, report.excess_file_count) == (50, 0)
    assert report.health.score == 100


def test_excess_files_are_counted_by_partition():
    files = [{"partition": {"day": day}} for day in ("a", "a", "a", "b", None, None)]
    report = inspect(files, partition_columns=["day"])
    assert (report.partition_count, report.excess_file_count) == (3, 2 + 0 + 1)


def test_files_without_a_byte_still_need_one_file():
    assert inspect([{"bytes": 0}] * 3).excess_file_count == 2


def test_files_at_the_target_are_never_in_excess():
    assert inspect([{"bytes": 128 * MIB}] * 3).excess_file_count == 0


def test_what_costs_a_point_is_reported_and_what_costs_less_is_not():
    large = {"bytes": 128 * MIB}
    assert [r.points for r in inspect([large] * 48 + [{}] * 2).health.reasons] == [1]
    assert inspect([large] * 998 + [{}] * 2).health.reasons == ()


def test_partitions_are_told_apart_by_all_columns():
    pairs = [("a", "1"), ("a", "2"), ("b", "1"), ("a", "1"), (None, "1"), (None, None)]
    files = [{"partition": {"x": x, "y": y}} for x, y in pairs]
    assert inspect(files, partition_columns=["x", "y"]).partition_count == 5


def test_files_worth_rewriting_for_their_deleted_rows_are_counted():
    files = [{"rows": 100, "deleted_rows": deleted} for deleted in (0, 5, 6, 100)]
    assert inspect(files).files_with_deleted_rows == 2


def test_commits_are_counted_from_the_checkpoint_or_from_the_start():
    assert inspect([], version=7, checkpoint_version=5).commits_since_checkpoint == 2
    assert inspect([], version=7).commits_since_checkpoint == 8


def test_an_overdue_checkpoint_is_a_reason():
    report = inspect([{}], version=49)
    assert [reason.code for reason in report.health.reasons] == ["checkpoint_overdue"]
    assert report.health.score == 90


def test_the_worst_reason_comes_first():
    report = inspect([{"rows": 10, "deleted_rows": 1}] * 10)
    points = [reason.points for reason in report.health.reasons]
    assert points == sorted(points, reverse=True)
    assert report.health.reasons[0].code == "small_files"
    assert "10 files of 10 are smaller than 64 MiB" in report.health.reasons[0].message


@given(st.lists(st.integers(min_value=0, max_value=2**40), max_size=50))
def test_the_histogram_loses_no_file_and_no_byte(sizes):
    report = inspect([{"bytes": size} for size in sizes])
    assert sum(size.file_count for size in report.sizes) == len(sizes)
    assert sum(size.total_bytes for size in report.sizes) == sum(sizes)


@given(st.integers(min_value=0, max_value=2**40))
def test_a_file_is_in_the_range_of_its_size(size):
    [found] = [part for part in inspect([{"bytes": size}]).sizes if part.file_count]
    assert found.from_bytes <= size
    assert found.to_bytes is None or size < found.to_bytes


counts = st.integers(min_value=0, max_value=10**9)


@given(st.tuples(counts, counts, counts, counts, counts))
def test_the_score_stays_between_0_and_100(numbers):
    files, excess, deleted, rows, commits = numbers
    excess, deleted = min(excess, files), min(deleted, rows)
    health = assess_health(
        Measures(
            file_count=files,
            small_file_count=excess,
            excess_file_count=excess,
            deleted_rows=deleted,
            physical_rows=rows,
            files_without_rows=files - excess,
            commits_since_checkpoint=commits,
            checkpoint_interval=10,
            small_file_bytes=MIB,
            total_bytes=rows,
            uncovered_age=timedelta(seconds=commits),
            orphan_bytes=deleted,
        )
    )
    assert 0 <= health.score <= 100
    assert health.score == max(0, 100 - sum(reason.points for reason in health.reasons))


def test_the_document_has_every_promised_field():
    promised = {
        "table", "format", "version", "file_count", "total_bytes", "row_count",
        "deleted_row_count", "small_file_count", "partition_count", "checkpoint_version",
        "commits_since_checkpoint", "health",
    }  # fmt: skip
    document = json.loads(json.dumps(inspect([{}, {}]).to_json()))
    assert promised <= document.keys()
    assert document["health"].keys() == {"score", "reasons"}


def test_the_table_property_moves_what_is_small():
    settings = SETTINGS.with_properties({"delta.targetFileSize": "1mb"})
    report = inspect_snapshot(make_snapshot([{}]), format_name="x", settings=settings)
    assert report.small_file_count == 0
    assert report.small_file_bytes == 500_000


@pytest.mark.parametrize("target", [1, 2, 3, 100])
def test_a_tiny_target_still_gives_a_histogram(target):
    settings = Settings({"target_file_bytes": target}, environment={})
    report = inspect_snapshot(make_snapshot([{}]), format_name="x", settings=settings)
    assert sum(size.file_count for size in report.sizes) == 1
