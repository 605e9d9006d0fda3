"""Space-filling curves over ranks: rows that are close in all columns get close keys.

A key is one number of up to 64 bits that the columns share: eight columns get eight bits each.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from lakehand.model.order import Curve

    Ranks = NDArray[np.uint32]
    Keys = NDArray[np.uint64]

_KEY_BITS = 64
#: Each needs a bit of the key.
MAX_SORT_COLUMNS = _KEY_BITS
#: More would distinguish neighbours that end up in the same file anyway.
MAX_RANK_BITS = 10
#: Rows per chunk: their ranks fit into the processor's cache.
_CHUNK_ROWS = 16_384
#: A lookup table for more columns would be too large.
_PLANE_COLUMNS = 2


def bits_per_column(columns: int) -> int:
    """Return how many bits of a rank fit into a key.

    >>> [bits_per_column(columns) for columns in (1, 2, 4, 5, 64)]
    [10, 10, 10, 10, 1]
    """
    if not 1 <= columns <= _KEY_BITS:
        raise ValueError(f"a sort key has 1 to {_KEY_BITS} columns, not {columns}")
    return min(MAX_RANK_BITS, _KEY_BITS // columns)


def curve_keys(curve: Curve, ranks: Sequence[Ranks]) -> Keys:
    """Return the position of each row on the curve; ranks are below 2 ** `bits_per_column`."""
    return _CURVES[curve](ranks, bits_per_column(len(ranks)))


def zorder_keys(ranks: Sequence[Ranks], bits: int) -> Keys:
    """Interleave the bits of the ranks, starting with the first column.

    >>> zorder_keys([np.array([0, 0, 1, 1], np.uint32), np.array([0, 1, 0, 1], np.uint32)], 1)
    array([0, 1, 2, 3], dtype=uint64)
    """
    return _by_chunk(ranks, lambda chunk: _interleave(chunk, bits))


def hilbert_keys(ranks: Sequence[Ranks], bits: int) -> Keys:
    """Return positions on the Hilbert curve: neighbours on it differ by one step in one column.

    >>> hilbert_keys([np.array([0, 0, 1, 1], np.uint32), np.array([0, 1, 1, 0], np.uint32)], 1)
    array([0, 1, 2, 3], dtype=uint64)
    """
    if len(ranks) == _PLANE_COLUMNS and bits <= MAX_RANK_BITS:
        return _hilbert_plane(bits)[ranks[0], ranks[1]]
    return _by_chunk(ranks, lambda chunk: _interleave(_transposed(chunk, bits), bits))


def _linear_keys(ranks: Sequence[Ranks], bits: int) -> Keys:
    """Concatenate the ranks: the first column decides, the others break ties."""
    keys = np.zeros(len(ranks[0]), np.uint64)
    for column in ranks:
        keys = keys << np.uint64(bits) | column.astype(np.uint64)
    return keys


def _by_chunk(ranks: Sequence[Ranks], keys_of: Callable[[list[Ranks]], Keys]) -> Keys:
    rows = len(ranks[0])
    keys = np.empty(rows, np.uint64)
    for start in range(0, rows, _CHUNK_ROWS):
        chunk = [column[start : start + _CHUNK_ROWS].astype(np.uint32) for column in ranks]
        keys[start : start + _CHUNK_ROWS] = keys_of(chunk)
    return keys


def _interleave(ranks: Sequence[Ranks], bits: int) -> Keys:
    apart = _bits_apart(bits, len(ranks))
    keys = np.zeros(len(ranks[0]), np.uint64)
    for column in ranks:
        keys <<= np.uint64(1)
        keys |= apart[column]
    return keys


@lru_cache(maxsize=8)
def _bits_apart(bits: int, distance: int) -> Keys:
    """Return all numbers with this many bits, with gaps between their bits."""
    numbers = np.arange(2**bits, dtype=np.uint64)
    apart = np.zeros_like(numbers)
    for bit in range(bits):
        apart |= ((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * distance)
    return apart


@lru_cache(maxsize=2)
def _hilbert_plane(bits: int) -> Keys:
    """Return the keys of all pairs of ranks of two columns.

    Each level consists of four planes of the level below: two unchanged, one mirrored at either
    diagonal.
    """
    plane = np.zeros((1, 1), np.uint64)
    for _ in range(bits):
        size = np.uint64(plane.size)
        last = plane.T[::-1, ::-1] + np.uint64(3) * size
        plane = np.block([[plane.T, plane + size], [last, plane + np.uint64(2) * size]])
    return plane


def _transposed(ranks: list[Ranks], bits: int) -> list[Ranks]:
    """Turn coordinates into the bits of the curve position (Skilling 2004).

    Every level of the grid is a cube of half the size, mirrored or rotated relative to the one
    around it; undoing that from the coarsest level gives a Gray code over the columns.
    """
    _undo_turns(ranks, bits)
    for previous, column in pairwise(ranks):
        np.bitwise_xor(column, previous, out=column)
    flips = np.zeros(len(ranks[0]), np.uint32)
    for bit in range(bits - 1, 0, -1):
        flips ^= _all_ones_where_set(ranks[-1], bit) & _below(bit)
    for column in ranks:
        np.bitwise_xor(column, flips, out=column)
    return ranks


def _undo_turns(ranks: list[Ranks], bits: int) -> None:
    first = ranks[0]
    for bit in range(bits - 1, 0, -1):
        for column in ranks:
            mirrored = _all_ones_where_set(column, bit)
            swapped = (first ^ column) & _below(bit) & ~mirrored
            np.bitwise_xor(first, (mirrored & _below(bit)) | swapped, out=first)
            if column is not first:
                np.bitwise_xor(column, swapped, out=column)


def _all_ones_where_set(column: Ranks, bit: int) -> Ranks:
    """Return a mask for each rank; masks are much faster than selecting elements."""
    masks: Ranks = np.negative((column >> np.uint32(bit)) & np.uint32(1))
    return masks


def _below(bit: int) -> np.uint32:
    return np.uint32((1 << bit) - 1)


_CURVES: Mapping[Curve, Callable[[Sequence[Ranks], int], Keys]] = {
    "hilbert": hilbert_keys,
    "zorder": zorder_keys,
    "linear": _linear_keys,
}
