"""Actions as rows of a checkpoint, batch by batch, and the columns that hold them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.duckdb_pool import connect
from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import DeltaType, Leaf, PrimitiveType
from lakehand.formats.delta.statistics.merge import STATISTICS_MEMBERS, has_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


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
    members = []
    for member in STATISTICS_MEMBERS:
        if member.needs_deletion_vectors and not tight_bounds:
            continue
        if not member.is_by_column:
            members.append((member.name, arrow_type(member.type)))
            continue
        columns = _nested(
            (leaf.physical_path, arrow_type(leaf.type if member.is_bound else member.type))
            for leaf in counted
            if has_bounds(leaf.type) or not member.is_bound
        )
        if columns.num_fields:
            members.append((member.name, columns))
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


_MAPS = frozenset({"configuration", "options", "partitionValues", "tags"})


def file_rows(kind: str, actions: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return file actions, given as one column a member, as rows with the columns of `schema`."""
    type_ = schema.field(kind).type
    members = [_member(actions, member) for member in type_]
    structs = pa.StructArray.from_arrays(members, fields=list(type_))
    return _rows({kind: structs}, len(structs), schema)


def action_rows(actions: Sequence[tuple[str, Mapping[str, Any]]], schema: pa.Schema) -> pa.Table:
    """Return actions that name no file as rows with the columns of `schema`."""
    columns = {
        kind: _array([as_pairs(value) if kind == of else None for of, value in actions], type_)
        for kind, type_ in NON_FILE_KINDS.items()
    }
    return _rows(columns, len(actions), schema)


def in_groups(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Divide a stream of tables into tables of `rows` rows; the last one may be shorter."""
    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        pending.append(table)
        count += table.num_rows
        if count < rows:
            continue
        whole = pa.concat_tables(pending)
        full = count - count % rows
        yield from (whole.slice(start, rows) for start in range(0, full, rows))
        pending, count = [whole.slice(full)], count - full
    if count:
        yield pa.concat_tables(pending)


def parse_statistics(texts: pa.ChunkedArray, type_: pa.StructType) -> pa.Array:
    """Return the statistics, given as JSON, as structs of `type_`.

    What is absent or cannot be read becomes null, which readers take for unknown. Decimals are
    exact, because the text of a number is never read as a float on its way.
    """
    with connect() as connection:
        connection.register("statistics", pa.table({"texts": texts}))
        valid = "CASE WHEN json_valid(texts) THEN texts END"
        parsed = connection.sql(
            f"SELECT from_json({valid}, ?) AS parsed FROM statistics",
            params=[json_structure(type_)],
        )
        column = parsed.to_arrow_table().column("parsed")
    return _whole(column.cast(type_))


def parse_partitions(values: pa.ChunkedArray, columns: Mapping[str, DeltaType]) -> pa.Array:
    """Return raw partition values as structs with a typed member for each of `columns`."""
    maps = _whole(values)
    members = [
        parse_partition_values(pa.chunked_array([pc.map_lookup(maps, name, "first")]), type_)
        for name, type_ in columns.items()
    ]
    return pa.StructArray.from_arrays(members, names=list(columns))


def _member(actions: pa.Table, member: pa.Field) -> pa.Array:
    if member.name not in actions.column_names:
        return pa.nulls(actions.num_rows, member.type)
    column = actions.column(member.name)
    return _whole(column if column.type == member.type else column.cast(member.type))


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"an action of the log has a value that does not fit its type: {error}",
            hint="no checkpoint was written; other engines may not read the table either: correct"
            " the value in its commit, and keep a copy of the file",
        ) from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _rows(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.Table:
    arrays = [columns.get(column.name, pa.nulls(count, column.type)) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def as_pairs(value: Any) -> Any:
    """Turn objects that are maps in the schema into the pairs that pyarrow asks for."""
    if not isinstance(value, dict):
        return value
    return {
        name: list(member.items())
        if name in _MAPS and isinstance(member, dict)
        else as_pairs(member)
        for name, member in value.items()
    }
