"""The schema of a Delta table: its JSON form, and the Arrow types it stands for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptLogError, SchemaMismatchError
from lakehand.model.snapshot import COLLATED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "ArrayType",
    "DeltaType",
    "Leaf",
    "MapType",
    "MappingMode",
    "PrimitiveType",
    "StructField",
    "StructType",
    "arrow_type",
    "field_id",
    "from_arrow",
    "is_collated",
    "is_void",
    "leaves",
    "mapping_mode",
    "parse_schema",
    "parse_type",
    "physical_name",
    "to_arrow",
]

PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
TYPE_CHANGES_KEY = "delta.typeChanges"
MAPPING_MODE_PROPERTY = "delta.columnMapping.mode"

_COLLATIONS = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
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


class MappingMode(StrEnum):
    """How columns of the schema are found in the files."""

    NONE = "none"
    NAME = "name"
    ID = "id"


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts, by the name Delta gives it: `long`, `decimal(10,2)`."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale, if this is a decimal."""
        match = _DECIMAL.fullmatch(self.name)
        return (int(match[1]), int(match[2])) if match else None

    def to_plain(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: DeltaType
    contains_null: bool = True

    def to_plain(self) -> dict[str, Any]:
        return {
            "type": "array",
            "elementType": self.element.to_plain(),
            "containsNull": self.contains_null,
        }


@dataclass(frozen=True, slots=True)
class MapType:
    key: DeltaType
    value: DeltaType
    value_contains_null: bool = True

    def to_plain(self) -> dict[str, Any]:
        return {
            "type": "map",
            "keyType": self.key.to_plain(),
            "valueType": self.value.to_plain(),
            "valueContainsNull": self.value_contains_null,
        }


@dataclass(frozen=True, slots=True)
class StructField:
    """One column. `metadata` is kept as found: other engines keep their own keys there."""

    name: str
    type: DeltaType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type.to_plain(),
            "nullable": self.nullable,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[StructField, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.fields)

    def find(self, name: str) -> StructField | None:
        """Return the column of this name, compared as Delta does: without case.

        Lower case, and not case folding, for which the two columns `ß` and `ss` would be one.
        """
        lower = name.lower()
        return next((column for column in self.fields if column.name.lower() == lower), None)

    def to_plain(self) -> dict[str, Any]:
        return {"type": "struct", "fields": [column.to_plain() for column in self.fields]}

    def to_json(self) -> str:
        """Return the schema as the JSON text of `metaData.schemaString`."""
        return json.dumps(self.to_plain(), separators=(",", ":"), ensure_ascii=False)


DeltaType = PrimitiveType | ArrayType | MapType | StructType


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A column that is no struct, reached through structs only."""

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    type: DeltaType
    #: Types that the column had before it was widened.
    former_types: tuple[str, ...] = ()


def is_void(kind: DeltaType) -> bool:
    """Say whether a type has no value but null; files hold no column of it."""
    return isinstance(kind, PrimitiveType) and kind.name in {"void", "null"}


def parse_schema(text: str | None) -> StructType:
    """Read `metaData.schemaString`; nothing at all is a table without columns."""
    if not text:
        return StructType(())
    try:
        parsed = parse_type(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(f"the table's schema cannot be read: {error!r}") from error
    if not isinstance(parsed, StructType):
        raise CorruptLogError("the table's schema is not a struct")
    return parsed


def parse_type(value: Any) -> DeltaType:
    """Read one type of the JSON form."""
    if isinstance(value, str):
        return PrimitiveType(value)
    match value["type"]:
        case "struct":
            return StructType(tuple(_parse_field(column) for column in value["fields"]))
        case "array":
            return ArrayType(parse_type(value["elementType"]), value.get("containsNull", True))
        case "map":
            key, item = parse_type(value["keyType"]), parse_type(value["valueType"])
            return MapType(key, item, value.get("valueContainsNull", True))
        case "udt":
            return parse_type(value["sqlType"])
    raise ValueError(f"unknown type {value['type']!r}")


def _parse_field(value: Mapping[str, Any]) -> StructField:
    return StructField(
        name=value["name"],
        type=parse_type(value["type"]),
        nullable=value.get("nullable", True),
        metadata=value.get("metadata") or {},
    )


def physical_name(column: StructField, *, mode: MappingMode = MappingMode.NAME) -> str:
    """Return the name of a column in files, statistics and partition values."""
    if mode is MappingMode.NONE:
        return column.name
    return str(column.metadata.get(PHYSICAL_NAME_KEY, column.name))


def field_id(column: StructField) -> int | None:
    """Return the id of a column in Parquet files, where the table maps columns."""
    identifier = column.metadata.get(FIELD_ID_KEY)
    return None if identifier is None else int(identifier)


def mapping_mode(configuration: Mapping[str, str]) -> MappingMode:
    """Return how the properties say that columns are found in files."""
    text = configuration.get(MAPPING_MODE_PROPERTY, "none")
    try:
        return MappingMode(text.lower())
    except ValueError as error:
        raise CorruptLogError(f"unknown column mapping mode {text!r}") from error


def leaves(struct: StructType, *, mode: MappingMode = MappingMode.NAME) -> Iterator[Leaf]:
    """Yield every column that is no struct, in the order of the schema."""
    yield from _leaves(struct, mode, (), ())


def _leaves(
    struct: StructType, mode: MappingMode, path: tuple[str, ...], physical: tuple[str, ...]
) -> Iterator[Leaf]:
    for column in struct.fields:
        here = (*path, column.name)
        there = (*physical, physical_name(column, mode=mode))
        if isinstance(column.type, StructType):
            yield from _leaves(column.type, mode, here, there)
        else:
            yield Leaf(
                path=here,
                physical_path=there,
                type=column.type,
                former_types=_former_types(column),
            )


def _former_types(column: StructField) -> tuple[str, ...]:
    changes = column.metadata.get(TYPE_CHANGES_KEY) or ()
    return tuple(str(change.get("fromType")) for change in changes)


def to_arrow(struct: StructType) -> pa.Schema:
    """Return the logical columns as an Arrow schema."""
    return pa.schema([_arrow_field(column) for column in struct.fields])


def _arrow_field(column: StructField) -> pa.Field:
    type_, marks = arrow_type(column.type), {COLLATED: b""} if is_collated(column) else None
    return pa.field(column.name, type_, nullable=column.nullable, metadata=marks)


def is_collated(column: StructField) -> bool:
    """Say whether a collation tells which texts of a column, or of a part of it, are equal."""
    type_ = column.type
    if isinstance(type_, StructType) and any(map(is_collated, type_.fields)):
        return True
    named = isinstance(type_, PrimitiveType) and " collate " in type_.name.lower()
    return named or _COLLATIONS in column.metadata


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
