"""The calendar of a file's dates and timestamps, by Spark's rules for the footer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakehand.parquet.footer import ChunkField, ColumnField, Footer, StatisticsField, chunks, field
from lakehand.parquet.leaves import INT32, INT64, INT96, Leaf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.parquet.thrift import Struct


VERSION_KEY = "org.apache.spark.version"
TIME_ZONE_KEY = "org.apache.spark.timeZone"
LEGACY_DATETIME_KEY = "org.apache.spark.legacyDateTime"
LEGACY_INT96_KEY = "org.apache.spark.legacyINT96"
#: Keys that decide how values are read: they are copied with the row groups.
MARKER_KEYS = (VERSION_KEY, TIME_ZONE_KEY, LEGACY_DATETIME_KEY, LEGACY_INT96_KEY)

Calendar = Literal["legacy", "corrected", "unknown"]
_CORRECTED_DATETIME_SINCE = "3.0.0"
_CORRECTED_INT96_SINCE = "3.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarClass:
    """How Spark reads the dates and timestamps of a file."""

    datetime: Calendar
    int96: Calendar
    #: Time zone of the rebase of legacy values; None if there are none.
    time_zone: str | None


def calendar_class(key_values: Mapping[str, str | None]) -> CalendarClass:
    """Return the calendar class of a file's key-value metadata."""
    datetime = _calendar(key_values, LEGACY_DATETIME_KEY, _CORRECTED_DATETIME_SINCE)
    int96 = _calendar(key_values, LEGACY_INT96_KEY, _CORRECTED_INT96_SINCE)
    is_legacy = "legacy" in (datetime, int96)
    time_zone = key_values.get(TIME_ZONE_KEY) if is_legacy else None
    return CalendarClass(datetime=datetime, int96=int96, time_zone=time_zone)


def _calendar(key_values: Mapping[str, str | None], marker: str, since: str) -> Calendar:
    version = key_values.get(VERSION_KEY)
    if version is None:
        return "unknown"
    # Spark compares the version as a string, so this must as well.
    return "legacy" if version < since or marker in key_values else "corrected"


#: Both calendars agree from 1582-10-15 for dates, and from 1900-01-01 for timestamps in any zone.
FIRST_MODERN_DAY = -141_427
FIRST_MODERN_SECOND = -2_208_988_800
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def may_contain_old_dates(footer: Footer, leaves: Sequence[Leaf]) -> bool:
    """Return whether a value may be older than the date from which both calendars agree.

    Only bounds in the footer can exclude it; without bounds the answer is True.
    """
    calendar_columns = [index for index, leaf in enumerate(leaves) if leaf.is_calendar]
    return any(
        _chunk_may_have_old_dates(chunks(row_group)[index], leaves[index])
        for row_group in footer.row_groups
        for index in calendar_columns
    )


def _chunk_may_have_old_dates(chunk: Struct, leaf: Leaf) -> bool:
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
