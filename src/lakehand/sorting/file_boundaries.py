"""Where rows along a curve are cut into files, so that each file is as narrow as can be.

A curve turns after every few steps. A file that is cut in the middle of a turn is wide in a column
for the sake of a few rows, and questions read it for nothing. So files may be a little larger and
smaller than one another, and of all ways to cut them that one is taken whose files are narrowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lakehand.sorting.ranges import KeyRanges
from lakehand.sorting.sort_keys import SortKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakehand.model.order import Order
    from lakehand.sorting.curves import Ranks

    Numbers = NDArray[np.int64]

__all__ = ["Division", "narrow_starts"]

#: Places a file where it may end, and how many of them it may be longer or shorter.
_PIECES, _MOST_LONGER = 16, 4
#: So far from its even place a cut may be moved by those before it.
_MOST_DRIFT = 8
#: With fewer rows of the sample between two places, its bounds say nothing.
_LEAST_PIECE_ROWS = 4


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Division:
    """Which rows go into which file, and into which range that is sorted at once. Picklable."""

    sort_keys: SortKeys
    #: One for each file.
    files: KeyRanges
    #: Several for each file; none has rows of two.
    ranges: KeyRanges

    @classmethod
    def of_sample(cls, order: Order, sample: pa.Table, *, files: int, ranges: int) -> Self:
        """Divide rows of which `sample` has some into about so many files and ranges."""
        sort_keys = SortKeys.of_sample(order, sample)
        keys = sort_keys.keys(sample)
        cuts = KeyRanges.of_sample(keys, count=files)
        if order.curve != "linear" and files > 1:
            places = np.argsort(keys, kind="stable")
            starts = narrow_starts([column[places] for column in sort_keys.ranks(sample)], files)
            cuts = KeyRanges.at(keys[places[starts[1:]]])
        return cls(
            sort_keys=sort_keys,
            files=cuts,
            ranges=KeyRanges.of_sample(keys, count=ranges).divided(cuts),
        )


def narrow_starts(ranks: Sequence[Ranks], count: int) -> Numbers:
    """Return where `count` files of rows in their order begin; `ranks` are those of each column.

    The files are about equally long, and narrow: questions for one value, in a column or in two,
    read as few of them as cuts can bring about.
    """
    rows = len(ranks[0])
    if count == 1 or rows < count * _PIECES * _LEAST_PIECE_ROWS:
        return np.arange(count) * rows // count
    edges = np.arange(count * _PIECES + 1) * rows // (count * _PIECES)
    return edges[_best_cuts(_file_costs(ranks, edges), count)]


def _file_costs(ranks: Sequence[Ranks], edges: Numbers) -> NDArray[np.float64]:
    """Return for each length, and each piece to begin with, what such a file costs.

    It is how many questions for one value read the file, as shares summed over columns and pairs.
    """
    low = [np.minimum.reduceat(column, edges[:-1]) for column in ranks]
    high = [np.maximum.reduceat(column, edges[:-1]) for column in ranks]
    costs = np.full((2 * _MOST_LONGER + 1, len(edges) - 1), np.inf)
    for row, length in enumerate(range(_PIECES - _MOST_LONGER, _PIECES + _MOST_LONGER + 1)):
        widths = [_widths(*bounds, length) for bounds in zip(low, high, strict=True)]
        found = sum(widths) + sum(one * other for one, other in combinations(widths, 2))
        costs[row, : len(widths[0])] = found
    return costs


def _widths(low: Ranks, high: Ranks, length: int) -> NDArray[np.float64]:
    """Return which part of all ranks so many neighbouring pieces span, for each first one."""
    least = sliding_window_view(low, length).min(axis=1)
    most = sliding_window_view(high, length).max(axis=1)
    widths: NDArray[np.float64] = (most - least) / max(1, int(high.max()) - int(low.min()))
    return widths


def _best_cuts(costs: NDArray[np.float64], count: int) -> Numbers:
    """Return the first piece of each of `count` files that cost least together.

    For the n-th cut, and each drift from its even place, the best way there comes from one of the
    drifts of the cut before.
    """
    drifts = np.arange(-_MOST_DRIFT, _MOST_DRIFT + 1)
    totals = np.where(drifts == 0, 0.0, np.inf)
    came_from = np.zeros((count, len(drifts)), np.int64)
    longer = drifts[:, None] - drifts[None, :]
    is_allowed = np.abs(longer) <= _MOST_LONGER
    rows = np.where(is_allowed, longer + _MOST_LONGER, 0)
    for number in range(count):
        starts = np.clip(number * _PIECES + drifts, 0, costs.shape[1] - 1)
        ways = np.where(is_allowed, totals[None, :] + costs[rows, starts[None, :]], np.inf)
        came_from[number] = ways.argmin(axis=1)
        totals = ways.min(axis=1)
    return _way_back(came_from) + np.arange(count) * _PIECES


def _way_back(came_from: Numbers) -> Numbers:
    """Return the drifts at which files begin, from the last cut, which has none, to the first."""
    drifts = np.zeros(len(came_from), np.int64)
    place = _MOST_DRIFT
    for number in range(len(came_from) - 1, -1, -1):
        place = came_from[number, place]
        drifts[number] = place - _MOST_DRIFT
    return drifts
