"""How DuckDB sees Parquet files, and whether it sees what they hold.

DuckDB ignores most logical types: a decimal whose older annotation is missing reads as an integer,
and nothing complains. So its types are compared with Arrow's before a value is believed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.parquet.columns import plain_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import duckdb

__all__ = ["by_schema", "quoted_list", "reads_alike", "seen_schema"]

_ELEMENT = (
    "name, type, type_length, repetition_type, num_children, converted_type, scale, precision, "
    "field_id, logical_type"
)


def by_schema(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> list[list[int]]:
    """Sort files by what their footers say of columns; return positions of those that agree."""
    query = f"SELECT file_name, row({_ELEMENT})::VARCHAR FROM parquet_schema({quoted_list(paths)})"
    schemas: defaultdict[str, list[str]] = defaultdict(list)
    for name, element in connection.execute(query).fetchall():
        schemas[name].append(element)
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for position, path in enumerate(paths):
        found[tuple(schemas[str(path)])].append(position)
    return list(found.values())


def seen_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> pa.Schema:
    """Return the columns of a file as DuckDB reads them."""
    query = f"FROM read_parquet({quoted_list([path])}, hive_partitioning=false) LIMIT 0"
    return connection.sql(query).to_arrow_table().schema


def reads_alike(seen: pa.DataType, stored: pa.DataType) -> bool:
    """Say whether DuckDB, which sees `seen`, reads the values that Arrow reads as `stored`."""
    stored = plain_type(stored)
    if pat.is_timestamp(stored):
        # Milliseconds become microseconds on the way; nanoseconds would lose digits.
        return bool(stored.unit != "ns" and seen == pa.timestamp("us", tz=stored.tz))
    if not pat.is_nested(stored):
        return bool(seen == stored)
    if seen.id != stored.id or seen.num_fields != stored.num_fields:
        return False
    pairs = [(seen.field(i), stored.field(i)) for i in range(seen.num_fields)]
    has_names = pat.is_struct(stored)
    return all(
        reads_alike(ours.type, theirs.type) and (ours.name == theirs.name or not has_names)
        for ours, theirs in pairs
    )


def quoted_list(paths: Iterable[Path]) -> str:
    """Return paths as a SQL list of strings."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"
