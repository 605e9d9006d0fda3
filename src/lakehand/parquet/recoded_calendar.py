"""Which calendar markers recoded files carry, and which rows must then not be among them.

Recoding copies the integers of dates and timestamps. Their meaning stays the same only if readers
find the markers of the inputs, or if no value is so old that the calendars differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import RefusedError
from lakehand.parquet.calendar import (
    LEGACY_DATETIME_KEY,
    TIME_ZONE_KEY,
    VERSION_KEY,
    CalendarClass,
    calendar_class,
)
from lakehand.parquet.unsliced import unsliced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.parquet.facts import FileFacts

__all__ = ["RecodedCalendar", "refuse_ancient_values"]

# From here on both calendars agree: dates by themselves, timestamps in every zone.
_FIRST_MODERN_DATE = "DATE '1582-10-15'"
_FIRST_MODERN_TIME = "TIMESTAMPTZ '1900-01-01 00:00:00+00'"
_OLDEST_TRUSTED_VERSION = "3.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecodedCalendar:
    """What becomes of the inputs' calendar markers."""

    #: For the footers of the outputs.
    key_values: Mapping[str, str]
    #: Whether the markers hold only for values on which all calendars agree.
    modern_values_only: bool

    @classmethod
    def of(cls, inputs: Sequence[FileFacts]) -> RecodedCalendar:
        """Keep the one class that all inputs share, or else demand modern values."""
        classes = {_recoded_class(facts) for facts in inputs}
        versions = sorted(v for facts in inputs if (v := facts.key_values.get(VERSION_KEY)))
        shared = classes.pop() if len(classes) == 1 else None
        if shared is not None:
            return cls(key_values=_markers(shared, versions), modern_values_only=False)
        is_trusted = versions and versions[-1] >= _OLDEST_TRUSTED_VERSION
        key_values = {VERSION_KEY: versions[-1]} if is_trusted else {}
        return cls(key_values=key_values, modern_values_only=bool(inputs))


def _recoded_class(facts: FileFacts) -> CalendarClass | None:
    """Return the class of a file; None if INT96 columns follow another rule than the rest."""
    found = calendar_class(facts.key_values)
    if facts.has_int96 and found.int96 != found.datetime:
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


def refuse_ancient_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; RefusedError at the first value on which calendars differ."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for batch in batches:
            _refuse_ancient(connection, batch)
            yield batch


def _refuse_ancient(connection: duckdb.DuckDBPyConnection, batch: pa.RecordBatch) -> None:
    columns = {f"c{i}": column for i, column in enumerate(batch.columns)}
    tests = {
        field.name: test
        for name, field in zip(columns, batch.schema, strict=True)
        if (test := _is_ancient(name, field.type, 0)) is not None
    }
    if not tests:
        return
    connection.register("batch", unsliced(pa.table(columns)))
    query = ", ".join(f"coalesce(bool_or({test}), false)" for test in tests.values())
    [found] = connection.execute(f"SELECT {query} FROM batch").fetchall()
    connection.unregister("batch")
    ancient = [name for name, is_ancient in zip(tests, found, strict=True) if is_ancient]
    if ancient:
        raise RefusedError(
            f"column {ancient[0]!r} holds values before 1582 (or timestamps before 1900), and its "
            "files do not agree on the calendar that they are in",
            feature="ancient dates of mixed calendars",
            operation="rewrite",
            hint="rewrite the affected rows with Spark, which knows both calendars",
        )


def _is_ancient(value: str, kind: pa.DataType, depth: int) -> str | None:
    """Return SQL that says whether a value holds an ancient date; None if its type cannot."""
    if pat.is_date(kind):
        return f"{value} < {_FIRST_MODERN_DATE}"
    if pat.is_timestamp(kind) and kind.tz is not None:
        return f"{value} < {_FIRST_MODERN_TIME}"
    if pat.is_struct(kind):
        members = [
            _is_ancient(f"struct_extract_at({value}, {i + 1})", kind.field(i).type, depth)
            for i in range(kind.num_fields)
        ]
        tests = [f"coalesce({member}, false)" for member in members if member is not None]
        return f"({' OR '.join(tests)})" if tests else None
    if pat.is_map(kind):
        sides = (("map_keys", kind.key_type), ("map_values", kind.item_type))
        tests = [t for f, side in sides if (t := _any_ancient(f"{f}({value})", side, depth))]
        return f"({' OR '.join(tests)})" if tests else None
    return _any_ancient(value, kind.value_type, depth) if pat.is_list(kind) else None


def _any_ancient(value: str, element: pa.DataType, depth: int) -> str | None:
    variable = f"x{depth}"
    test = _is_ancient(variable, element, depth + 1)
    if test is None:
        return None
    return f"coalesce(list_bool_or(list_transform({value}, lambda {variable}: {test})), false)"
