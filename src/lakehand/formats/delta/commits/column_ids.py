"""Ids and physical names for the columns of a table that maps its columns."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.schema import (
    FIELD_ID_KEY,
    PHYSICAL_NAME_KEY,
    ArrayType,
    MapType,
    StructType,
    field_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

__all__ = ["assign_column_ids", "highest_column_id"]


def assign_column_ids(
    schema: StructType, *, table_id: str, after: int = 0
) -> tuple[StructType, int]:
    """Give an id and a physical name to every column, at any depth, that has none.

    Also return the highest id. Ids go on `after` the highest that the table ever gave away, and
    names follow from table and id: so no two columns ever share one, and whoever adds the same
    columns to the same table calls them the same.
    """
    namer = _Namer(table_id, after)
    assigned = StructType(tuple(namer.named(column) for column in schema.fields))
    return assigned, namer.highest


def highest_column_id(schema: StructType, declared: str | None) -> int:
    """Return the highest id that a table has given away, by its own word or by its columns."""
    return max([int(declared or 0), *_ids(schema)])


def _ids(type_: DeltaType) -> Iterator[int]:
    match type_:
        case StructType(fields):
            for column in fields:
                yield field_id(column) or 0
                yield from _ids(column.type)
        case ArrayType(element):
            yield from _ids(element)
        case MapType(key, value):
            yield from _ids(key)
            yield from _ids(value)


class _Namer:
    def __init__(self, table_id: str, after: int) -> None:
        self._table_id = table_id
        self._ids = count(after + 1)
        self.highest = after

    def named(self, column: StructField) -> StructField:
        metadata = dict(column.metadata)
        if FIELD_ID_KEY not in metadata:
            self.highest = metadata[FIELD_ID_KEY] = next(self._ids)
            name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._table_id}/{self.highest}")
            metadata[PHYSICAL_NAME_KEY] = f"col-{name}"
        return replace(column, type=self._named_type(column.type), metadata=metadata)

    def _named_type(self, type_: DeltaType) -> DeltaType:
        match type_:
            case StructType(fields):
                return StructType(tuple(self.named(column) for column in fields))
            case ArrayType(element):
                return replace(type_, element=self._named_type(element))
            case MapType(key, value):
                return replace(type_, key=self._named_type(key), value=self._named_type(value))
        return type_
