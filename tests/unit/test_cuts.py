"""Where a curve is cut into files: about evenly, and so that the files are narrow."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from lakehand.model.order import order_of
from lakehand.sorting.file_boundaries import Division, narrow_starts
from lakehand.sorting.key_ranges import KeyRanges
from lakehand.sorting.sort_keys import SortKeys

NAMES = "abcd"


def points(columns, *, rows=20_000):
    lot = np.random.default_rng(columns)
    return pa.table({name: lot.integers(0, 10**6, rows) for name in NAMES[:columns]})


def ranks_along(curve, rows):
    keys = SortKeys.of_sample(order_of(rows.column_names, curve), rows)
    places = np.argsort(keys.keys(rows), kind="stable")
    return [column[places] for column in keys.ranks(rows)]


def cost(ranks, starts):
    """Return the share of questions for one value that read a file, summed over all files."""
    ends = [*starts[1:], len(ranks[0])]
    total = 0.0
    for start, end in zip(starts, ends, strict=True):
        widths = [np.ptp(column[start:end]) / np.ptp(column) for column in ranks]
        total += sum(widths) + sum(one * other for one, other in combinations(widths, 2))
    return total


@pytest.mark.parametrize("curve", ["hilbert", "zorder"])
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_files_are_narrower_than_those_cut_evenly(columns, curve):
    ranks = ranks_along(curve, points(columns))
    even = np.arange(48) * 20_000 // 48

    starts = narrow_starts(ranks, 48)

    assert (len(starts), starts[0]) == (48, 0)
    lengths = np.diff(np.append(starts, 20_000))
    assert lengths.min() >= 0.74 * 20_000 / 48
    assert lengths.max() <= 1.26 * 20_000 / 48
    assert cost(ranks, starts) < 0.97 * cost(ranks, even)


def test_no_other_cut_between_two_files_is_better():
    ranks = ranks_along("hilbert", points(2))

    [_, cut] = narrow_starts(ranks, 2)

    edges = np.arange(33) * 20_000 // 32
    allowed = edges[12:21]
    assert cost(ranks, [0, cut]) == min(cost(ranks, [0, other]) for other in allowed)


def test_a_sample_of_too_few_rows_is_cut_evenly():
    ranks = ranks_along("hilbert", points(2, rows=100))

    assert narrow_starts(ranks, 10).tolist() == list(range(0, 100, 10))


@pytest.mark.parametrize("value", [7, None])
def test_rows_that_are_all_alike_stay_together(value):
    rows = pa.table({name: pa.array([value] * 10_000, pa.int64()) for name in "ab"})

    division = Division.of_sample(order_of(["a", "b"], "hilbert"), rows, files=8, ranges=64)

    keys = division.sort_keys.keys(rows)
    assert len(np.unique(division.files.number(keys))) == 1
    assert len(np.unique(division.ranges.number(keys))) == 1


def test_a_range_never_has_rows_of_two_files():
    rows = points(3)
    division = Division.of_sample(order_of(list("abc"), "hilbert"), rows, files=20, ranges=33)

    keys = division.sort_keys.keys(rows)

    owners = division.ranges.owners(division.files)
    assert (owners[division.ranges.number(keys)] == division.files.number(keys)).all()


@pytest.mark.parametrize("most", [1, 3, 7, 20, 100])
def test_neighbouring_files_are_joined_to_no_more_parts_than_allowed(most):
    rows = points(2)
    files = Division.of_sample(order_of(["a", "b"], "hilbert"), rows, files=20, ranges=1).files

    parts = files.joined(most)

    assert len(parts) <= most
    assert set(parts.starts) <= set(files.starts)
    sizes = np.bincount(files.owners(parts))
    assert sizes[:-1].size == 0 or set(sizes[:-1]) == {sizes[0]}


@pytest.mark.parametrize("count", [1, 255, 256, 65_535, 65_536, 65_537, 200_000])
def test_however_many_ranges_there_are_they_are_told_apart(count):
    ranges = KeyRanges.at(np.arange(1, count, dtype=np.uint64))

    numbers = ranges.number(np.arange(count, dtype=np.uint64))

    assert (numbers == np.arange(count)).all()
