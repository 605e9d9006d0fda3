"""The columns of a checkpoint: one row an action, one struct column a kind of action."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.files.statistics_rules import has_bounds
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import Leaf

__all__ = [
    "ADD_FIELDS",
    "NON_FILE_KINDS",
    "REMOVE_FIELDS",
    "checkpoint_schema",
    "json_structure",
    "statistics_type",
]

_TEXTS = pa.map_(pa.string(), pa.string())

_DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

#: Members of `add` that every checkpoint has; statistics follow them.
ADD_FIELDS: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": _TEXTS,
    "deletionVector": _DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
}

#: Members of `remove`. A tombstone in a checkpoint has neither statistics nor tags.
REMOVE_FIELDS: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "deletionVector": _DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}

_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_DOMAIN = pa.struct(
    [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
)

#: Kinds of action that name no file, in the order of the columns.
NON_FILE_KINDS: Mapping[str, pa.DataType] = {
    "txn": _TXN,
    "metaData": _METADATA,
    "protocol": _PROTOCOL,
    "domainMetadata": _DOMAIN,
}


def checkpoint_schema(
    *,
    statistics_json: bool,
    statistics_struct: pa.StructType | None,
    partition_struct: pa.StructType,
    sidecar: bool = False,
) -> pa.Schema:
    """Return the columns of a checkpoint, or of a sidecar, which holds file actions only."""
    members = list(ADD_FIELDS.items())
    if statistics_json:
        members.append(("stats", pa.string()))
    if statistics_struct is not None:
        members.append(("stats_parsed", statistics_struct))
    if partition_struct.num_fields:
        members.append(("partitionValues_parsed", partition_struct))
    files = [("add", pa.struct(members)), ("remove", pa.struct(list(REMOVE_FIELDS.items())))]
    return pa.schema(files if sidecar else [*files, *NON_FILE_KINDS.items()])


def statistics_type(leaves: Sequence[Leaf], *, tight_bounds: bool) -> pa.StructType:
    """Return the type of `stats_parsed` for the columns that have statistics.

    `tight_bounds`: the table has deletion vectors, so that statistics say whether they are tight.
    """
    counted = [leaf for leaf in leaves if leaf.type != PrimitiveType("void")]
    bounds = _nested(
        (leaf.physical_path, arrow_type(leaf.type)) for leaf in counted if has_bounds(leaf.type)
    )
    nulls = _nested((leaf.physical_path, pa.int64()) for leaf in counted)
    members = [("numRecords", pa.int64())]
    if bounds.num_fields:
        members += [("minValues", bounds), ("maxValues", bounds)]
    if nulls.num_fields:
        members.append(("nullCount", nulls))
    if tight_bounds:
        members.append(("tightBounds", pa.bool_()))
    return pa.struct(members)


def json_structure(type_: pa.DataType) -> str:
    """Return the structure of `type_` as DuckDB's `from_json` takes it."""
    return json.dumps(_structure(type_))


def _nested(leaves: Iterable[tuple[tuple[str, ...], pa.DataType]]) -> pa.StructType:
    tree: dict[str, Any] = {}
    for (*parents, name), type_ in leaves:
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = type_
    return _struct(tree)


def _struct(tree: Mapping[str, Any]) -> pa.StructType:
    return pa.struct(
        [(name, _struct(node) if isinstance(node, dict) else node) for name, node in tree.items()]
    )


def _structure(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return {member.name: _structure(member.type) for member in type_}
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _DUCKDB_TYPES[type_]


_DUCKDB_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
}
