"""Bounds of a leaf column from the footer, as far as they are reliable.

A missing bound costs a reader time; a wrong one costs rows. So there is none where writers are
known to disagree: INT96, unsigned integers, decimals in bytes, orders other than the type's,
truncated values.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.parquet.footer import ChunkField, ColumnField, Footer, StatisticsField, chunks, field
from lakehand.parquet.leaves import BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64, Leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.parquet.thrift import Struct

_FORMS = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
_TYPE_ORDER = 1
_REPEATED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Bounds of a leaf over some row groups, as stored: numbers, or the bytes of a string.

    None if the footer has none, and if all values are null.
    """

    minimum: Any = None
    maximum: Any = None
    #: Number of nulls.
    nulls: int | None = None


def leaf_bounds(footer: Footer, index: int, leaf: Leaf, row_groups: Sequence[int]) -> Bounds:
    """Return the footer's bounds of leaf number `index` over the given row groups."""
    if any(repetition == _REPEATED for repetition, _ in leaf.shape):
        return Bounds()
    groups = footer.row_groups
    columns = [field(chunks(groups[n])[index], ChunkField.METADATA) for n in row_groups]
    statistics = [field(column, ColumnField.STATISTICS, {}) for column in columns]
    nulls = [field(found, StatisticsField.NULLS) for found in statistics]
    counted = [field(column, ColumnField.VALUES) for column in columns]
    with_values = [
        found
        for found, missing, rows in zip(statistics, nulls, counted, strict=True)
        if missing != rows
    ]
    is_ordered = _has_bounds(leaf) and _is_type_order(footer, index)
    kept = with_values if is_ordered else []
    return Bounds(
        minimum=_outermost(kept, leaf, StatisticsField.MIN, StatisticsField.MIN_EXACT, min),
        maximum=_outermost(kept, leaf, StatisticsField.MAX, StatisticsField.MAX_EXACT, max),
        nulls=None if None in nulls else sum(nulls),
    )


def _has_bounds(leaf: Leaf) -> bool:
    if leaf.physical_type == BYTE_ARRAY:
        return leaf.meaning == ("string",)
    is_unsigned = leaf.meaning[:1] == ("integer",) and leaf.meaning[2] is False
    return leaf.physical_type in _FORMS and not is_unsigned


def _is_type_order(footer: Footer, index: int) -> bool:
    orders = footer.column_orders
    return orders is not None and index < len(orders) and _TYPE_ORDER in orders[index]


def _outermost(
    statistics: Sequence[Struct],
    leaf: Leaf,
    bound: int,
    exact: int,
    choose: Callable[[Sequence[Any]], Any],
) -> Any:
    values = [_value(found, leaf, bound, exact) for found in statistics]
    return choose(values) if values and None not in values else None


def _value(statistics: Struct, leaf: Leaf, bound: int, exact: int) -> Any:
    data = field(statistics, bound)
    if leaf.physical_type == BYTE_ARRAY:
        # A truncated string is still a bound.
        return data
    form = _FORMS[leaf.physical_type]
    is_sound = data is not None and len(data) == struct.calcsize(form)
    if not is_sound or field(statistics, exact, default=True) is False:
        return None
    value = struct.unpack(form, data)[0]
    # A NaN bound shows that the writer did not know how to order them.
    return value if value == value else None  # noqa: PLR0124
