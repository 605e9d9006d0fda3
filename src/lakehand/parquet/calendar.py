"""Which calendar a file's dates and timestamps are in, as Spark decides it from the footer.

Spark 2 counted ancient days by the hybrid Julian calendar. Spark 3 marks files that still do so and
shifts their values on reading. The pages do not show it: two files with equal bytes and different
markers hold different dates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_KEY = "org.apache.spark.version"
TIME_ZONE_KEY = "org.apache.spark.timeZone"
LEGACY_DATETIME_KEY = "org.apache.spark.legacyDateTime"
LEGACY_INT96_KEY = "org.apache.spark.legacyINT96"
#: Keys that decide how values are read: they travel with the row groups.
MARKER_KEYS = (VERSION_KEY, TIME_ZONE_KEY, LEGACY_DATETIME_KEY, LEGACY_INT96_KEY)

Calendar = Literal["legacy", "corrected", "unknown"]
_CORRECTED_DATETIME_SINCE = "3.0.0"
_CORRECTED_INT96_SINCE = "3.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarClass:
    """How Spark reads the dates and timestamps of a file."""

    datetime: Calendar
    int96: Calendar
    #: Zone by which legacy values are shifted; None where none is legacy.
    time_zone: str | None


def calendar_class(key_values: Mapping[str, str | None]) -> CalendarClass:
    """Return the calendar class that a file's key-value metadata gives it."""
    datetime = _calendar(key_values, LEGACY_DATETIME_KEY, _CORRECTED_DATETIME_SINCE)
    int96 = _calendar(key_values, LEGACY_INT96_KEY, _CORRECTED_INT96_SINCE)
    is_legacy = "legacy" in (datetime, int96)
    time_zone = key_values.get(TIME_ZONE_KEY) if is_legacy else None
    return CalendarClass(datetime=datetime, int96=int96, time_zone=time_zone)


def _calendar(key_values: Mapping[str, str | None], marker: str, since: str) -> Calendar:
    version = key_values.get(VERSION_KEY)
    if version is None:
        return "unknown"
    # Spark compares the version as text, so this must too.
    return "legacy" if version < since or marker in key_values else "corrected"
