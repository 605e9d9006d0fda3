"""What a table holds before and after, read by DuckDB and delta-rs: not by the code under test."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from contender import OUTPUT
from deltalake import DeltaTable
from outcomes import Content
from tpch import data_files

if TYPE_CHECKING:
    from pathlib import Path

    from tpch import Workload

#: The partition value comes from the file's path or from the log, and is part of the row.
_CONTENT = """
SELECT count(*), sum(hash({columns}))::VARCHAR
FROM read_parquet({paths}, filename = 'path', hive_partitioning = false) JOIN files USING (path)
WHERE {condition}
"""


def content_before(workload: Workload) -> Content:
    """Return what readers see in the table that all start from."""
    files = _in_directories(workload, workload.table)
    return _content(files, without=workload.deleted)


def expected_content(workload: Workload, contender: str, before: Content) -> Content:
    """Return what the contender should leave. DuckDB does not know which rows are deleted."""
    if contender == "duckdb" and workload.deleted:
        return _content(_in_directories(workload, workload.table))
    return before


def content_after(workload: Workload, contender: str, table: Path) -> Content:
    """Return what the contender has left."""
    if contender == "bytes":
        sizes = [path.stat().st_size for path in (table / OUTPUT).iterdir()]
        return Content(files=len(sizes), bytes=sum(sizes))
    if contender == "duckdb":
        return _content(_in_directories(workload, table / OUTPUT))
    return _content(_in_log(workload, table))


def _in_directories(workload: Workload, table: Path) -> pa.Table:
    """Return path, bytes and partition value of every file below `table`."""
    paths = data_files(table)
    files = {
        "path": [str(path) for path in paths],
        "bytes": [path.stat().st_size for path in paths],
    }
    if workload.partition_by:
        files[workload.partition_by] = [
            unquote(path.parent.name).partition("=")[2] for path in paths
        ]
    return pa.table(files)


def _in_log(workload: Workload, table: Path) -> pa.Table:
    """Return path, bytes and partition value of every file of the newest version."""
    adds = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    files = {
        "path": [str(table / unquote(path)) for path in adds["path"].to_pylist()],
        "bytes": adds["size_bytes"],
    }
    if workload.partition_by:
        files[workload.partition_by] = adds[f"partition.{workload.partition_by}"]
    return pa.table(files)


def _content(files: pa.Table, *, without: str | None = None) -> Content:
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("files", files)
        paths = files["path"].to_pylist()
        query = _CONTENT.format(
            columns=", ".join(_columns(connection, paths[0], files)),
            paths=paths,
            condition=f"NOT ({without})" if without else "true",
        )
        rows, digest = connection.execute(query).fetchone()
    size = sum(files["bytes"].to_pylist())
    return Content(files=len(files), bytes=size, rows=rows, digest=digest)


def _columns(connection: duckdb.DuckDBPyConnection, path: str, files: pa.Table) -> list[str]:
    described = connection.execute(
        f"DESCRIBE FROM read_parquet('{path}', hive_partitioning = false)"
    ).fetchall()
    # A file may hold the partition column as well; the table's word counts.
    partition = [name for name in files.column_names if name not in ("path", "bytes")]
    stored = [f'"{name}"' for name, *_ in described if name not in partition]
    return sorted(stored) + [f'files."{name}"' for name in partition]
