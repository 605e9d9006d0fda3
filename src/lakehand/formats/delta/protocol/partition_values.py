"""Partition values: strings in the log, typed columns in a snapshot."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError, SchemaMismatchError
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import DeltaType, PrimitiveType
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal


#: How a timestamp that names its time zone ends.
ZONED = r"(Z|[+-]\d{2}:?\d{2})$"
_logger = get_logger(__name__)
_warned: set[str] = set()


def parse_partition_values(
    raw: pa.ChunkedArray, type_: DeltaType, *, time_zone: str = "UTC"
) -> pa.Array:
    """Return raw values as values of `type_`. Null, absent and empty strings are all null.

    Timestamps without a zone are taken to be in `time_zone`.
    """
    target = arrow_type(type_)
    # A column has few distinct values however many files there are.
    encoded = raw.dictionary_encode().unify_dictionaries().combine_chunks()
    return _parse_dictionary(encoded, type_, target, time_zone)


def _parse_dictionary(
    encoded: pa.DictionaryArray, type_: DeltaType, target: pa.DataType, time_zone: str
) -> pa.Array:
    texts = encoded.dictionary
    # Written without constants: the first that pyarrow makes of a Python value imports pandas,
    # which takes longer than to open most tables.
    is_set = pc.binary_length(texts).cast(pa.bool_())
    try:
        values = _parse(pc.if_else(is_set, texts, _no_texts(texts)), target, time_zone)
    except (pa.ArrowException, ValueError) as error:
        name = type_.name if isinstance(type_, PrimitiveType) else str(target)
        message = f"a partition value in the log is no {name}: {str(error).partition(chr(10))[0]}"
        raise CorruptLogError(message) from error
    return values.take(encoded.indices)


def _no_texts(like: pa.Array) -> pa.Array:
    return pa.nulls(len(like), pa.string())


def _parse(texts: pa.Array, target: pa.DataType, time_zone: str) -> pa.Array:
    if pa.types.is_nested(target):
        raise ValueError("nested columns cannot partition a table")
    if pa.types.is_null(target):
        return pa.nulls(len(texts))
    if pa.types.is_timestamp(target):
        return _parse_timestamps(texts, target, time_zone)
    if pa.types.is_string(target) or pa.types.is_binary(target):
        return texts.cast(target)
    return pc.utf8_trim_whitespace(texts).cast(target)


def _parse_timestamps(texts: pa.Array, target: pa.TimestampType, time_zone: str) -> pa.Array:
    is_zoned = pc.match_substring_regex(texts, ZONED)
    zoned = pc.if_else(is_zoned, texts, _no_texts(texts)).cast(pa.timestamp("us", tz="UTC"))
    local = pc.if_else(is_zoned, _no_texts(texts), texts).cast(pa.timestamp("us"))
    if target.tz is None:
        return pc.coalesce(local, zoned.cast(pa.timestamp("us")))
    if local.null_count < len(local):
        _warn_once(time_zone)
    # As Spark reads a wall clock: the earlier of two instants, and past a gap.
    placed = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="latest")
    return pc.coalesce(zoned, placed.cast(pa.timestamp("us", tz="UTC"))).cast(target)


def _warn_once(time_zone: str) -> None:
    if time_zone in _warned:
        return
    _warned.add(time_zone)
    log_event(
        _logger,
        30,
        "partition_time_zone_assumed",
        "Partition timestamps without a zone are read as %s; set partition_time_zone to change it",
        time_zone,
    )


def format_partition_value(value: Any, type_: PrimitiveType) -> str | None:
    """Return the raw string of a value, as delta-spark writes it; None for null, and for empty."""
    if value is None or (isinstance(value, str | bytes) and not value):
        return None
    kind = "decimal" if type_.decimal else type_.name
    formatter = _FORMATTERS.get(kind)
    if formatter is None:
        raise SchemaMismatchError(f"a column of type {type_.name} cannot partition a table")
    return formatter(value)


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(float(value))


def _format_timestamp(value: datetime) -> str:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def _format_local_timestamp(value: datetime) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{value.microsecond:06d}" if value.microsecond else text


def _format_decimal(value: Decimal) -> str:
    return f"{value:f}"


def _format_date(value: date) -> str:
    return value.isoformat()


def _format_binary(value: bytes) -> str:
    return value.decode("utf-8")


def _format_boolean(value: object) -> str:
    return "true" if value else "false"


_FORMATTERS: Mapping[str, Callable[[Any], str]] = {
    "boolean": _format_boolean,
    "byte": str,
    "short": str,
    "integer": str,
    "long": str,
    "float": _format_float,
    "double": _format_float,
    "decimal": _format_decimal,
    "date": _format_date,
    "timestamp": _format_timestamp,
    "timestamp_ntz": _format_local_timestamp,
    "string": str,
    "binary": _format_binary,
}
