"""Small changes, heads and commits, for tests that look at one thing of them."""

from __future__ import annotations

import json
from typing import Any

from lakehand.formats.delta.commits.head import Head
from lakehand.formats.delta.protocol.actions import Commit, Metadata, Protocol
from lakehand.model.work import Change, DataFile, Replacement, StagedFile, Transaction

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


def metadata(*, fields: list[dict[str, Any]] | None = None, **changes: Any) -> Metadata:
    schema = {"type": "struct", "fields": fields} if fields is not None else SCHEMA
    return Metadata(**{"id": "table-1", "schema_string": json.dumps(schema), **changes})


def protocol(*writer_features: str, reader_features: tuple[str, ...] = ()) -> Protocol:
    if not writer_features:
        return Protocol(min_reader_version=1, min_writer_version=2)
    return Protocol(
        min_reader_version=3 if reader_features else 1,
        min_writer_version=7,
        reader_features=reader_features or None,
        writer_features=writer_features,
    )


def head(version: int = 5, **changes: Any) -> Head:
    values = {"protocol": protocol(), "metadata": metadata(), **changes}
    return Head(table="memory://t", version=version, **values)


def stats(rows: int) -> str:
    return json.dumps({"numRecords": rows})


def live_file(path: str, *, rows: int = 10, deleted_rows: int = 0, **add: Any) -> DataFile:
    entry = {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": 1,
        "dataChange": True,
        "stats": stats(rows),
        **add,
    }
    return DataFile(
        path=path, bytes=entry["size"], rows=rows, deleted_rows=deleted_rows, native={"add": entry}
    )


def staged_file(path: str, *, rows: int = 10, size: int = 100, **native: Any) -> StagedFile:
    values = {"partitionValues": {}, "stats": stats(rows), **native}
    return StagedFile(path=path, bytes=size, rows=rows, native=values)


def replacement(group: int, *inputs: str, output: str | None = None) -> Replacement:
    """Return a group whose input files become one output file."""
    output = output or f"out-{group}.parquet"
    removes = tuple(live_file(path) for path in inputs)
    return Replacement(
        group=group, removes=removes, adds=(staged_file(output, rows=10 * len(inputs)),)
    )


def rewrite(*replacements: Replacement, base_version: int = 5, **changes: Any) -> Change:
    return Change(
        kind="rewrite",
        base_version=base_version,
        replacements=replacements,
        **{"operation": "OPTIMIZE", **changes},
    )


def append(*paths: str, base_version: int = 5, txn: tuple[str, int] | None = None) -> Change:
    return Change(
        kind="append",
        base_version=base_version,
        operation="WRITE",
        parameters={"mode": "Append", "partitionBy": []},
        adds=tuple(staged_file(path) for path in paths),
        transaction=Transaction(application=txn[0], version=txn[1]) if txn else None,
    )


def overwrite(*, removes: tuple[str, ...], adds: tuple[str, ...], **changes: Any) -> Change:
    return Change(
        operation="WRITE",
        removes=tuple(live_file(path) for path in removes),
        adds=tuple(staged_file(path) for path in adds),
        **{"kind": "overwrite", "base_version": 5, **changes},
    )


def commit(
    version: int = 6,
    *,
    adds: tuple[str, ...] = (),
    removes: tuple[str, ...] = (),
    data_change: bool = True,
    **values: Any,
) -> Commit:
    return Commit(
        version=version,
        adds=tuple({"path": path, "dataChange": data_change} for path in adds),
        removes=tuple({"path": path, "dataChange": data_change} for path in removes),
        **{"commit_info": None, **values},
    )
