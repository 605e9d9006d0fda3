"""Chooses where rows along a curve are split into files, so that value ranges are small.

A curve turns after every few steps. A file that ends within a turn has a wide range in a column
because of a few rows, and queries read it needlessly. So file sizes may vary a little, and of all
possible boundaries those with the smallest value ranges are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lakehand.sorting.key_ranges import KeyRanges
from lakehand.sorting.sort_keys import SortKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakehand.model.order import Order
    from lakehand.sorting.curves import Ranks

    Numbers = NDArray[np.int64]

#: Possible boundaries per file, and by how many of them a file may be longer or shorter.
_PIECES, _MAX_LENGTH_CHANGE = 16, 4
#: Maximum distance of a boundary from its even position, caused by those before it.
_MAX_DRIFT = 8
#: With fewer sampled rows between two boundaries, their range is not reliable.
_MIN_PIECE_ROWS = 4


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Division:
    """Assigns rows to files, and to ranges that are sorted at once. Picklable."""

    sort_keys: SortKeys
    #: One per file.
    files: KeyRanges
    #: Several per file; none has rows of two files.
    ranges: KeyRanges

    @classmethod
    def of_sample(cls, order: Order, sample: pa.Table, *, files: int, ranges: int) -> Self:
        """Divide the rows that `sample` represents into about this many files and ranges."""
        sort_keys = SortKeys.of_sample(order, sample)
        keys = sort_keys.keys(sample)
        cuts = KeyRanges.of_sample(keys, count=files)
        if order.curve != "linear" and files > 1:
            permutation = np.argsort(keys, kind="stable")
            starts = narrow_starts(
                [column[permutation] for column in sort_keys.ranks(sample)], files
            )
            cuts = KeyRanges.at(keys[permutation[starts[1:]]])
        return cls(
            sort_keys=sort_keys,
            files=cuts,
            ranges=KeyRanges.of_sample(keys, count=ranges).divided(cuts),
        )


def narrow_starts(ranks: Sequence[Ranks], count: int) -> Numbers:
    """Return where `count` files of sorted rows start; `ranks` are those of each column.

    The files have about equal length and small ranges, so that lookups in one or two columns read
    as few files as possible.
    """
    rows = len(ranks[0])
    if count == 1 or rows < count * _PIECES * _MIN_PIECE_ROWS:
        return np.arange(count) * rows // count
    edges = np.arange(count * _PIECES + 1) * rows // (count * _PIECES)
    return edges[_best_cuts(_file_costs(ranks, edges), count)]


def _file_costs(ranks: Sequence[Ranks], edges: Numbers) -> NDArray[np.float64]:
    """Return the cost of a file for each length and each first piece.

    The cost is the fraction of lookups that read the file, summed over columns and pairs of
    columns.
    """
    low = [np.minimum.reduceat(column, edges[:-1]) for column in ranks]
    high = [np.maximum.reduceat(column, edges[:-1]) for column in ranks]
    costs = np.full((2 * _MAX_LENGTH_CHANGE + 1, len(edges) - 1), np.inf)
    for row, length in enumerate(
        range(_PIECES - _MAX_LENGTH_CHANGE, _PIECES + _MAX_LENGTH_CHANGE + 1)
    ):
        widths = [_widths(*bounds, length) for bounds in zip(low, high, strict=True)]
        found = sum(widths) + sum(one * other for one, other in combinations(widths, 2))
        costs[row, : len(widths[0])] = found
    return costs


def _widths(low: Ranks, high: Ranks, length: int) -> NDArray[np.float64]:
    """Return the fraction of all ranks that runs of this many pieces span, for each first piece."""
    least = sliding_window_view(low, length).min(axis=1)
    most = sliding_window_view(high, length).max(axis=1)
    widths: NDArray[np.float64] = (most - least) / max(1, int(high.max()) - int(low.min()))
    return widths


def _best_cuts(costs: NDArray[np.float64], count: int) -> Numbers:
    """Return the first piece of each of `count` files with the lowest total cost.

    For the n-th boundary, and each offset from its even position, the best path comes from one of
    the offsets of the previous boundary.
    """
    drifts = np.arange(-_MAX_DRIFT, _MAX_DRIFT + 1)
    totals = np.where(drifts == 0, 0.0, np.inf)
    came_from = np.zeros((count, len(drifts)), np.int64)
    longer = drifts[:, None] - drifts[None, :]
    is_allowed = np.abs(longer) <= _MAX_LENGTH_CHANGE
    rows = np.where(is_allowed, longer + _MAX_LENGTH_CHANGE, 0)
    for number in range(count):
        starts = np.clip(number * _PIECES + drifts, 0, costs.shape[1] - 1)
        ways = np.where(is_allowed, totals[None, :] + costs[rows, starts[None, :]], np.inf)
        came_from[number] = ways.argmin(axis=1)
        totals = ways.min(axis=1)
    return _way_back(came_from) + np.arange(count) * _PIECES


def _way_back(came_from: Numbers) -> Numbers:
    """Return the offsets of the boundaries, from the last, which is 0, to the first."""
    drifts = np.zeros(len(came_from), np.int64)
    state = _MAX_DRIFT
    for number in range(len(came_from) - 1, -1, -1):
        state = came_from[number, state]
        drifts[number] = state - _MAX_DRIFT
    return drifts
