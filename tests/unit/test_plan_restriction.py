"""Predicates and functions that say which files a call is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehand.errors import PredicateError, ValidationError
from lakehand.expressions.predicate import parse_predicate
from lakehand.planning.policy import Reason
from lakehand.planning.restriction import QuietRule, files_outside_filter, files_outside_predicate
from support.plans import groups, plan, reasons, snapshot_of
from support.snapshots import make_snapshot

SCHEMA = pa.schema([("key", pa.string()), ("id", pa.int64())])


def files_with_bounds(*bounds, keys=None):
    """Return files whose column `id` lies between the two numbers of each pair."""
    files = snapshot_of([10] * len(bounds), keys=keys).files
    entries = [
        {"id": None if b is None else {"min": b[0], "max": b[1], "nulls": 0}} for b in bounds
    ]
    member = pa.struct([("min", pa.int64()), ("max", pa.int64()), ("nulls", pa.int64())])
    return files.append_column("bounds", pa.array(entries, pa.struct([("id", member)])))


def outside(text, files):
    return files_outside_predicate(parse_predicate(text, SCHEMA), files).tolist()


def test_a_predicate_over_partitions_decides_every_file():
    files = files_with_bounds(None, None, None, keys=["eu", "us", None])

    assert outside("key = 'eu'", files) == [False, True, True]


def test_a_predicate_over_bounds_is_taken_where_they_decide():
    assert outside("id < 10", files_with_bounds((1, 9), (10, 20))) == [False, True]


def test_a_file_with_rows_on_both_sides_is_refused_by_name():
    files = files_with_bounds((1, 9), (5, 20), (1, 30))

    with pytest.raises(PredicateError, match="for 2 files: for example, f1 may") as caught:
        outside("id < 10", files)
    assert "both matching and other rows by id," in caught.value.message
    assert caught.value.hint.startswith("use the partition columns (key)")
    assert caught.value.field == "where"


def test_a_file_without_bounds_is_refused():
    with pytest.raises(PredicateError, match="for 1 file: for example, f1"):
        outside("id < 10", files_with_bounds((1, 9), None))


def test_without_partitions_the_hint_names_none():
    files = files_with_bounds((1, 20)).drop_columns("partition")

    with pytest.raises(PredicateError) as caught:
        outside("id < 10", files)
    assert caught.value.hint.startswith("remove the predicate")


def test_a_predicate_reaches_the_plan_with_its_reason():
    snapshot = snapshot_of([10] * 4, keys=["eu", "us", "eu", "us"])
    mask = files_outside_predicate(parse_predicate("key = 'eu'", SCHEMA), snapshot.files)
    planning = plan(snapshot, exclusions={Reason.OUTSIDE_PREDICATE: mask})

    assert groups(planning) == [(0, 2)]
    assert reasons(planning)[1] == "outside_predicate"


@pytest.mark.parametrize("answer", ["array", "chunked", "numpy", "list"])
def test_a_function_over_the_files_chooses_some_of_them(answer):
    column = pa.chunked_array([[True, None], [False]])
    answers = {
        "array": column.combine_chunks(),
        "chunked": column,
        "numpy": np.array([True, False, False]),
        "list": [True, None, False],
    }
    files = snapshot_of([10, 20, 30]).files

    assert files_outside_filter(lambda _: answers[answer], files).tolist() == [False, True, True]


def test_the_function_sees_the_columns_of_the_files():
    files = snapshot_of([10, 20, 30]).files

    assert files_outside_filter(lambda f: pc.less(f["bytes"], 25), files).tolist() == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("answer", [pa.array([1, 0]), pa.array([True]), "no", 3])
def test_an_answer_that_is_not_one_boolean_a_file_is_refused(answer):
    with pytest.raises(ValidationError, match="file_filter returned") as caught:
        files_outside_filter(lambda _: answer, snapshot_of([10, 20]).files)
    assert caught.value.field == "file_filter"


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def left_alone(minutes, keys, *, rows_change, sizes=None):
    """Say which files of these ages are left alone, with the default times."""
    sizes = sizes or [10] * len(minutes)
    ages = (timedelta(minutes=age) for age in minutes)
    files = [
        {"modified_at": NOW - age, "bytes": size} for age, size in zip(ages, sizes, strict=True)
    ]
    rule = QuietRule(
        written_after=NOW - timedelta(minutes=5),
        waiting_since=NOW - timedelta(hours=1),
        small_file_bytes=100,
        rows_change=rows_change,
    )
    return rule.left_alone(make_snapshot(files).files, pa.array(keys, pa.string())).tolist()


def test_where_rows_are_only_appended_new_files_alone_are_left():
    assert left_alone([30, 2, 30, 6], "aab ", rows_change=False) == [False, True, False, False]


def test_where_rows_change_a_new_file_keeps_its_whole_partition_busy():
    assert left_alone([30, 2, 30, 6], ["a", "a", "b", None], rows_change=True) == [
        True, True, False, False,
    ]  # fmt: skip


def test_where_rows_change_a_partition_is_busy_until_a_small_file_has_waited_for_an_hour():
    assert left_alone([61, 30, 2], "aaa", rows_change=True) == [False, False, True]
    assert left_alone([61, 30, 2], "aaa", rows_change=True, sizes=[500, 10, 10]) == [True] * 3


def test_files_of_no_partition_are_busy_together():
    assert left_alone([0, 30], [None, None], rows_change=True) == [True, True]
