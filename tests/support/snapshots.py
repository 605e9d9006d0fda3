"""Snapshots made by hand, for what needs no table."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from lakehand.model.file_columns import FILE_COLUMNS
from lakehand.model.snapshot import Snapshot

MIB = 2**20


def make_snapshot(files, *, partition_columns=(), version=0, checkpoint_version=None):
    """Make a snapshot of files given as dicts; what is left out gets a plain value."""
    usual = {"path": "f", "bytes": MIB, "rows": 100, "deleted_rows": 0}
    usual["modified_at"] = datetime(2026, 1, 1, tzinfo=UTC)
    partition = pa.struct([(name, pa.string()) for name in partition_columns])
    columns = [*FILE_COLUMNS.items(), ("partition", partition)]
    records = [{**usual, "partition": {}, **file} for file in files]
    return Snapshot(
        table="memory://t",
        version=version,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        schema=pa.schema([]),
        partition_columns=tuple(partition_columns),
        files=pa.Table.from_pylist(records, schema=pa.schema(columns)),
        properties={},
        native=None,
        checkpoint_version=checkpoint_version,
    )
