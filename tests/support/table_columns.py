"""Columns of a table with the names and ids that files know them by."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Mode = Literal["none", "name", "id"]
_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column, or a part of one."""

    name: str
    #: Type in the table.
    type: pa.DataType
    id: int
    #: Members of a struct, the element of a list, key and value of a map.
    parts: tuple[Column, ...] = ()

    def physical_name(self, mode: Mode) -> str:
        return self.name if mode == "none" else f"col-{self.id}"


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Number every column and part, from 1."""
    numbers = itertools.count(1)
    return tuple(_column(field.name, field.type, numbers) for field in schema)


def _column(name: str, kind: pa.DataType, numbers: Iterator[int]) -> Column:
    own = next(numbers)
    parts = tuple(_column(field.name, field.type, numbers) for field in _fields(kind))
    return Column(name=name, type=kind, id=own, parts=parts)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pat.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pat.is_list(kind) else list(kind) if pat.is_struct(kind) else []


def schema_json(columns: tuple[Column, ...], mode: Mode) -> dict[str, Any]:
    """Return the columns as the log states them."""
    return {"type": "struct", "fields": [_field_json(column, mode) for column in columns]}


def _field_json(column: Column, mode: Mode) -> dict[str, Any]:
    mapping = {
        "delta.columnMapping.id": column.id,
        "delta.columnMapping.physicalName": column.physical_name(mode),
    }
    return {
        "name": column.name,
        "type": _type_json(column, mode),
        "nullable": True,
        "metadata": {} if mode == "none" else mapping,
    }


def _type_json(column: Column, mode: Mode) -> Any:
    kind, parts = column.type, column.parts
    if pat.is_struct(kind):
        return schema_json(parts, mode)
    if pat.is_map(kind):
        key, value = (_type_json(part, mode) for part in parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pat.is_list(kind):
        element = _type_json(parts[0], mode)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pat.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind]


def any_leaf(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Say whether a type is or holds one for which `test` is true."""
    inner = _fields(kind)
    return any(any_leaf(field.type, test) for field in inner) if inner else test(kind)
