"""The columns of a Parquet file as a tree, as Arrow reads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumn:
    """A column of a file, or a nested part of one."""

    name: str
    type: pa.DataType
    #: Field id; None if there is none.
    field_id: int | None
    #: Fields of a struct, the element of a list, key and value of a map.
    parts: tuple[FileColumn, ...]
    #: Indexes of the leaf columns.
    leaves: tuple[int, ...]


def file_columns(schema: pa.Schema) -> tuple[FileColumn, ...]:
    """Return the columns of a file whose Arrow schema is `schema`."""
    positions = count()
    return tuple(_column(field, positions) for field in schema)


def _column(field: pa.Field, positions: Iterator[int]) -> FileColumn:
    parts = tuple(_column(part, positions) for part in _parts(field.type))
    own = tuple(leaf for part in parts for leaf in part.leaves) if parts else (next(positions),)
    identifier = (field.metadata or {}).get(_FIELD_ID)
    return FileColumn(
        name=field.name,
        type=field.type,
        field_id=None if identifier is None else int(identifier),
        parts=parts,
        leaves=own,
    )


def _parts(type_: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_struct(type_):
        return tuple(type_)
    if pa.types.is_map(type_):
        return (type_.key_field, type_.item_field)
    return (type_.value_field,) if is_any_list(type_) else ()


def is_any_list(type_: pa.DataType) -> bool:
    """Return whether a type is a list in any of its layouts."""
    types = pa.types
    return bool(
        types.is_list(type_)
        or types.is_large_list(type_)
        or types.is_fixed_size_list(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the logical type of a type, independent of its layout in memory.

    Files may contain Arrow's schema, and Arrow then reads them into dictionaries, views or large
    offsets, which says nothing about the file. The parts of nested types are not changed.
    """
    if isinstance(type_, pa.DictionaryType):
        return plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return pa.list_(type_.value_field) if is_any_list(type_) else type_
