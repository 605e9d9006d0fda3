"""Checkpoints written with pyarrow alone: a second opinion beside the writer of lakehand."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.formats.delta.protocol.names import (
    classic_checkpoint_key,
    sidecar_key,
    v2_checkpoint_key,
    version_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.storage import Store

Action = dict[str, Any]
KINDS = ("classic", "multipart", "v2-json", "v2-parquet", "v2-inline")

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", _TEXTS),
        ("deletionVector", _VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
        ("stats", pa.string()),
    ]
)
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)
_FEATURES = pa.list_(pa.string())
_OTHERS = {
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _FEATURES),
            ("writerFeatures", _FEATURES),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _TEXTS),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct(
        [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
}
_V2 = {
    "checkpointMetadata": pa.struct([("version", pa.int64())]),
    "sidecar": pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
    ),
}


def put_checkpoint(
    store: Store, version: int, actions: Sequence[Action], kind: str = "classic", *, add: Any = ADD
) -> list[str]:
    """Write a checkpoint of one of KINDS that holds `actions`; return its keys, top file first."""
    if kind == "classic":
        key = classic_checkpoint_key(version)
        store.put(key, parquet_bytes(actions, {**_OTHERS, "add": add, "remove": REMOVE}))
        return [key]
    if kind == "multipart":
        return _put_parts(store, version, actions)
    return _put_v2(store, version, actions, kind)


def _put_parts(store: Store, version: int, actions: Sequence[Action]) -> list[str]:
    keys = []
    for part, chosen in enumerate((actions[::2], actions[1::2]), start=1):
        keys.append(f"{version_prefix(version)}.checkpoint.{part:010d}.{2:010d}.parquet")
        store.put(keys[-1], parquet_bytes(chosen, {**_OTHERS, "add": ADD, "remove": REMOVE}))
    return keys


def _put_v2(store: Store, version: int, actions: Sequence[Action], kind: str) -> list[str]:
    files = [action for action in actions if action.keys() & {"add", "remove"}]
    others = [action for action in actions if action not in files]
    top = [{"checkpointMetadata": {"version": version}}, *others]
    if kind == "v2-inline":
        key = v2_checkpoint_key(version, "abc-1", "json")
        store.put(key, json_lines([*top, *files]))
        return [key]
    sidecars = []
    for part, chosen in enumerate((files[::2], files[1::2])):
        sidecars.append(f"{version}-{part}.parquet")
        data = parquet_bytes(chosen, {"add": ADD, "remove": REMOVE})
        store.put(sidecar_key(sidecars[-1]), data)
    top += [{"sidecar": {"path": name, "sizeInBytes": 1}} for name in sidecars]
    key = v2_checkpoint_key(version, "abc-1", kind.removeprefix("v2-"))
    is_json = kind == "v2-json"
    store.put(key, json_lines(top) if is_json else parquet_bytes(top, {**_OTHERS, **_V2}))
    return [key, *(sidecar_key(name) for name in sidecars)]


def json_lines(actions: Sequence[Action]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def parquet_bytes(actions: Sequence[Action], columns: dict[str, pa.DataType]) -> bytes:
    arrays = {
        kind: pa.array([_pairs(action.get(kind), type_) for action in actions], type_)
        for kind, type_ in columns.items()
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


def _pairs(value: Any, type_: pa.DataType) -> Any:
    """Turn dicts into the pairs that pyarrow asks for where the type is a map."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return list(value.items())
    if pa.types.is_struct(type_):
        return {member.name: _pairs(value.get(member.name), member.type) for member in type_}
    return value
