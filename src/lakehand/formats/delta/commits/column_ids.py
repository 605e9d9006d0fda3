"""Ids and physical names for the columns of a new table that maps its columns."""

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
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

__all__ = ["assign_column_ids"]


def assign_column_ids(schema: StructType) -> tuple[StructType, int]:
    """Give every column at every depth an id and a physical name; also return the highest id."""
    ids = count(1)
    assigned = StructType(tuple(_with_id(column, ids) for column in schema.fields))
    return assigned, next(ids) - 1


def _with_id(column: StructField, ids: Iterator[int]) -> StructField:
    identity = {FIELD_ID_KEY: next(ids), PHYSICAL_NAME_KEY: f"col-{uuid.uuid4()}"}
    return replace(
        column, type=_with_ids(column.type, ids), metadata={**column.metadata, **identity}
    )


def _with_ids(type_: DeltaType, ids: Iterator[int]) -> DeltaType:
    match type_:
        case StructType(fields):
            return StructType(tuple(_with_id(column, ids) for column in fields))
        case ArrayType(element):
            return replace(type_, element=_with_ids(element, ids))
        case MapType(key, value):
            return replace(type_, key=_with_ids(key, ids), value=_with_ids(value, ids))
    return type_
