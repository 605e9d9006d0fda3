"""The rows of a table as three engines read them, and their comparison."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder

from lakehand.formats.delta.table import DeltaTable
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.oracle import Oracle

_numbers = itertools.count()


def delta_table(path: Path) -> DeltaTable:
    return DeltaTable(open_store(path))


def lakehand_rows(
    path: Path, *, version: int | None = None, row_identity: bool = False
) -> pa.Table:
    """Return all rows of a version, through a worker as tasks use it."""
    table = delta_table(path)
    snapshot = table.snapshot(version=version)
    files = table.data_files(snapshot, range(snapshot.file_count))
    return table.worker(snapshot).read(files, row_identity=row_identity).read_all()


def spark_rows(
    oracle: Oracle,
    path: Path,
    *,
    version: int | None = None,
    columns: Sequence[str] = ("*",),
) -> pa.Table:
    """Return all rows as delta-spark reads them."""
    target = path.parent / f"exported-{next(_numbers)}"
    oracle.export(path, target, version=version, columns=columns)
    return pa.concat_tables([pq.read_table(file) for file in sorted(target.glob("*.parquet"))])


def delta_rs_rows(path: Path) -> pa.Table:
    """Return all rows as delta-rs reads them; its query engine knows the most features."""
    query = QueryBuilder().register("t", DeltaRsTable(str(path))).execute("SELECT * FROM t")
    return pa.table(query.read_all())


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Compare two tables as bags of rows, and name the rows that differ."""
    assert found.column_names == expected.column_names
    left, right = _texts(found), _texts(expected)
    missing, surplus = sorted(right - left)[:3], sorted(left - right)[:3]
    assert (missing, surplus) == ([], [])


def _texts(table: pa.Table) -> Counter[str]:
    """Count every row as a text that is equal only for equal values; -0.0 is not 0.0."""
    return Counter(repr(list(row.values())) for row in table.to_pylist())
