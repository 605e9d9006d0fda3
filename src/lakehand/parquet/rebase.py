"""Calendar markers of re-encoded files, and the values that they exclude.

Re-encoding keeps the integers of dates and timestamps. Their meaning stays the same only if the
outputs have the markers of the inputs, or if no value is so old that the calendars differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.duckdb_pool import connect, unsliced
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

    import duckdb

    from lakehand.parquet.footer_facts import FileFacts

# Both calendars agree from here on: for dates, and for timestamps in every zone.
_FIRST_MODERN_DATE = "DATE '1582-10-15'"
_FIRST_MODERN_TIME = "TIMESTAMPTZ '1900-01-01 00:00:00+00'"
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
    with connect(threads=1) as connection:
        for batch in batches:
            _reject_old_dates(connection, batch, with_clocks=with_clocks)
            yield batch


def _reject_old_dates(
    connection: duckdb.DuckDBPyConnection, batch: pa.RecordBatch, *, with_clocks: bool
) -> None:
    columns = {f"c{i}": column for i, column in enumerate(batch.columns)}
    tests = {
        field.name: test
        for name, field in zip(columns, batch.schema, strict=True)
        if (test := _Test(with_clocks=with_clocks).of(name, field.type)) is not None
    }
    if not tests:
        return
    connection.register("batch", unsliced(pa.table(columns)))
    query = ", ".join(f"coalesce(bool_or({test}), false)" for test in tests.values())
    [found] = connection.execute(f"SELECT {query} FROM batch").fetchall()
    connection.unregister("batch")
    old = [name for name, is_old in zip(tests, found, strict=True) if is_old]
    if old:
        raise RefusedError(
            f"column {old[0]!r} has dates before 1582 (or timestamps before 1900), and its "
            "files use different calendars",
            feature="ancient dates of mixed calendars",
            operation="rewrite",
            hint="rewrite the affected rows with Spark, which supports both calendars",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Test:
    """Generates SQL that tests whether a value contains an old date."""

    with_clocks: bool

    def of(self, value: str, kind: pa.DataType, depth: int = 0) -> str | None:
        """Return the SQL for a value; None if its type has no dates."""
        if pat.is_date(kind):
            return f"{value} < {_FIRST_MODERN_DATE}"
        if pat.is_timestamp(kind):
            return self._of_timestamp(value, kind)
        if pat.is_struct(kind):
            members = [
                self.of(f"struct_extract_at({value}, {i + 1})", kind.field(i).type, depth)
                for i in range(kind.num_fields)
            ]
            return _or(f"coalesce({member}, false)" for member in members if member is not None)
        if pat.is_map(kind):
            sides = (("map_keys", kind.key_type), ("map_values", kind.item_type))
            tests = (self._of_any(f"{f}({value})", side, depth) for f, side in sides)
            return _or(test for test in tests if test is not None)
        return self._of_any(value, kind.value_type, depth) if pat.is_list(kind) else None

    def _of_timestamp(self, value: str, kind: pa.DataType) -> str | None:
        if kind.tz is not None:
            return f"{value} < {_FIRST_MODERN_TIME}"
        return f"{value} < {_FIRST_MODERN_DATE}" if self.with_clocks else None

    def _of_any(self, value: str, element: pa.DataType, depth: int) -> str | None:
        variable = f"x{depth}"
        test = self.of(variable, element, depth + 1)
        if test is None:
            return None
        return f"coalesce(list_bool_or(list_transform({value}, lambda {variable}: {test})), false)"


def _or(tests: Iterable[str]) -> str | None:
    text = " OR ".join(tests)
    return f"({text})" if text else None
