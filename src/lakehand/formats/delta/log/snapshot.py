"""A Delta table at one version, and its live files as one Arrow table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError
from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.log.commit_times import from_milliseconds, version_at
from lakehand.formats.delta.log.listing import decoded_paths, listed_once, read_commit, vector_id
from lakehand.formats.delta.log.log_source import LogSource, open_log_source
from lakehand.formats.delta.log.log_state import LogState, fold, load_soundly
from lakehand.formats.delta.log.replay import ROW_COUNT, live_relation, live_removes
from lakehand.formats.delta.protocol.actions import LATEST_MS, MOST_FILE_BYTES, transaction_versions
from lakehand.formats.delta.protocol.arrow_types import arrow_type, to_arrow
from lakehand.formats.delta.protocol.features import require_read, supported_features
from lakehand.formats.delta.protocol.names import OTHER_PATHS
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import (
    constraints_of,
    mapping_mode,
    parse_schema,
    physical_name,
    row_rules,
)
from lakehand.formats.delta.statistics.bounds import BoundsRequest, request_bounds
from lakehand.model.file_columns import FILE_COLUMNS
from lakehand.model.snapshot import Snapshot
from lakehand.model.table_head import TableHead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.formats.delta.protocol.actions import Metadata, Protocol
    from lakehand.formats.delta.protocol.schema import MappingMode, StructField, StructType
    from lakehand.storage import Store

#: Decoded path and identity of the deletion vector.
FileKey = tuple[str, str | None]

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_CODES = pa.dictionary(pa.int32(), pa.string())
_VECTOR_TYPE = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline", pa.string()),
        ("offset", pa.int32()),
        ("size_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
#: What only Delta knows of a file. After these come `partition_values`: the strings of the log for
#: each partition column, by its physical name.
NATIVE_TYPE = pa.struct(
    [
        ("raw_path", pa.string()),
        ("deletion_vector", _VECTOR_TYPE),
        ("tags", _TEXT_MAP),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
        (OTHER_PATHS, pa.list_(pa.string())),
    ]
)
#: Strings have offsets of 32 bits.
_MOST_JOINED = 2**31 - 1
_FACTS = tuple(name for name in FILE_COLUMNS if name != "path")
_MEMBERS = (
    "path",
    "size",
    ROW_COUNT,
    "modificationTime",
    "partitionValues",
    "deletionVector",
    "tags",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)


def read_file_table(
    source: LogSource,
    schema: StructType,
    metadata: Metadata,
    *,
    statistics: Sequence[str] = (),
    time_zone: str = "UTC",
) -> pa.Table:
    """Return the live files with the columns that `Snapshot.files` promises."""
    columns = _partition_fields(schema, metadata)
    mode = mapping_mode(metadata.configuration)
    bounds = request_bounds(statistics, schema, mode)
    names = [physical_name(column, mode=mode) for column in columns]
    raw = _read_slim(source.stream(_query(source, names, bounds)))
    _require_usable(source, raw)
    raw = listed_once(raw, source.table)
    facts = {name: raw.column(name).cast(FILE_COLUMNS[name]) for name in _FACTS}
    table = {
        "path": decoded_paths(raw),
        **facts,
        "partition": _partition(raw, columns, time_zone),
        "native": _native(raw, names),
    }
    if bounds is not None:
        table["bounds"] = raw.column("bounds").cast(bounds.type)
    pa.default_memory_pool().release_unused()
    return pa.table(table)


def _require_usable(source: LogSource, raw: pa.Table) -> None:
    """Refuse entries that lack what every entry has, or say what cannot be of any file."""
    sizes, vectors = raw.column("bytes"), raw.column("deletion_vector")
    bounds = pc.min_max(sizes)
    if sizes.null_count:
        raise source.unusable("it adds a file without a size")
    for size in (bounds["min"].as_py(), bounds["max"].as_py()):
        if size is not None and not 0 <= size <= MOST_FILE_BYTES:
            raise source.unusable(f"it adds a file of {size} bytes")
    if vectors.null_count == len(vectors):
        return
    known = vectors.drop_null()
    for member in ("storage_type", "path_or_inline", "size_bytes", "cardinality"):
        if pc.struct_field(known, member).null_count:
            raise source.unusable(f"it adds a file whose deletion vector has no {member}")


def take_rows(files: pa.Table, rows: Sequence[int]) -> pa.Table:
    """Return some of the files. `Table.take` would copy all of them into one piece first."""
    wanted = np.asarray(rows, np.int64)
    order = np.argsort(wanted, kind="stable")
    found, start = [files.slice(0, 0)], 0
    for batch in files.to_batches():
        first, last = np.searchsorted(wanted, (start, start + batch.num_rows), sorter=order)
        if first < last:
            here = pa.array(wanted[order[first:last]] - start)
            found.append(pa.Table.from_batches([batch.take(here)]))
        start += batch.num_rows
    place = np.empty(len(wanted), np.int64)
    place[order] = np.arange(len(wanted))
    return pa.concat_tables(found).combine_chunks().take(pa.array(place))


def file_keys(files: pa.Table) -> list[FileKey]:
    """Return what `actions.file_key` says of each file."""
    paths = files["path"].to_pylist()
    vectors = pc.struct_field(files["native"], "deletion_vector")
    if vectors.null_count == len(vectors):
        return [(path, None) for path in paths]
    return list(zip(paths, map(vector_id, vectors.to_pylist()), strict=True))


def _partition_fields(schema: StructType, metadata: Metadata) -> list[StructField]:
    names = [name.lower() for name in metadata.partition_columns]
    if len(set(names)) != len(names):
        raise CorruptLogError(f"the table names a partition column twice: {', '.join(names)}")
    fields = [(name, schema.find(name)) for name in metadata.partition_columns]
    for name, field in fields:
        if field is None:
            raise CorruptLogError(f"the partition column {name!r} is not in the table's schema")
    return [field for _, field in fields if field is not None]


def _query(
    source: LogSource,
    partition_names: Sequence[str],
    bounds: BoundsRequest | None,
) -> str:
    derived = bounds.parsed if bounds else {}
    asked = f", {bounds.selection} AS bounds" if bounds else ""
    partition = "".join(
        f", partitionValues[{quote_string(name)}] AS partition_{index}"
        for index, name in enumerate(partition_names)
    )
    return (
        f"SELECT path AS raw_path, nullif(path_key, path) AS decoded_path, "
        f'size AS bytes, "{ROW_COUNT}" AS rows, '
        "coalesce(deletionVector.cardinality, 0) AS deleted_rows, "
        f"make_timestamp_ms(least(greatest(modificationTime, 0), {LATEST_MS})) AS modified_at, "
        "CASE WHEN deletionVector IS NOT NULL THEN struct_pack("
        "storage_type := deletionVector.storageType, "
        "path_or_inline := deletionVector.pathOrInlineDv, "
        '"offset" := deletionVector."offset", size_bytes := deletionVector.sizeInBytes, '
        "cardinality := deletionVector.cardinality) END AS deletion_vector, "
        "tags, baseRowId AS base_row_id, defaultRowCommitVersion AS default_row_commit_version, "
        f"clusteringProvider AS clustering_provider{partition}{asked} "
        f"FROM {live_relation(source, 'add', _MEMBERS, derived=derived)}"
    )


def _partition(raw: pa.Table, columns: Sequence[StructField], time_zone: str) -> pa.Array:
    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    arrays = [
        parse_partition_values(raw.column(f"partition_{index}"), column.type, time_zone=time_zone)
        for index, column in enumerate(columns)
    ]
    if not fields:
        return _empty_structs(raw.num_rows)
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _empty_structs(count: int) -> pa.Array:
    nothing = pa.struct([])
    return pa.StructArray.from_buffers(nothing, count, [None], children=[])


def _native(raw: pa.Table, partition_names: Sequence[str]) -> pa.ChunkedArray:
    raw_values = [f"partition_{index}" for index in range(len(partition_names))]
    chunks = [
        _native_batch(batch, raw_values, partition_names)
        for batch in raw.select([*NATIVE_TYPE.names, *raw_values]).to_batches()
    ]
    return pa.chunked_array(chunks, type=_native_type(partition_names))


def _native_type(partition_names: Sequence[str]) -> pa.StructType:
    values = pa.struct([(name, _CODES) for name in partition_names])
    return pa.struct([*NATIVE_TYPE, ("partition_values", values)])


def _native_batch(
    batch: pa.RecordBatch, raw_values: Sequence[str], partition_names: Sequence[str]
) -> pa.StructArray:
    type_ = _native_type(partition_names)
    values = _empty_structs(batch.num_rows)
    if raw_values:
        values = pa.StructArray.from_arrays(
            [batch.column(name) for name in raw_values], fields=list(type_[-1].type)
        )
    arrays = [
        column if column.type == member.type else column.cast(member.type)
        for column, member in zip(batch.columns, NATIVE_TYPE, strict=False)
    ]
    return pa.StructArray.from_arrays([*arrays, values], fields=list(type_))


def _read_slim(reader: pa.RecordBatchReader) -> pa.Table:
    """Read all batches into little memory: there may be millions of files.

    Columns of nulls, of which a log has many, share their memory; partition values, which occur
    often, become codes.
    """
    nulls: dict[pa.DataType, pa.Array] = {}
    names = reader.schema.names
    schema = pa.schema(
        [(f.name, _CODES if f.name.startswith("partition_") else f.type) for f in reader.schema]
    )
    batches = (
        pa.RecordBatch.from_arrays([_slim(name, batch, nulls) for name in names], schema=schema)
        for batch in reader
    )
    table = pa.Table.from_batches(batches, schema=schema).unify_dictionaries()
    paths = table["raw_path"]
    # In one piece, from which few can be taken fast, if they fit into it.
    if paths.nbytes < _MOST_JOINED:
        paths = pa.chunked_array([paths.combine_chunks()])
    return table.set_column(0, "raw_path", paths)


def _slim(name: str, batch: pa.RecordBatch, nulls: dict[pa.DataType, pa.Array]) -> pa.Array:
    column, count = batch.column(name), batch.num_rows
    if name.startswith("partition_"):
        return column.dictionary_encode()
    has_none = name == "deleted_rows" and batch.column("deletion_vector").null_count == count
    if column.null_count < count and not has_none:
        # DuckDB's own buffers are half empty.
        return pa.concat_arrays([column, column.slice(0, 0)])
    if column.type not in nulls or len(nulls[column.type]) < count:
        nulls[column.type] = pa.nulls(count, column.type)
    shared = nulls[column.type]
    # The values behind nulls are zeros.
    buffers = [None, shared.buffers()[1]] if has_none else None
    return pa.Array.from_buffers(column.type, count, buffers) if buffers else shared[:count]


# The state of one version


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaState:
    """What only Delta knows of a version."""

    protocol: Protocol
    metadata: Metadata
    schema: StructType
    mapping_mode: MappingMode
    #: Newest `txn` action of every application.
    transactions: Mapping[str, Mapping[str, Any]]
    #: Configuration of every domain.
    domains: Mapping[str, str]
    segment: LogSegment
    #: Milliseconds since the epoch that the commit claims as its time; None where it claims none.
    in_commit_timestamp: int | None
    store: Store

    def tombstones(self) -> pa.Table:
        """Read the files that were removed and are still remembered, as the log spells them."""
        with live_removes(self.store, self.segment) as reader:
            return reader.read_all()


def load_snapshot(
    store: Store,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    statistics: Sequence[str] = (),
    partition_time_zone: str = "UTC",
) -> Snapshot:
    """Return the table at `version`, or as it was at `timestamp`, or now.

    `statistics` names the columns whose bounds are wanted; parsing them costs time.
    """
    if timestamp is not None:
        version = version_at(store, timestamp)
    return load_soundly(
        store, version, lambda segment: _load(store, segment, statistics, partition_time_zone)
    )


def load_state_at(store: Store, *, version: int | None = None) -> DeltaState:
    """Return what `version` (the newest if None) says apart from its files."""
    return load_soundly(store, version, lambda segment: load_state(store, segment))


def _load(store: Store, segment: LogSegment, statistics: Sequence[str], time_zone: str) -> Snapshot:
    with open_log_source(store, segment) as source:
        state = _read_state(source, store)
        require_read(state.protocol, state.metadata, table=store.url, operation="inspect")
        files = read_file_table(
            source, state.schema, state.metadata, statistics=statistics, time_zone=time_zone
        )
    return Snapshot(
        table=store.url,
        version=segment.version,
        at=_committed_at(segment, state.in_commit_timestamp),
        schema=to_arrow(state.schema),
        partition_columns=state.metadata.partition_columns,
        files=files,
        properties=state.metadata.configuration,
        native=state,
        table_id=state.metadata.id,
        rules=_rules(state),
        checkpoint_version=segment.checkpoint_version,
        details=_details(state),
    )


def _details(state: DeltaState) -> dict[str, Any]:
    """Return the columns of DESCRIBE DETAIL that only this format has."""
    metadata, protocol = state.metadata, state.protocol
    created = metadata.created_time
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "createdAt": None if created is None else from_milliseconds(created),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(supported_features(protocol)),
    }


def table_head(state: DeltaState) -> TableHead:
    """Return what writers must know of the version of `state`."""
    return TableHead(
        table=state.store.url,
        version=state.segment.version,
        schema=to_arrow(state.schema),
        partition_columns=tuple(state.metadata.partition_columns),
        row_rules=row_rules(state.metadata, state.schema, table=state.store.url),
        properties=state.metadata.configuration,
        table_id=state.metadata.id,
        rules=_rules(state),
        transactions=transaction_versions(
            state.transactions.values(), table=state.store.url, version=state.segment.version
        ),
        native=state,
    )


def _rules(state: DeltaState) -> str:
    """Return what files and rows must be like; without constraints as it ever was."""
    constraints = constraints_of(state.metadata)
    rules = [state.protocol.to_json(), state.metadata.lasting_schema()]
    return json.dumps([*rules, constraints] if constraints else rules)


def load_state(store: Store, segment: LogSegment) -> DeltaState:
    """Return what a segment says apart from its files."""
    with open_log_source(store, segment) as source:
        return _read_state(source, store)


def _read_state(source: LogSource, store: Store) -> DeltaState:
    segment = source.segment
    folded = fold(source.other_actions(), table=store.url, version=segment.version)
    return DeltaState(
        protocol=folded.protocol,
        metadata=folded.metadata,
        schema=parse_schema(folded.metadata.schema_string),
        mapping_mode=mapping_mode(folded.metadata.configuration),
        transactions=folded.transactions,
        domains=folded.domains,
        segment=segment,
        in_commit_timestamp=_in_commit_timestamp(store, segment, folded),
        store=store,
    )


def _in_commit_timestamp(store: Store, segment: LogSegment, state: LogState) -> int | None:
    if not state.uses_in_commit_timestamps:
        return None
    if state.commit_info is None and segment.version in segment.commit_modified_at:
        return read_commit(store, segment.version).in_commit_timestamp
    value = (state.commit_info or {}).get("inCommitTimestamp")
    return None if value is None else int(value)


def _committed_at(segment: LogSegment, in_commit_timestamp: int | None) -> datetime:
    if in_commit_timestamp is not None:
        return from_milliseconds(in_commit_timestamp)
    if segment.version in segment.commit_modified_at:
        return segment.commit_modified_at[segment.version]
    # The commit of a checkpoint's own version may be cleaned away.
    return segment.checkpoint.modified_at  # type: ignore[union-attr]
