"""How DuckDB sees Parquet files, and whether it sees what they hold.

DuckDB ignores most logical types: a decimal whose older annotation is missing reads as an integer,
and nothing complains. So its types are compared with Arrow's before a value is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.parquet.columns import plain_type

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb

__all__ = ["quoted_list", "reads_alike", "seen_schema"]


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
