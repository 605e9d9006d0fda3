"""Logical columns as SQL over the columns of a file, where no more than a cast lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.formats.delta.files.projection import find_column
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import ArrayType, MapType, PrimitiveType, StructType
from lakehand.parquet.columns import is_any_list, plain_type
from lakehand.parquet.duckdb_view import reads_alike

if TYPE_CHECKING:
    from lakehand.formats.delta.protocol.schema import DeltaType, MappingMode
    from lakehand.parquet.columns import FileColumn

__all__ = ["stored_value"]

_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_MAX_BITS_IN_DOUBLE = 32


def stored_value(
    kind: DeltaType, found: FileColumn, seen: pa.Schema, mode: MappingMode
) -> str | None:
    """Return SQL for the values of a column, which the file holds as `found`.

    `seen` is what DuckDB sees of the file. None: these values need a reader that knows more.
    """
    position = seen.get_field_index(found.name)
    if position < 0 or not reads_alike(seen.field(position).type, found.type):
        return None
    value = f"stored.{_identifier(found.name)}"
    if _is_same(kind, found, mode):
        return value
    wider = _wider_type(plain_type(found.type), arrow_type(kind))
    return None if wider is None else f"CAST({value} AS {wider})"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_same(kind: DeltaType, found: FileColumn, mode: MappingMode) -> bool:
    """Say whether stored values are the table's as they are, but for names."""
    match kind:
        case StructType():
            return pat.is_struct(found.type) and _has_same_members(kind, found, mode)
        case ArrayType(element):
            return is_any_list(found.type) and _is_same(element, found.parts[0], mode)
        case MapType(key, value):
            return (
                pat.is_map(found.type)
                and _is_same(key, found.parts[0], mode)
                and _is_same(value, found.parts[1], mode)
            )
        case PrimitiveType("variant"):
            return False
    stored = plain_type(found.type)
    if pat.is_timestamp(stored):
        stored = pa.timestamp("us", tz=stored.tz)
    return bool(stored == arrow_type(kind))


def _has_same_members(kind: StructType, found: FileColumn, mode: MappingMode) -> bool:
    return len(kind.fields) == len(found.parts) and all(
        find_column(member, found.parts, mode) is part and _is_same(member.type, part, mode)
        for member, part in zip(kind.fields, found.parts, strict=True)
    )


def _wider_type(have: pa.DataType, want: pa.DataType) -> str | None:
    """Return the SQL name of a type that holds all values of `have`; None: no plain cast does."""
    if pat.is_signed_integer(have):
        return _wider_than_integer(have, want)
    if pat.is_float32(have) and pat.is_float64(want):
        return "DOUBLE"
    if pat.is_decimal(have) and pat.is_decimal(want):
        digits = want.precision - want.scale
        is_wider = want.scale >= have.scale and digits >= have.precision - have.scale
        return f"DECIMAL({want.precision}, {want.scale})" if is_wider else None
    if pat.is_timestamp(have) and pat.is_timestamp(want) and have.tz is None:
        # Instants of the old kind have no zone in the file; the session's zone is UTC.
        return "TIMESTAMPTZ"
    return None


def _wider_than_integer(have: pa.DataType, want: pa.DataType) -> str | None:
    if pat.is_signed_integer(want) and want.bit_width > have.bit_width:
        return _INTEGERS[want.bit_width]
    if pat.is_float64(want) and have.bit_width <= _MAX_BITS_IN_DOUBLE:
        return "DOUBLE"
    return None
