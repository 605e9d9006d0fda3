"""Overlap depth of files, computed by a sweep line in one column, or in several columns.

The depth of a file is the number of files that contain the middle of its range, including itself:
what a query for a value there reads. In one column a sweep line counts them: the files that have
started by then, minus those that have ended before. In several columns, a few thousand files are
compared with each other; more are counted on a grid: a file adds one at its first cell, subtracts
one after its last cell in each column, and cumulative sums give the files over each cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakehand.planning.file_bounds import Extent

    Numbers = NDArray[np.int64]

#: Up to this many files are compared pair by pair in several columns.
_MAX_PAIRED_FILES = 4096
#: Files that are compared with all others at a time.
_PAIRED_CHUNK = 256
#: Cells of the grid for more files.
_MAX_CELLS = 2**20


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Depth:
    """Overlap depth of files; 1 for a file that no other file overlaps at its middle."""

    #: The mean over the files with values; 0 if there are none.
    average: float
    #: The maximum over the files.
    maximum: int
    #: For each file, how many files contain the middle of its range; 0 for a file without values.
    by_file: Numbers


def overlap_depth(extents: Sequence[Extent]) -> Depth:
    """Return the overlap depth of files in all columns of `extents` together.

    Exact for one column, and for several up to 4,096 files. Beyond that, files are counted at the
    middle of the nearest cell of a grid.
    """
    has_values = np.logical_and.reduce([extent.has_values for extent in extents])
    by_file = np.zeros(len(has_values), np.int64)
    if not has_values.any():
        return Depth(average=0.0, maximum=0, by_file=by_file)
    by_file[has_values] = _depths([_only(extent, has_values) for extent in extents])
    average = float(by_file[has_values].mean())
    return Depth(average=average, maximum=int(by_file.max()), by_file=by_file)


def overlapping_files(extent: Extent) -> Numbers:
    """Return for each file how many others overlap it in one column."""
    # All but those that start after its end and those that end before its start.
    begun, ended = _begun_and_ended(_only(extent, extent.has_values))
    counts = begun[extent.high + 1] - ended[extent.low] - 1
    return np.where(extent.has_values, counts, 0)


def _begun_and_ended(extent: Extent) -> tuple[Numbers, Numbers]:
    """Return how many files start, and how many end, below each rank."""
    counts = (np.bincount(ends, minlength=extent.rank_count) for ends in (extent.low, extent.high))
    begun, ended = (np.concatenate([[0], np.cumsum(count)]) for count in counts)
    return begun, ended


def _only(extent: Extent, chosen: NDArray[np.bool_]) -> Extent:
    return replace(extent, low=extent.low[chosen], high=extent.high[chosen])


def _depths(extents: Sequence[Extent]) -> Numbers:
    if len(extents) == 1:
        return _swept(extents[0])
    if len(extents[0].low) <= _MAX_PAIRED_FILES:
        return _paired(extents)
    # A file may be so narrow that it contains the middle of no cell; but it contains its own.
    return np.maximum(_gridded(extents), 1)


def _swept(extent: Extent) -> Numbers:
    begun, ended = _begun_and_ended(extent)
    # The middle of a range may be between two ranks.
    doubled = extent.low + extent.high
    depths: Numbers = begun[doubled // 2 + 1] - ended[(doubled + 1) // 2]
    return depths


def _paired(extents: Sequence[Extent]) -> Numbers:
    starts = range(0, len(extents[0].low), _PAIRED_CHUNK)
    chunks = (slice(start, start + _PAIRED_CHUNK) for start in starts)
    return np.concatenate([_held_against_all(extents, chunk) for chunk in chunks])


def _held_against_all(extents: Sequence[Extent], chunk: slice) -> Numbers:
    holds = np.ones((1, 1), np.bool_)
    for each in extents:
        middles = (each.low + each.high)[chunk, None]
        holds = holds & (2 * each.low <= middles) & (middles <= 2 * each.high)
    depths: Numbers = np.count_nonzero(holds, axis=1)
    return depths


def _gridded(extents: Sequence[Extent]) -> Numbers:
    """Return how many files cover the cell that contains the middle of each file."""
    shape = _grid_shape([extent.rank_count for extent in extents])
    # One more cell on each side, for the subtraction after files at the edge.
    padded = tuple(side + 1 for side in shape)
    steps = np.zeros(math.prod(padded), np.int64)
    sides = [_side(each, side) for each, side in zip(extents, shape, strict=True)]
    for ends in product((0, 1), repeat=len(shape)):
        corner = tuple(side[end] for side, end in zip(sides, ends, strict=True))
        counts = np.bincount(np.ravel_multi_index(corner, padded), minlength=len(steps))
        steps += (-1) ** sum(ends) * counts
    depths = steps.reshape(padded)
    for axis in range(len(shape)):
        np.cumsum(depths, axis=axis, out=depths)
    pairs = zip(extents, shape, strict=True)
    middles = tuple(
        (each.low + each.high + 1) * side // (2 * each.rank_count) for each, side in pairs
    )
    found: Numbers = depths[middles]
    return found


def _side(extent: Extent, cells: int) -> tuple[Numbers, Numbers]:
    """Return the first cell whose middle a file contains, and the first after those it covers."""
    scale = cells / extent.rank_count
    start = np.ceil((extent.low + 0.5) * scale - 0.5).astype(np.int64)
    end = np.floor((extent.high + 0.5) * scale - 0.5).astype(np.int64) + 1
    return start, np.maximum(end, start)


def _grid_shape(rank_counts: Sequence[int]) -> tuple[int, ...]:
    """Divide the cells among the columns; columns with few ranks leave more to the others."""
    sides = dict.fromkeys(range(len(rank_counts)), 1)
    left = float(_MAX_CELLS)
    for done, column in enumerate(sorted(sides, key=lambda column: rank_counts[column])):
        fair = max(1, math.floor(left ** (1 / (len(sides) - done)) + 1e-9))
        sides[column] = min(rank_counts[column], fair)
        left /= sides[column]
    return tuple(sides.values())
