"""Logs written line by line: for tests that need one exact action and no data files."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.protocol.names import commit_key, version_prefix
from lakehand.storage import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.storage import Store

Action = dict[str, Any]
_names = itertools.count()


def field(name: str, type_: Any, **metadata: Any) -> Action:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def metadata(
    *fields: Action, partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
) -> Action:
    schema = {"type": "struct", "fields": list(fields) or [field("id", "long")]}
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(partition_by),
            "configuration": dict(properties or {}),
            "createdTime": 1_700_000_000_000,
        }
    }


def protocol(*features: str, reader: Sequence[str] = ()) -> Action:
    """Return a protocol that lists `features` for writers, and those of `reader` for both."""
    if not features and not reader:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(reader),
            "writerFeatures": [*features, *reader],
        }
    }


def add(path: str, *, rows: int = 1, **members: Any) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 100,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
            **members,
        }
    }


def remove(path: str, *, at_ms: int, **members: Any) -> Action:
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": at_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": 100,
            **members,
        }
    }


def new_log(*commits: Sequence[Action]) -> MemoryStore:
    """Return a table in memory whose log has these commits, from version 0 on."""
    store = MemoryStore(f"hand-written-{next(_names)}")
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
    return store


def put_commit(store: Store, version: int, *actions: Action) -> None:
    info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
    lines = [json.dumps(action) for action in (info, *actions)]
    store.put_if_absent(commit_key(version), "\n".join(lines).encode())


def compaction_key(first: int, last: int) -> str:
    return f"{version_prefix(first)}.{last:020d}.compacted.json"
