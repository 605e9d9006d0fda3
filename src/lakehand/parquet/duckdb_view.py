"""How DuckDB reads Parquet files, and which files have the same columns."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.expressions.literals import quote_string
from lakehand.parquet.columns import plain_type
from lakehand.parquet.footer import FileField, LocalTails, fetch_footer, parse_footer
from lakehand.parquet.thrift import encode
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import duckdb


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
