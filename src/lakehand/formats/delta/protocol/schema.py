"""The schema of a Delta table in its JSON form, and what it asks of new rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, RefusedError
from lakehand.formats.delta.protocol.actions import Metadata, load_json
from lakehand.model.table_head import RowRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
TYPE_CHANGES_KEY = "delta.typeChanges"
#: Column of change data files that says what happened to a row. It has no id.
CHANGE_TYPE = "_change_type"
MAPPING_MODE_PROPERTY = "delta.columnMapping.mode"

#: Levels of structs, arrays and maps; whatever walks a schema calls itself for each.
_MOST_LEVELS = 100
_MOST_DIGITS = 38
_MOST_SHOWN = 80
#: Keys of the metadata of a column that are read here.
_READ_KEYS = (FIELD_ID_KEY, PHYSICAL_NAME_KEY, TYPE_CHANGES_KEY)
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

        Lower case, not `casefold`, for which the two columns `ß` and `ss` would be one.
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


@lru_cache(maxsize=16)
def parse_schema(text: str | None) -> StructType:
    """Read `metaData.schemaString`; nothing at all is a table without columns."""
    # Kept: a commit looks at the schema dozens of times, each time 20 ms with 2,000 columns.
    if not text:
        return StructType(())
    try:
        parsed = parse_type(load_json(text))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(
            f"the table's schema cannot be read: {error!r}",
            hint="restore the commit that holds it from a backup",
        ) from error
    if not isinstance(parsed, StructType):
        raise CorruptLogError("the table's schema is not a struct")
    return parsed


def parse_type(value: Any, level: int = 0) -> DeltaType:
    """Read one type of the JSON form; ValueError, KeyError or TypeError if it is none."""
    if isinstance(value, str):
        return _parse_primitive(value)
    if level > _MOST_LEVELS:
        raise ValueError(f"it is nested deeper than {_MOST_LEVELS} levels")
    below = level + 1
    match value["type"]:
        case "struct":
            return _parse_struct(value["fields"], below)
        case "array":
            element = parse_type(value["elementType"], below)
            return ArrayType(element, _flag(value, "containsNull"))
        case "map":
            key, item = (parse_type(value[name], below) for name in ("keyType", "valueType"))
            return MapType(key, item, _flag(value, "valueContainsNull"))
        case "udt":
            return parse_type(value["sqlType"], below)
    raise ValueError(f"unknown type {value['type']!r}")


def _parse_primitive(name: str) -> PrimitiveType:
    type_ = PrimitiveType(name)
    if type_.decimal is not None:
        digits, scale = type_.decimal
        if not (1 <= digits <= _MOST_DIGITS and scale <= digits):
            raise ValueError(f"there is no type {name[:_MOST_SHOWN]}")
    return type_


def _parse_struct(fields: Any, level: int) -> StructType:
    if not isinstance(fields, list):
        raise TypeError("the fields of a struct are not a list")
    columns = tuple(_parse_field(field, level) for field in fields)
    if len({column.name for column in columns}) != len(columns):
        raise ValueError("two columns have the same name")
    return StructType(columns)


def _parse_field(value: Any, level: int) -> StructField:
    if not isinstance(value, dict):
        raise TypeError("a column is not an object")
    metadata = value.get("metadata") or {}
    if not isinstance(value["name"], str) or not isinstance(metadata, dict):
        raise TypeError("a column has a name that is no string, or metadata that are no object")
    column = StructField(
        name=value["name"],
        type=parse_type(value["type"], level),
        nullable=_flag(value, "nullable"),
        metadata=metadata,
    )
    _check_mapping(column)
    return column


def _flag(value: Mapping[str, Any], name: str) -> bool:
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise TypeError(f"{name} is {type(found).__name__} and not a boolean")
    return found is not False


def _check_mapping(column: StructField) -> None:
    """Check what lakehand itself reads of the metadata of a column."""
    identifier, name, changes = map(column.metadata.get, _READ_KEYS)
    if identifier is not None and (type(identifier) is not int or not 0 <= identifier < 2**31):
        raise TypeError(f"the id of column {column.name!r} is no number")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the physical name of column {column.name!r} is no string")
    if "\0" in column.name or "\0" in (name or ""):
        raise ValueError(f"the name of column {column.name!r} holds a NUL")
    is_list = isinstance(changes, list) and all(isinstance(change, dict) for change in changes)
    if changes is not None and not is_list:
        raise TypeError(f"the type changes of column {column.name!r} are no list of objects")


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
    """Return whether a collation decides which strings of a column, or a part of it, are equal."""
    type_ = column.type
    if isinstance(type_, StructType) and any(map(is_collated, type_.fields)):
        return True
    named = isinstance(type_, PrimitiveType) and " collate " in type_.name.lower()
    return named or _COLLATIONS in column.metadata


_CONSTRAINT_PREFIX = "delta.constraints."
_INVARIANT = "delta.invariants"
_GENERATED = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_BOUNDED_TEXT = re.compile(r"(?:var)?char\(\s*(\d+)\s*\)", re.IGNORECASE)


def row_rules(metadata: Metadata, schema: StructType, *, table: str) -> RowRules:
    """Return all rules; RefusedError if they would have to be computed by collations."""
    rules = RowRules(
        constraints={
            **constraints_of(metadata),
            **dict(_invariants(schema, ())),
            **dict(_bounded_texts(schema)),
        },
        generated=_by_column(schema, _GENERATED),
        defaults=_by_column(schema, _DEFAULT),
    )
    if (rules.constraints or rules.generated) and any(map(is_collated, schema.fields)):
        raise RefusedError(
            f"no rows can be added to {table}: its rules compare strings by a collation",
            table=table,
            operation="append",
            feature="collations",
            hint="nothing was written; write with an engine that knows the collation",
        )
    return rules


def is_constraint(name: str) -> bool:
    """Return whether a property is a CHECK constraint; its prefix may have any case."""
    return name.lower().startswith(_CONSTRAINT_PREFIX)


def constraints_of(metadata: Metadata) -> dict[str, str]:
    """Return the CHECK constraints by name."""
    return {
        name[len(_CONSTRAINT_PREFIX) :]: text
        for name, text in sorted(metadata.configuration.items())
        if is_constraint(name)
    }


def _by_column(schema: StructType, key: str) -> dict[str, str]:
    return {
        column.name: str(column.metadata[key]) for column in schema.fields if key in column.metadata
    }


def _invariants(struct: StructType, outer: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for column in struct.fields:
        path = (*outer, column.name)
        if _INVARIANT in column.metadata:
            name = ".".join(path)
            yield f"invariant of {name}", _expression(column.metadata[_INVARIANT], name)
        if isinstance(column.type, StructType):
            yield from _invariants(column.type, path)


def _expression(text: object, column: str) -> str:
    try:
        return str(load_json(str(text))["expression"]["expression"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"the invariant of column {column!r} cannot be read: {text!r}"
        raise CorruptLogError(message) from error


def _bounded_texts(schema: StructType) -> Iterator[tuple[str, str]]:
    """Yield the lengths of strings that Spark declares with a length."""
    for column in schema.fields:
        declared = str(column.metadata.get(_TEXT_TYPE, ""))
        match = _BOUNDED_TEXT.fullmatch(declared)
        if match:
            name = "`" + column.name.replace("`", "``") + "`"
            yield f"{declared} of {column.name}", f"{name} IS NULL OR length({name}) <= {match[1]}"
