"""Numbers that occur more than once among many: where they are, in a bounded number of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["BYTES_A_ROW", "has_turn", "with_twins"]

#: What a number takes while it is compared, with twelve bytes that come with it.
BYTES_A_ROW = 64
_HALF = np.uint64(32)
#: Beyond one in so many, all numbers are sorted with their places.
_FEW = 16
#: Bits of a map of numbers for each one that is in it; and of all, at most.
_MAP_BITS, _MOST_MAP_BITS = 6, 27


def has_turn(hashes: npt.NDArray[np.uint64], turn: int, *, turns: int) -> npt.NDArray[np.bool_]:
    """Say which hashes are compared in a turn. Equal ones have the same, and each has one."""
    # By the upper half: whose hashes these are was told by what is left of a division.
    found: npt.NDArray[np.bool_] = (hashes >> _HALF) % np.uint64(turns) == np.uint64(turn)
    return found


def with_twins(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the places of hashes that occur more than once, ascending."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) * _FEW > len(hashes):
        return _by_order(hashes)
    return _by_map(hashes, repeated) if len(repeated) else np.empty(0, np.int64)


def _by_order(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    places = np.argsort(hashes)
    ordered = hashes[places]
    is_next = ordered[1:] == ordered[:-1]
    is_twin = np.zeros(len(hashes), np.bool_)
    is_twin[1:] |= is_next
    is_twin[:-1] |= is_next
    return np.sort(places[is_twin])


def _by_map(
    hashes: npt.NDArray[np.uint64], repeated: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Look all hashes up in a small map, and what it does not rule out among those `repeated`."""
    bits = min(len(repeated).bit_length() + _MAP_BITS, _MOST_MAP_BITS)
    shift = np.uint64(64 - bits)
    is_possible = np.zeros(2**bits, np.bool_)
    is_possible[repeated >> shift] = True
    places = np.flatnonzero(is_possible[hashes >> shift])
    possible = hashes[places]
    found = np.minimum(np.searchsorted(repeated, possible), len(repeated) - 1)
    twins: npt.NDArray[np.int64] = places[repeated[found] == possible]
    return twins
