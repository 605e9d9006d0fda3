"""Tables whose files come from writers that agree on little: each a model of its own rows.

Everything follows from a few drawn traits and a seed. The log is written by hand, so that files can
be of any shape that some writer makes: columns missing, surplus, in another order or of narrower
types, old timestamps, other names inside of lists, any codec, page version and row group size.
"""

from __future__ import annotations

import json
import random
import urllib.parse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.storage import open_store
from support.exact_values import arrow_array
from support.random_values import TYPES, Values
from support.small_tables import commit_by_hand
from support.stored_columns import Style, store_column
from support.table_columns import Column, Mode, any_leaf, columns_of, schema_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Row = tuple[Any, ...]
ROW_ID_COLUMN, ROW_VERSION_COLUMN = "_row-id-col-1", "_row-commit-version-col-1"
_PARTITION_TEXTS = [None, "", "a/b c", "ü=%41#?:", "plain", "__HIVE_DEFAULT_PARTITION__"]
#: A column that the table knows nothing of, any more.
_SURPLUS = pa.field("surplus", pa.int32(), metadata={"PARQUET:field_id": "2000"})
_CODECS = ("none", "snappy", "zstd", "gzip")
_DIRECTORIES = ("", "a dir", "per%20cent", "p=%C3%A4")
#: Spark's marks of the calendar that a file is in.
MARKERS: tuple[dict[str, str], ...] = (
    {},
    {"org.apache.spark.version": "4.2.0"},
    {
        "org.apache.spark.version": "3.5.0",
        "org.apache.spark.legacyDateTime": "",
        "org.apache.spark.legacyINT96": "",
        "org.apache.spark.timeZone": "America/Los_Angeles",
    },
)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is drawn of a table; the rest follows from `seed`."""

    types: list[pa.DataType]
    seed: int
    file_count: int
    rows_a_file: int
    mode: Mode
    is_partitioned: bool
    tracks_rows: bool
    markers: Mapping[str, str]


TRAITS = st.builds(
    Traits,
    types=st.lists(TYPES, min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
    file_count=st.integers(1, 6),
    rows_a_file=st.integers(0, 30),
    mode=st.sampled_from(["none", "none", "name", "id"]),
    is_partitioned=st.booleans(),
    tracks_rows=st.sampled_from([False, False, True]),
    markers=st.sampled_from(MARKERS),
)


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A file as it was written, and what the log says of it."""

    path: str
    #: All rows, deleted ones too, partition value last.
    rows: list[Row]
    deleted: frozenset[int]
    base_row_id: int


@dataclass(kw_only=True)
class ModelTable:
    """A table, and the rows that it holds."""

    path: Path
    traits: Traits
    columns: tuple[Column, ...]
    files: list[ModelFile] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        return self.traits.mode

    @property
    def rows(self) -> list[Row]:
        """Visible rows; their ids and versions last, where the table tracks them."""
        found = []
        for version, file in enumerate(self.files, start=1):
            for position, row in enumerate(file.rows):
                identity = (file.base_row_id + position, version)
                if position not in file.deleted:
                    found.append(row + (identity if self.traits.tracks_rows else ()))
        return found


def make_random_table(path: Path, traits: Traits) -> ModelTable:
    """Write a table, one commit a file."""
    fields = {f"c {i}.é": kind for i, kind in enumerate(traits.types)}
    table = ModelTable(path=path, traits=traits, columns=columns_of(pa.schema(fields)))
    (path / "_delta_log").mkdir(parents=True)
    commit_by_hand(path, _protocol(traits), _metadata(table))
    rng = random.Random(traits.seed)
    for number in range(traits.file_count):
        _add_file(table, rng, number)
    return table


def partition_column(table: ModelTable) -> Column:
    return Column(name="part", type=pa.string(), id=1000)


def _protocol(traits: Traits) -> dict[str, Any]:
    reader = ["deletionVectors", "timestampNtz", "typeWidening"]
    reader += ["columnMapping"] if traits.mode != "none" else []
    writer = ["rowTracking", "domainMetadata"] if traits.tracks_rows else []
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": reader,
            "writerFeatures": reader + writer,
        }
    }


def _metadata(table: ModelTable) -> dict[str, Any]:
    traits = table.traits
    columns = table.columns + ((partition_column(table),) if traits.is_partitioned else ())
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": traits.mode}
    if traits.tracks_rows:
        properties["delta.enableRowTracking"] = "true"
        properties["delta.rowTracking.materializedRowIdColumnName"] = ROW_ID_COLUMN
        properties["delta.rowTracking.materializedRowCommitVersionColumnName"] = ROW_VERSION_COLUMN
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema_json(columns, traits.mode)),
            "partitionColumns": ["part"] if traits.is_partitioned else [],
            "configuration": {**properties, "delta.columnMapping.maxColumnId": "1000"},
            "createdTime": 0,
        }
    }


