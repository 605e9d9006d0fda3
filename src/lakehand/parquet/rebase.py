"""Calendar markers of re-encoded files, and the values that they exclude.

Re-encoding keeps the integers of dates and timestamps. Their meaning stays the same only if the
outputs have the markers of the inputs, or if no value is so old that the calendars differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import RefusedError
from lakehand.parquet.calendar import (
    LEGACY_DATETIME_KEY,
    TIME_ZONE_KEY,
    VERSION_KEY,
    CalendarClass,
    calendar_class,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.parquet.footer_facts import FileFacts

# Both calendars agree from here on: for dates, and for timestamps in every zone.
_FIRST_MODERN_DAY = date(1582, 10, 15)
_FIRST_MODERN_TIME = datetime(1900, 1, 1, tzinfo=UTC)
_OLDEST_TRUSTED_VERSION = "3.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecodedCalendar:
    """The calendar markers of the outputs of a re-encoding."""

    #: For the footers of the outputs.
    key_values: Mapping[str, str]
    #: Whether the markers are valid only for values on which all calendars agree.
    modern_values_only: bool
    #: Whether readers rebase old dates of some inputs.
    is_legacy: bool

    @classmethod
    def of(cls, inputs: Sequence[FileFacts]) -> RecodedCalendar:
        """Keep the calendar class that all inputs share; otherwise require modern values."""
        classes = {_recoded_class(facts) for facts in inputs}
        versions = sorted(v for facts in inputs if (v := facts.key_values.get(VERSION_KEY)))
        shared = classes.pop() if len(classes) == 1 else None
        if shared is not None:
            is_legacy = shared.datetime == "legacy"
            key_values = _markers(shared, versions)
            return cls(key_values=key_values, modern_values_only=False, is_legacy=is_legacy)
        is_trusted = versions and versions[-1] >= _OLDEST_TRUSTED_VERSION
        key_values = {VERSION_KEY: versions[-1]} if is_trusted else {}
        return cls(key_values=key_values, modern_values_only=bool(inputs), is_legacy=bool(inputs))


def recoded_calendar_name(key_values: Mapping[str, str | None], *, has_int96: bool) -> str:
    """Return the name of a file's calendar: files with equal names may be re-encoded into one."""
    return repr(_class_of(key_values, has_int96=has_int96))


def _recoded_class(facts: FileFacts) -> CalendarClass | None:
    """Return the calendar class of a file; None if INT96 columns have another one than the rest."""
    return _class_of(facts.key_values, has_int96=facts.has_int96)


def _class_of(key_values: Mapping[str, str | None], *, has_int96: bool) -> CalendarClass | None:
    found = calendar_class(key_values)
    if has_int96 and found.int96 != found.datetime:
        return None
    zone = found.time_zone if found.datetime == "legacy" else None
    return CalendarClass(datetime=found.datetime, int96=found.datetime, time_zone=zone)


def _markers(shared: CalendarClass, versions: Sequence[str]) -> dict[str, str]:
    if shared.datetime == "unknown":
        return {}
    markers = {VERSION_KEY: versions[-1]}
    if shared.datetime == "legacy":
        markers[LEGACY_DATETIME_KEY] = ""
    if shared.time_zone is not None:
        markers[TIME_ZONE_KEY] = shared.time_zone
    return markers


def reject_old_dates(
    batches: Iterable[pa.RecordBatch], *, with_clocks: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield batches; RefusedError at the first value on which calendars differ.

    `with_clocks`: timestamps without a zone were dates in the files, so they are checked, too.
    """
    for batch in batches:
        for column, array in zip(batch.schema, batch.columns, strict=True):
            if _holds_old_date(array, with_clocks=with_clocks):
                raise RefusedError(
                    f"column {column.name!r} has dates before 1582 (or timestamps before 1900), "
                    "and its files use different calendars",
                    feature="ancient dates of mixed calendars",
                    operation="rewrite",
                    hint="rewrite the affected rows with Spark, which supports both calendars",
                )
        yield batch


def _holds_old_date(array: pa.Array, *, with_clocks: bool) -> bool:
    """Return whether `array` holds an old date, at any depth; what a null hides does not count."""
    kind = array.type
    if not _holds_dates(kind, with_clocks=with_clocks):
        return False
    if pat.is_struct(kind):
        parts = array.flatten()
    elif pat.is_map(kind):
        shown = array.filter(array.is_valid()) if array.null_count else array
        entries = pa.concat_arrays([shown])
        parts = [entries.keys, entries.items]
    elif pat.is_list(kind) or pat.is_large_list(kind):
        parts = [array.flatten()]
    else:
        first = _first_modern(kind, with_clocks=with_clocks)
        return first is not None and bool(pc.any(pc.less(array, first)).as_py())
    return any(_holds_old_date(part, with_clocks=with_clocks) for part in parts)


def _holds_dates(kind: pa.DataType, *, with_clocks: bool) -> bool:
    parts = (kind.field(index).type for index in range(kind.num_fields))
    is_date = _first_modern(kind, with_clocks=with_clocks) is not None
    return is_date or any(_holds_dates(part, with_clocks=with_clocks) for part in parts)


def _first_modern(kind: pa.DataType, *, with_clocks: bool) -> pa.Scalar | None:
    """Return the first value of which all calendars say the same; None if it is no date."""
    if pat.is_date(kind):
        return pa.scalar(_FIRST_MODERN_DAY, kind)
    if not pat.is_timestamp(kind):
        return None
    if kind.tz is not None:
        return pa.scalar(_FIRST_MODERN_TIME, kind)
    return pa.scalar(datetime.combine(_FIRST_MODERN_DAY, time()), kind) if with_clocks else None
