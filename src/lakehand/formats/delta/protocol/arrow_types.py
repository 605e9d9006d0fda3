"""The Arrow types that a Delta schema stands for, and changes of type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import RefusedError, SchemaMismatchError
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_collated,
)
from lakehand.model.snapshot import COLLATED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.formats.delta.protocol.schema import DeltaType

_TEXT = re.compile(r"(?:char|varchar)\(\s*\d+\s*\)|string(?: collate .+)?", re.IGNORECASE)
_YEAR_INTERVAL = re.compile(r"interval (?:year|month)(?: to month)?")
_DAY_INTERVAL = re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?")
_GEO = re.compile(r"(?:geometry|geography)(?:\(.*\))?")
_VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_nanos": pa.timestamp("ns", tz="UTC"),
    "decimal": pa.decimal128(10, 0),
    "variant": _VARIANT,
    "void": pa.null(),
    "null": pa.null(),
}


def to_arrow(struct: StructType) -> pa.Schema:
    """Return the logical columns as an Arrow schema."""
    return pa.schema([_arrow_field(column) for column in struct.fields])


def _arrow_field(column: StructField) -> pa.Field:
    type_, marks = arrow_type(column.type), {COLLATED: b""} if is_collated(column) else None
    return pa.field(column.name, type_, nullable=column.nullable, metadata=marks)


def arrow_type(type_: DeltaType) -> pa.DataType:
    """Return the Arrow type that holds the values of `type_`."""
    if isinstance(type_, StructType):
        return pa.struct([_arrow_field(column) for column in type_.fields])
    if isinstance(type_, ArrayType):
        element = pa.field("element", arrow_type(type_.element), nullable=type_.contains_null)
        return pa.list_(element)
    if isinstance(type_, MapType):
        item = pa.field("value", arrow_type(type_.value), nullable=type_.value_contains_null)
        return pa.map_(arrow_type(type_.key), item)
    return _arrow_primitive(type_)


def _arrow_primitive(type_: PrimitiveType) -> pa.DataType:
    if type_.decimal:
        return pa.decimal128(*type_.decimal)
    if type_.name in _ARROW_TYPES:
        return _ARROW_TYPES[type_.name]
    if _TEXT.fullmatch(type_.name):
        return pa.string()
    if _GEO.fullmatch(type_.name):
        return pa.binary()
    if _YEAR_INTERVAL.fullmatch(type_.name):
        return pa.int32()
    if _DAY_INTERVAL.fullmatch(type_.name):
        return pa.int64()
    message = f"the table has a column of the unknown type {type_.name!r}"
    raise SchemaMismatchError(message, hint="a newer lakehand may know this type")


def from_arrow(schema: pa.Schema) -> StructType:
    """Return the Delta schema that holds the columns of an Arrow schema without loss."""
    return StructType(tuple(_from_arrow_field(column) for column in schema))


def _from_arrow_field(column: pa.Field) -> StructField:
    return StructField(column.name, _from_arrow_type(column.type), column.nullable)


def _from_arrow_type(type_: pa.DataType) -> DeltaType:
    if isinstance(type_, pa.DictionaryType):
        return _from_arrow_type(type_.value_type)
    if pa.types.is_struct(type_):
        return StructType(tuple(_from_arrow_field(column) for column in type_))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_list_view(type_):
        return ArrayType(_from_arrow_type(type_.value_type), type_.value_field.nullable)
    if pa.types.is_map(type_):
        key, item = _from_arrow_type(type_.key_type), _from_arrow_type(type_.item_type)
        return MapType(key, item, type_.item_field.nullable)
    return PrimitiveType(_primitive_name(type_))


def _primitive_name(type_: pa.DataType) -> str:
    for name, arrow in _ARROW_TYPES.items():
        if arrow == type_ and name != "timestamp_nanos":
            return name
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "string"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return "binary"
    if pa.types.is_decimal(type_) and type_.precision <= 38:  # noqa: PLR2004  Delta's widest
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_) and type_.unit in {"s", "ms", "us"}:
        return "timestamp" if type_.tz else "timestamp_ntz"
    message = f"Delta has no type for Arrow's {type_}"
    raise SchemaMismatchError(message, hint="cast the column to a type that Delta has")


_KEY = "delta.typeChanges"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER: Mapping[str, frozenset[str]] = {
    "byte": frozenset({"short", "integer", "int", "long", "double"}),
    "short": frozenset({"integer", "int", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "int": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
#: Digits before the point that integers need.
_DIGITS: Mapping[str, int] = {"byte": 10, "short": 10, "integer": 10, "int": 10, "long": 20}


def check_type_changes(schema: StructType, *, table: str) -> None:
    """Raise RefusedError if a column went through a change that files cannot be read across."""
    for column in _fields(schema):
        for change in column.metadata.get(_KEY) or ():
            if not _is_known(change):
                described = f"{change.get('fromType')} to {change.get('toType')}"
                raise RefusedError(
                    f"column {column.name!r} of {table} was changed from {described}",
                    table=table,
                    operation="read",
                    feature="typeWidening",
                    hint="a newer lakehand may know how to read values of both types as one",
                )


def has_dates_made_timestamps(schema: StructType) -> bool:
    """Say whether files may hold dates in columns that are timestamps now."""
    changes = (change for column in _fields(schema) for change in column.metadata.get(_KEY) or ())
    return any(change.get("fromType") == "date" for change in changes)


def _fields(kind: DeltaType) -> Iterator[StructField]:
    match kind:
        case StructType(fields):
            for field in fields:
                yield field
                yield from _fields(field.type)
        case ArrayType(element):
            yield from _fields(element)
        case MapType(key, value):
            yield from _fields(key)
            yield from _fields(value)


def _is_known(change: Mapping[str, Any]) -> bool:
    old, new = str(change.get("fromType")), str(change.get("toType"))
    if new in _WIDER.get(old, ()):
        return True
    wanted = _DECIMAL.fullmatch(new)
    if wanted is None:
        return False
    precision, scale = int(wanted[1]), int(wanted[2])
    if old in _DIGITS:
        return precision - scale >= _DIGITS[old]
    held = _DECIMAL.fullmatch(old)
    if held is None:
        return False
    return scale >= int(held[2]) and precision - scale >= int(held[1]) - int(held[2])
