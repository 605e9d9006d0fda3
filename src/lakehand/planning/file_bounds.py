"""Minimum and maximum values of a column per file, as far as recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import UnknownColumnError
from lakehand.expressions.column_facts import comparable_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ranks = NDArray[np.int64]
    Flags = NDArray[np.bool_]

#: Writers may have truncated a maximum string of this length without saying so.
_CUT_TEXT_BYTES = 32
#: Appended to a truncated string, this is above every continuation of it.
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ValueBounds:
    """The minimum and maximum of one column, file by file.

    Bounds may be wider than the values, never narrower; an unknown bound is null.
    """

    low: pa.Array
    high: pa.Array
    #: Files without a value in this column: all their rows are null, or they have none.
    is_empty: Flags


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Extent:
    """Value ranges of files in one column, as ranks of the bounds: equal values have equal ranks.

    An unknown bound has the outermost rank. A file without values has `low > high`.
    """

    low: Ranks
    high: Ranks
    #: Ranks go from 0 to one below this.
    rank_count: int

    @property
    def has_values(self) -> Flags:
        holds: Flags = self.low <= self.high
        return holds


def value_bounds(files: pa.Table, column: str) -> ValueBounds:
    """Return the bounds of `column` in a table with `rows`, `partition` and `bounds`.

    The table is that of a snapshot with statistics of `column`; partition columns need none.
    """
    partition = _member(files, "partition", column)
    if partition is not None:
        value = partition.combine_chunks()
        return ValueBounds(low=value, high=value, is_empty=_flags(value.is_null()))
    bounds = _member(files, "bounds", column)
    if bounds is None:
        raise UnknownColumnError(column, files.schema.field("bounds").type.names)
    low, high = (side.combine_chunks() for side in comparable_bounds(bounds))
    nulls = pc.struct_field(bounds, "nulls")
    only_nulls = pc.fill_null(pc.greater_equal(nulls, files["rows"]), False)  # noqa: FBT003
    return ValueBounds(
        low=low, high=_past_cut(high.cast(low.type)), is_empty=_flags(only_nulls.combine_chunks())
    )


def extents_of(files: pa.Table, columns: Sequence[str]) -> list[Extent]:
    """Return the value ranges of the files in each of `columns`."""
    return [_extent(value_bounds(files, column)) for column in columns]


def dense_ranks(values: pa.Array) -> tuple[Ranks, int]:
    """Return the rank of each value from 0, -1 for nulls, and the number of ranks."""
    ranks = np.full(len(values), -1, np.int64)
    ranks[_flags(values.is_valid())] = _ranked(values.drop_null())
    return ranks, int(ranks.max(initial=-1)) + 1


def _ranked(values: pa.Array) -> Ranks:
    ranks: Ranks
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        # For numbers, NumPy takes half of Arrow's time.
        _, ranks = np.unique(np.from_dlpack(values), return_inverse=True)
    else:
        ranks = np.from_dlpack(pc.rank(values, tiebreaker="dense")).astype(np.int64) - 1
    return ranks


def _extent(bounds: ValueBounds) -> Extent:
    ranks, count = dense_ranks(pa.concat_arrays([bounds.low, bounds.high]))
    return extent_of_ranks(bounds, ranks, rank_count=max(count, 1))


def extent_of_ranks(bounds: ValueBounds, ranks: Ranks, *, rank_count: int) -> Extent:
    """Make an extent of the ranks of all lower bounds, followed by those of all upper bounds."""
    files = len(bounds.is_empty)
    low, high = np.maximum(ranks[:files], 0), ranks[files : 2 * files].copy()
    last = rank_count - 1
    high[high < 0] = last
    # Bounds in the wrong order are treated as unknown, and an unknown range is never skipped.
    is_broken = low > high
    low[is_broken], high[is_broken] = 0, last
    low[bounds.is_empty], high[bounds.is_empty] = 1, 0
    return Extent(low=low, high=high, rank_count=rank_count)


def _past_cut(high: pa.Array) -> pa.Array:
    if not (pa.types.is_string(high.type) or pa.types.is_large_string(high.type)):
        return high
    may_be_cut = pc.greater_equal(pc.binary_length(high), _CUT_TEXT_BYTES)
    last, nothing = pa.scalar(_LAST_CHARACTER, high.type), pa.scalar("", high.type)
    beyond = pc.binary_join_element_wise(high, last, nothing)
    return pc.if_else(may_be_cut, beyond, high)


def _member(files: pa.Table, struct: str, name: str) -> pa.ChunkedArray | None:
    """Return a field of a struct; its name is case-insensitive, as in SQL."""
    if struct not in files.schema.names:
        return None
    names = [field.name.lower() for field in files.schema.field(struct).type]
    return (
        pc.struct_field(files[struct], names.index(name.lower())) if name.lower() in names else None
    )


def _flags(values: pa.Array) -> Flags:
    # Converted to integers, because Arrow's conversion of booleans loads pandas.
    return np.from_dlpack(values.cast(pa.uint8())).astype(np.bool_)