def _add_file(table: ModelTable, rng: random.Random, number: int) -> None:
    traits = table.traits
    count = rng.choice([traits.rows_a_file, rng.randint(0, traits.rows_a_file)])
    values = Values(rng, nulls=rng.choice([0.0, 0.2, 1.0]))
    missing = {column.id for column in table.columns if rng.random() < 0.15}
    columns = {
        column.id: [None if column.id in missing else values.of(column.type) for _ in range(count)]
        for column in table.columns
    }
    raw = rng.choice(_PARTITION_TEXTS) if traits.is_partitioned else None
    parts = [[raw or None] * count] if traits.is_partitioned else []
    base = sum(len(file.rows) for file in table.files)
    is_worn = count and rng.random() < 0.5
    deleted = frozenset(rng.sample(range(count), rng.randint(1, count)) if is_worn else ())
    directory = rng.choice(_DIRECTORIES)
    path = f"{directory}/part-{number}.parquet" if directory else f"part-{number}.parquet"
    rows = list(zip(*columns.values(), *parts, strict=True))
    file = ModelFile(path=path, rows=rows, deleted=deleted, base_row_id=base)
    _write_file(table, rng, file, {i: v for i, v in columns.items() if i not in missing})
    table.files.append(file)
    _commit(table, file, raw)


def _write_file(
    table: ModelTable, rng: random.Random, file: ModelFile, columns: Mapping[int, list[Any]]
) -> None:
    style = Style.random(rng, table.mode)
    stored = [
        store_column(column, columns[column.id], style)
        for column in table.columns
        if column.id in columns
    ]
    if rng.random() < 0.3 or not stored:
        stored.append((_SURPLUS, [7] * len(file.rows)))
    if style.reorders:
        rng.shuffle(stored)
    arrays = [arrow_array(values, kept.type) for kept, values in stored]
    rows = pa.Table.from_arrays(arrays, schema=pa.schema([kept for kept, _ in stored]))
    target = table.path / file.path
    target.parent.mkdir(exist_ok=True)
    markers = {} if table.traits.markers is None else dict(table.traits.markers)
    with pq.ParquetWriter(target, rows.schema, **_layout(rng, rows.schema)) as writer:
        writer.write_table(rows, row_group_size=rng.choice([3, 1000]))
        writer.add_key_value_metadata(markers)


def _layout(rng: random.Random, schema: pa.Schema) -> dict[str, Any]:
    """Return options of a writer; instants may be written as in old times."""
    has_clocks = any(any_leaf(kept.type, _is_clock) for kept in schema)
    return {
        "compression": rng.choice(_CODECS),
        "use_dictionary": rng.random() < 0.5,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "store_schema": rng.random() < 0.5,
        "use_compliant_nested_type": rng.random() < 0.7,
        "store_decimal_as_integer": rng.random() < 0.5,
        "write_page_index": rng.random() < 0.5,
        "write_page_checksum": rng.random() < 0.5,
        "use_deprecated_int96_timestamps": not has_clocks and rng.random() < 0.3,
    }


def _is_clock(kind: pa.DataType) -> bool:
    return bool(pat.is_timestamp(kind) and kind.tz is None)


def _commit(table: ModelTable, file: ModelFile, raw: str | None) -> None:
    names = (
        [partition_column(table).physical_name(table.mode)] if table.traits.is_partitioned else []
    )
    version = len(table.files)
    add: dict[str, Any] = {
        "path": urllib.parse.quote(file.path),
        "partitionValues": dict.fromkeys(names, raw),
        "size": (table.path / file.path).stat().st_size,
        "modificationTime": version,
        "dataChange": True,
        "stats": json.dumps({"numRecords": len(file.rows)}),
    }
    if file.deleted:
        add["stats"] = json.dumps({"numRecords": len(file.rows), "tightBounds": False})
        [vector] = write_deletion_vectors(open_store(table.path), [BitMap64(sorted(file.deleted))])
        add["deletionVector"] = vector.to_json()
    actions: list[dict[str, Any]] = [{"add": add}]
    if table.traits.tracks_rows:
        add |= {"baseRowId": file.base_row_id, "defaultRowCommitVersion": version}
        mark = {"rowIdHighWaterMark": file.base_row_id + len(file.rows) - 1}
        domain = {"domain": "delta.rowTracking", "configuration": json.dumps(mark)}
        actions.append({"domainMetadata": {**domain, "removed": False}})
    commit_by_hand(table.path, *actions)
