"""How deep files lie over one another, against counting by hand."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.planning import overlap
from lakehand.planning.file_bounds import extents_of
from lakehand.planning.overlap import overlap_depth, overlapping_files
from support.bounded_files import files_between

ENDS = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted).map(tuple)
BOXES = st.integers(1, 3).flatmap(
    lambda columns: st.lists(st.tuples(*[ENDS] * columns), min_size=1, max_size=12)
)


def _depth(bounds, type_=None):
    return overlap_depth(extents_of(files_between(bounds, type_), list(bounds)))


def _columns(boxes):
    return {f"c{index}": list(ends) for index, ends in enumerate(zip(*boxes, strict=True))}


def _ranks(ends):
    return {value: rank for rank, value in enumerate(sorted({v for end in ends for v in end}))}


def _counted_by_hand(boxes):
    """Count for each box those that hold its middle, half way between the ranks of its ends."""
    columns = list(zip(*boxes, strict=True))
    ranks = [_ranks(column) for column in columns]
    spelled = [
        [(rank[low], rank[high]) for rank, (low, high) in zip(ranks, box, strict=True)]
        for box in boxes
    ]
    return [
        sum(
            all(low <= sum(own) / 2 <= high for (low, high), own in zip(other, box, strict=True))
            for other in spelled
        )
        for box in spelled
    ]


@given(BOXES)
def test_the_depth_of_a_file_is_how_many_hold_its_middle(boxes):
    expected = _counted_by_hand(boxes)

    depth = _depth(_columns(boxes))

    assert depth.by_file.tolist() == expected
    assert depth.average == pytest.approx(np.mean(expected))
    assert depth.maximum == max(expected)


@given(st.lists(ENDS, min_size=1, max_size=20))
def test_the_files_that_overlap_one_are_counted_without_itself(ends):
    [extent] = extents_of(files_between({"a": ends}), ["a"])

    expected = [
        sum(low <= other[1] and other[0] <= high for other in ends) - 1 for low, high in ends
    ]

    assert overlapping_files(extent).tolist() == expected


def test_files_apart_are_one_deep_and_files_over_one_another_as_many_as_they_are():
    assert _depth({"a": [(0, 1), (2, 3), (4, 5)]}).average == 1
    assert _depth({"a": [(0, 9)] * 4}).by_file.tolist() == [4, 4, 4, 4]


def test_boxes_that_overlap_in_each_column_but_not_in_both_are_apart():
    boxes = {"a": [(0, 5), (0, 5)], "b": [(0, 1), (2, 3)]}

    assert _depth({"a": boxes["a"]}).average == 2
    assert _depth(boxes).average == 1


def test_a_file_of_unknown_bounds_lies_over_all_others():
    depth = _depth({"a": [(0, 1), (2, 3), (None, None)]})

    assert depth.by_file.tolist() == [2, 2, 1]


def test_an_end_that_is_not_known_reaches_to_the_last_value():
    depth = _depth({"a": [(0, 1), (2, None), (8, 9)]})

    assert depth.by_file.tolist() == [1, 2, 2]


def test_a_file_of_nulls_lies_over_nothing():
    depth = _depth({"a": [(0, 1), None, (0, 1)]})

    assert depth.by_file.tolist() == [2, 0, 2]
    assert depth.average == 2


def test_files_without_any_bounds_lie_over_one_another():
    assert _depth({"a": [(None, None)] * 3}).by_file.tolist() == [3, 3, 3]


def test_no_files_have_no_depth():
    assert _depth({"a": []}).average == 0
    assert _depth({"a": [None, None]}).maximum == 0


def test_ends_in_the_wrong_order_say_nothing():
    assert _depth({"a": [(5, 1), (7, 8)]}).by_file.tolist() == [1, 2]


DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001
ORDERED = [
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.float64(), [float("-inf"), -0.5, 0.0, 1e300]),
    (pa.float32(), [-1.5, -0.5, 0.0, 2.5]),
    (pa.decimal128(38, 2), [Decimal(text) for text in ("-1e30", "-0.01", "0.02", "1e30")]),
    (pa.string(), ["", "Z", "a", "é"]),
    (pa.large_string(), ["", "Z", "a", "é"]),
    (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
    (pa.date32(), [DAY + dt.timedelta(days) for days in (-40_000, 0, 1, 40_000)]),
    (pa.timestamp("us"), [NOON + dt.timedelta(minutes=m) for m in (-9, 0, 1, 2)]),
    (pa.timestamp("us", tz="UTC"), [NOON + dt.timedelta(minutes=m) for m in (-9, 0, 1, 2)]),
]


@pytest.mark.parametrize(("type_", "values"), ORDERED, ids=lambda case: str(case)[:20])
def test_every_type_is_ranked_by_its_order(type_, values):
    first, second, third, fourth = values

    assert _depth({"a": [(first, second), (third, fourth)]}, type_).average == 1
    assert _depth({"a": [(first, third), (second, fourth)]}, type_).maximum == 2


def test_booleans_are_ranked():
    depth = _depth({"a": [(False, False), (True, True)]}, pa.bool_())

    assert depth.average == 1


def test_nan_is_no_bound():
    nan = float("nan")

    assert _depth({"a": [(0.0, 1.0), (nan, nan)]}, pa.float64()).by_file.tolist() == [2, 2]


def test_a_greatest_text_that_may_have_been_cut_reaches_what_it_begins():
    cut, longer = "x" * 32, "x" * 33

    assert _depth({"a": [("a", cut), (longer, "z")]}, pa.string()).maximum == 2
    assert _depth({"a": [("a", "x" * 5), ("x" * 6, "z")]}, pa.string()).maximum == 1


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_greatest_time_reaches_a_millisecond_further(unit):
    cut, later, much_later = (NOON + dt.timedelta(microseconds=at) for at in (0, 900, 5_000))
    type_ = pa.timestamp(unit)

    assert _depth({"a": [(cut, cut), (later, much_later)]}, type_).maximum == 2
    assert _depth({"a": [(cut, cut), (much_later, much_later)]}, type_).maximum == 1


def test_a_partition_column_holds_one_value_a_file():
    partition = pa.StructArray.from_arrays([pa.array(["eu", "us", "eu", None])], ["region"])
    files = pa.table({"rows": [10] * 4, "partition": partition})

    depth = overlap_depth(extents_of(files, ["region"]))

    assert depth.by_file.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("width", [1, 100, 10_000, 2_000_000])
def test_the_grid_counts_about_what_pairs_of_files_say(columns, width):
    random = np.random.default_rng(columns)
    lows = random.integers(0, 10**6, (columns, 4_000))
    bounds = {f"c{i}": [(low, low + width) for low in column] for i, column in enumerate(lows)}
    extents = extents_of(files_between(bounds), list(bounds))

    about = np.maximum(overlap._gridded(extents), 1).mean()

    assert about == pytest.approx(overlap._paired(extents).mean(), rel=0.25)


def test_a_coarse_grid_sees_files_apart_that_one_column_keeps_apart():
    starts = np.random.default_rng(7).permutation(5_000) * 10
    along_a_line = {name: list(zip(starts, starts + 5, strict=True)) for name in ("a", "b", "c")}

    depth = _depth(along_a_line)

    assert depth.by_file.tolist() == [1] * 5_000
    assert depth.maximum == 1


def test_a_coarse_grid_sees_that_files_lie_everywhere():
    random = np.random.default_rng(7)
    wide = {name: [(low, low + 900) for low in random.integers(0, 100, 5_000)] for name in "ab"}

    depth = _depth(wide)

    assert depth.average > 2_500
