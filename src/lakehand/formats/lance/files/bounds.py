"""Bounds of columns by fragment, all unknown: Lance keeps none, and what is unknown is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import UnknownColumnError
from lakehand.expressions.engine_types import engine_type
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["unknown_bounds"]


def unknown_bounds(schema: pa.Schema, columns: Sequence[str], *, count: int) -> pa.Array:
    """Return `count` times that nothing is known of `columns`, which must be of the table."""
    types = {field.name: field.type for field in schema} | dict(_types(schema, ()))
    for column in columns:
        if column not in types:
            raise UnknownColumnError(column, [name for name, _ in _types(schema, ())])
    members = [(column, _bounds_type(types[column])) for column in dict.fromkeys(columns)]
    return pa.nulls(count, pa.struct(members))


def _bounds_type(kind: pa.DataType) -> pa.DataType:
    computed = engine_type(kind)
    return pa.struct({"min": computed, "max": computed, "nulls": pa.int64()})


def _types(fields: Iterable[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path = (*above, field.name)
        yield column_text(path), field.type
        if pa.types.is_struct(field.type):
            yield from _types(field.type, path)
