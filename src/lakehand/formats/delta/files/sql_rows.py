"""The visible rows of files with one schema, as one query of DuckDB.

Whatever the files do not hold themselves (partition values, missing columns, ids of rows, which
rows are deleted) stands in two small tables that the query joins by the number of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.formats.delta.files.file_plan import deleted_rows, plan_file
from lakehand.formats.delta.files.projection import find_column
from lakehand.formats.delta.files.sql_columns import stored_value
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import (
    PrimitiveType,
    StructType,
    arrow_type,
    physical_name,
)
from lakehand.parquet.duckdb_view import quoted_list, seen_schema
from lakehand.storage.prefetch import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb

    from lakehand.formats.delta.files.file_plan import FilePlan
    from lakehand.formats.delta.files.reader import ReadRequest, SourceFile
    from lakehand.formats.delta.protocol.schema import DeltaType, StructField
    from lakehand.parquet.columns import FileColumn

__all__ = ["SqlRows", "sql_rows"]

_BATCH_BYTES = 8 * 2**20
#: Deletion vectors that are fetched at once.
_VECTORS_AHEAD = 8
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 2 * 1024, 32 * 1024
#: Columns that DuckDB adds, and that a file must therefore not have.
_ADDED = frozenset({"filename", "file_row_number", "file_index"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlRows:
    """A query, the tables that it joins, and how many of its rows make a batch."""

    text: str
    tables: Mapping[str, pa.Table]
    batch_rows: int


def sql_rows(
    connection: duckdb.DuckDBPyConnection,
    request: ReadRequest,
    files: Sequence[SourceFile],
    paths: Sequence[Path],
) -> SqlRows | None:
    """Return the rows of `files`, whose schemas are equal; None if DuckDB would misread some."""
    plan = plan_file(request, files[0])
    seen = seen_schema(connection, paths[0])
    if _ADDED & {name.lower() for name in seen.names} or _holds_void(request.columns):
        return None
    query = _Query(request=request, plan=plan, seen=seen, files=files)
    values = query.values()
    return None if values is None else query.rows(values, paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Query:
    request: ReadRequest
    #: Of the first file, which stands for all in what concerns columns.
    plan: FilePlan
    seen: pa.Schema
    files: Sequence[SourceFile]

    def values(self) -> list[str] | None:
        """Return SQL for each column; None if there is none for one of them."""
        values = [self._value(position) for position in range(len(self.request.columns))]
        if self.request.row_identity:
            values += self._identity()
        return [value for value in values if value is not None] if all(values) else None

    def rows(self, values: Sequence[str], paths: Sequence[Path]) -> SqlRows:
        source = f"read_parquet({quoted_list(paths)}, hive_partitioning=false) AS stored"
        tables = {"given": self._given()}
        if len(tables["given"].column_names) > 1:
            source += " JOIN given ON stored.file_index = given.file_index"
        deleted = self._deleted()
        if deleted.num_rows:
            tables["deleted"] = deleted
            source += (
                " ANTI JOIN deleted ON stored.file_index = deleted.file_index"
                " AND stored.file_row_number = deleted.file_row_number"
            )
        text = f"SELECT {', '.join(values)} FROM {source}"
        return SqlRows(text=text, tables=tables, batch_rows=self._batch_rows())

    def _value(self, position: int) -> str | None:
        column = self.request.columns[position]
        found = self._found(column)
        if found is None:
            return f"given.c{position}"
        return stored_value(column.type, found, self.seen, self.request.mode)

    def _found(self, column: StructField) -> FileColumn | None:
        if column.name in self.plan.partition:
            return None
        return find_column(column, self.plan.stored, self.request.mode)

    def _identity(self) -> list[str | None]:
        long = PrimitiveType("long")
        defaults = ("given.base_id + stored.file_row_number", "given.default_version")
        columns = (self.plan.identity.id_column, self.plan.identity.version_column)
        values: list[str | None] = []
        for column, default in zip(columns, defaults, strict=True):
            held = stored_value(long, column, self.seen, self.request.mode) if column else "NULL"
            values.append(None if held is None else f"coalesce({held}, {default})")
        return values

    def _given(self) -> pa.Table:
        """Return what is known of each file and not stored in it."""
        given = {"file_index": pa.array(range(len(self.files)), pa.uint64())}
        for position, column in enumerate(self.request.columns):
            if self._found(column) is None:
                given[f"c{position}"] = self._given_values(column)
        if self.request.row_identity:
            for name, key in (
                ("base_id", "baseRowId"),
                ("default_version", "defaultRowCommitVersion"),
            ):
                given[name] = pa.array([file.add.get(key) for file in self.files], pa.int64())
        return pa.table(given)

    def _given_values(self, column: StructField) -> pa.Array | pa.ChunkedArray:
        if column.name not in self.plan.partition:
            return pa.nulls(len(self.files), arrow_type(column.type))
        name = physical_name(column, mode=self.request.mode)
        raw = [(file.add.get("partitionValues") or {}).get(name) for file in self.files]
        texts = pa.chunked_array([pa.array(raw, pa.string())])
        zone = self.request.time_zone
        return parse_partition_values(texts, column.type, time_zone=zone)

    def _deleted(self) -> pa.Table:
        fetched = fetch_ahead(
            self.files, lambda file: deleted_rows(self.request, file), window=_VECTORS_AHEAD
        )
        positions = list(fetched)
        numbers = np.repeat(np.arange(len(positions), dtype=np.uint64), [len(p) for p in positions])
        return pa.table({"file_index": numbers, "file_row_number": np.concatenate(positions)})

    def _batch_rows(self) -> int:
        metadata = self.plan.file.metadata
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        plain: int = sum(group.total_byte_size for group in groups)
        rows: int = _BATCH_BYTES * max(metadata.num_rows, 1) // max(plain, 1)
        return max(_MIN_BATCH_ROWS, min(rows, _MAX_BATCH_ROWS))


def _holds_void(columns: Sequence[StructField]) -> bool:
    return any(_is_void(column.type) for column in columns)


def _is_void(kind: DeltaType) -> bool:
    if isinstance(kind, StructType):
        return _holds_void(kind.fields)
    return isinstance(kind, PrimitiveType) and kind.name in {"void", "null"}
