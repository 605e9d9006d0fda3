"""The place of many numbers among a few boundaries, by a table in place of a search for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

__all__ = ["search_numbers"]

#: Cells of the table: far more than boundaries, so that few of them have one inside.
_CELL_BITS = 16
#: For fewer numbers the table is not worth making.
_LEAST_NUMBERS = 2**17


def search_numbers(
    boundaries: Numbers, numbers: Numbers, *, side: Literal["left", "right"]
) -> NDArray[np.int64]:
    """Do what `np.searchsorted` does, in a fraction of its time where numbers are many.

    The span of the boundaries is divided into cells of equal width. In most cells all numbers have
    the same place; only those in the others, and those beyond the boundaries, are searched for.
    """
    if len(numbers) < _LEAST_NUMBERS:
        return np.searchsorted(boundaries, numbers, side=side)
    low, span = int(boundaries[0]), int(boundaries[-1]) - int(boundaries[0])
    shift = max(0, span.bit_length() - _CELL_BITS)
    count = (span >> shift) + 1
    # What is below the first boundary wraps around, and so lies beyond the last one, too.
    base = np.uint64(low % 2**64)
    offsets = numbers.astype(np.uint64) - base
    cells = np.where(offsets <= np.uint64(span), offsets >> np.uint64(shift), np.uint64(count))
    starts = np.arange(count, dtype=np.uint64) << np.uint64(shift)
    ends = np.minimum(starts + np.uint64((1 << shift) - 1), np.uint64(span))
    first, last = (
        np.searchsorted(boundaries, (edges + base).astype(boundaries.dtype), side=side)
        for edges in (starts, ends)
    )
    found = np.append(first, 0)[cells]
    unsure = np.flatnonzero(np.append(first != last, [True])[cells])
    found[unsure] = np.searchsorted(boundaries, numbers[unsure], side=side)
    return found
