"""Arrow rows in a form that DuckDB takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_taken_sliced", "unsliced"]


def unsliced(rows: pa.Table) -> pa.Table:
    """Return the same rows, with nested structs copied where they are a part of a larger array.

    DuckDB 2.0 refuses a struct that holds a struct and begins behind an offset, as it does in every
    slice of an array but the first.
    """
    for position, column in enumerate(rows.columns):
        if _holds_nested_struct(column.type) and any(map(_has_offset, column.chunks)):
            copies = [pa.concat_arrays([chunk]) for chunk in column.chunks]
            copied = pa.chunked_array(copies, column.type)
            rows = rows.set_column(position, rows.schema.field(position), copied)
    return rows


def is_taken_sliced(schema: pa.Schema) -> bool:
    """Say whether DuckDB takes any slice of rows with these columns as it is."""
    return not any(map(_holds_nested_struct, schema.types))


def _holds_nested_struct(kind: pa.DataType, *, is_inside: bool = False) -> bool:
    parts = [kind.field(index).type for index in range(kind.num_fields)]
    if pat.is_struct(kind):
        return is_inside or any(_holds_nested_struct(part, is_inside=True) for part in parts)
    return any(_holds_nested_struct(part, is_inside=is_inside) for part in parts)


def _has_offset(array: pa.Array) -> bool:
    return bool(array.offset) or any(map(_has_offset, _parts(array)))


def _parts(array: pa.Array) -> Sequence[pa.Array]:
    kind = array.type
    if pat.is_struct(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pat.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if pat.is_list(kind) or pat.is_large_list(kind) else []
