"""Tables in a directory whose files and log are both made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.storage import open_store
from support.hand_written_logs import add, metadata, protocol
from support.small_tables import commit_by_hand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyroaring import BitMap64

FEATURES = ("deletionVectors", "timestampNtz", "typeWidening")


def make_by_hand(
    path: Path,
    *columns: Mapping[str, Any],
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Path:
    """Write the first commit of a table."""
    (path / "_delta_log").mkdir(parents=True)
    first = metadata(*columns, partition_by=partition_by, properties=properties)
    commit_by_hand(path, protocol(reader=FEATURES), first)
    return path


def add_by_hand(
    path: Path,
    rows: pa.Table | dict[str, Any],
    *,
    key_values: Mapping[str, str] | None = None,
    partition: Mapping[str, str | None] | None = None,
    deleted: BitMap64 | None = None,
    **layout: Any,
) -> str:
    """Write one file in a commit of its own; returns its name."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    name = f"part-{len(list(path.glob('part-*'))):03}.parquet"
    with pq.ParquetWriter(path / name, table.schema, **layout) as writer:
        if table.num_rows:
            writer.write_table(table)
        writer.add_key_value_metadata(dict(key_values or {}))
    members: dict[str, Any] = {
        "size": (path / name).stat().st_size,
        "partitionValues": dict(partition or {}),
    }
    if deleted:
        [vector] = write_deletion_vectors(open_store(path), [deleted])
        members["deletionVector"] = vector.to_json()
    action = add(name, rows=table.num_rows, **members)
    if deleted:
        stats = {"numRecords": table.num_rows, "tightBounds": False}
        action["add"]["stats"] = json.dumps(stats)
    commit_by_hand(path, action)
    return name
