"""The live files of a version as one Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError
from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.log.listing import decoded_paths, listed_once, vector_id
from lakehand.formats.delta.log.replay import ROW_COUNT, live_relation
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.members import LATEST_MS, MOST_FILE_BYTES
from lakehand.formats.delta.protocol.names import OTHER_PATHS
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import mapping_mode, physical_name
from lakehand.formats.delta.statistics.bounds import request_bounds
from lakehand.model.file_columns import FILE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.log.source import LogSource
    from lakehand.formats.delta.protocol.actions import Metadata
    from lakehand.formats.delta.protocol.schema import MappingMode, StructField, StructType
    from lakehand.formats.delta.statistics.bounds import BoundsRequest

#: Decoded path and identity of the deletion vector.
FileKey = tuple[str, str | None]

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_VECTOR_TYPE = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline", pa.string()),
        ("offset", pa.int32()),
        ("size_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
#: What only Delta knows of a file.
NATIVE_TYPE = pa.struct(
    [
        ("raw_path", pa.string()),
        ("partition_values", _TEXT_MAP),
        ("deletion_vector", _VECTOR_TYPE),
        ("tags", _TEXT_MAP),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
        (OTHER_PATHS, pa.list_(pa.string())),
    ]
)
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
    raw = source.stream(_query(source, columns, mode, bounds)).read_all()
    _require_usable(source, raw)
    raw = listed_once(raw, source.table)
    facts = {name: raw.column(name).cast(FILE_COLUMNS[name]) for name in _FACTS}
    table = {
        "path": decoded_paths(raw),
        **facts,
        "partition": _partition(raw, columns, time_zone),
        "native": _native(raw),
    }
    if bounds is not None:
        table["bounds"] = raw.column("bounds").cast(bounds.type)
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
    columns: Sequence[StructField],
    mode: MappingMode,
    bounds: BoundsRequest | None,
) -> str:
    derived = bounds.parsed if bounds else {}
    asked = f", {bounds.selection} AS bounds" if bounds else ""
    partition = "".join(
        f", partitionValues[{quote_string(physical_name(column, mode=mode))}] AS partition_{index}"
        for index, column in enumerate(columns)
    )
    return (
        f"SELECT path AS raw_path, nullif(path_key, path) AS decoded_path, "
        f'size AS bytes, "{ROW_COUNT}" AS rows, '
        "coalesce(deletionVector.cardinality, 0) AS deleted_rows, "
        f"make_timestamp_ms(least(greatest(modificationTime, 0), {LATEST_MS})) AS modified_at, "
        "coalesce(partitionValues, MAP {}) AS partition_values, "
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


def _native(raw: pa.Table) -> pa.ChunkedArray:
    members = raw.select([member.name for member in NATIVE_TYPE])
    chunks = [_native_batch(batch) for batch in members.to_batches()]
    return pa.chunked_array(chunks, type=NATIVE_TYPE)


def _native_batch(batch: pa.RecordBatch) -> pa.StructArray:
    arrays = [
        column if column.type == member.type else column.cast(member.type)
        for column, member in zip(batch.columns, NATIVE_TYPE, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(NATIVE_TYPE))
