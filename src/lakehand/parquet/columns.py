"""The columns of a Parquet file: as a tree, as Arrow reads them, and as DuckDB reads them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.expressions.literals import quote_string
from lakehand.parquet.footer import FileField, LocalTails, fetch_footer, parse_footer
from lakehand.parquet.thrift import encode
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import duckdb

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


def seen_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> pa.Schema:
    """Return the columns of a file as DuckDB reads them."""
    query = f"FROM read_parquet({quoted_list([path])}, hive_partitioning=false) LIMIT 0"
    return connection.sql(query).to_arrow_table().schema


def reads_alike(seen: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether DuckDB's type `seen` has the values that Arrow reads as `stored`."""
    stored = plain_type(stored)
    if pat.is_timestamp(stored):
        # Milliseconds become microseconds; nanoseconds would lose digits.
        return bool(stored.unit != "ns" and seen == pa.timestamp("us", tz=stored.tz))
    if not pat.is_nested(stored):
        return bool(seen == stored)
    if seen.id != stored.id or seen.num_fields != stored.num_fields:
        return False
    pairs = [(seen.field(i), stored.field(i)) for i in range(seen.num_fields)]
    has_names = pat.is_struct(stored)
    return all(
        reads_alike(one.type, other.type) and (one.name == other.name or not has_names)
        for one, other in pairs
    )


def quoted_list(paths: Iterable[Path]) -> str:
    """Return paths as an SQL list of strings."""
    return "[" + ", ".join(quote_string(str(path)) for path in paths) + "]"


def by_schema(paths: Sequence[Path]) -> list[list[int]]:
    """Group local files by the columns in their footers; return the positions of each group.

    Raises CorruptFileError for a file that is not Parquet, ObjectNotFoundError for a missing one.
    """
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    schema = None
    for position, path in enumerate(paths):
        footer = _footer(path)
        # Columns come first in a footer, so most footers need not be parsed.
        if schema is None or not footer.startswith(schema):
            schema = _schema(footer, path)
        found[schema].append(position)
    return list(found.values())


def _footer(path: Path) -> bytes:
    with translated("get", str(path)), path.open("rb", buffering=0) as file:
        return fetch_footer(LocalTails(file), str(path))[0]


def _schema(footer: bytes, path: Path) -> bytes:
    meta = parse_footer(footer, path=str(path), file_bytes=0).meta
    known = (FileField.VERSION, FileField.SCHEMA)
    # The last byte ends the struct, which continues in the footer.
    return encode({key: meta[key] for key in known if key in meta})[:-1]
