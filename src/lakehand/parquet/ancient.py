"""Whether a file may hold dates so old that two calendars disagree about them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    Footer,
    StatisticsField,
    chunks,
    field,
)
from lakehand.parquet.leaves import INT32, INT64, INT96, Leaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.parquet.thrift import Struct

#: Both calendars agree from 1582-10-15 on for dates, from 1900-01-01 on for instants in any zone.
FIRST_MODERN_DAY = -141_427
FIRST_MODERN_SECOND = -2_208_988_800
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def may_hold_ancient_values(footer: Footer, leaves: Sequence[Leaf]) -> bool:
    """Say whether some value may be older than both calendars agree on.

    Only bounds in the footer prove the contrary; where there are none, the answer is yes.
    """
    calendar_columns = [index for index, leaf in enumerate(leaves) if leaf.is_calendar]
    return any(
        _chunk_may_be_ancient(chunks(row_group)[index], leaves[index])
        for row_group in footer.row_groups
        for index in calendar_columns
    )


def _chunk_may_be_ancient(chunk: Struct, leaf: Leaf) -> bool:
    if leaf.physical_type == INT96:
        return True
    column = field(chunk, ChunkField.METADATA, {})
    statistics = field(column, ColumnField.STATISTICS, {})
    if field(statistics, StatisticsField.NULLS) == field(column, ColumnField.VALUES):
        return False
    smallest = _smallest(statistics, leaf.physical_type)
    return smallest is None or smallest < _first_modern(leaf)


def _smallest(statistics: Struct, physical_type: int) -> int | None:
    old = field(statistics, StatisticsField.OLD_MIN)
    data = field(statistics, StatisticsField.MIN, old)
    form = {INT32: "<i", INT64: "<q"}.get(physical_type)
    if data is None or form is None or len(data) != struct.calcsize(form):
        return None
    return int(struct.unpack(form, data)[0])


def _first_modern(leaf: Leaf) -> int:
    if leaf.meaning == ("date",):
        return FIRST_MODERN_DAY
    return FIRST_MODERN_SECOND * _PER_SECOND[leaf.meaning[1]]
