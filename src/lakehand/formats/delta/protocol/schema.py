"""The schema of a Delta table, in its JSON form."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError

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
    "field_id",
    "is_collated",
    "is_void",
    "leaves",
    "mapping_mode",
    "parse_schema",
    "parse_type",
    "physical_name",
]

PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
TYPE_CHANGES_KEY = "delta.typeChanges"
MAPPING_MODE_PROPERTY = "delta.columnMapping.mode"

_COLLATIONS = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


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


def is_collated(column: StructField) -> bool:
    """Say whether a collation tells which texts of a column, or of a part of it, are equal."""
    type_ = column.type
    if isinstance(type_, StructType) and any(map(is_collated, type_.fields)):
        return True
    named = isinstance(type_, PrimitiveType) and " collate " in type_.name.lower()
    return named or _COLLATIONS in column.metadata
