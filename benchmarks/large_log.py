"""A log with as many files as wanted: one checkpoint, and commits after it. No data files exist."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
COMMITS_AFTER = 20
FILES_A_COMMIT = 50
BATCH_FILES = 100_000
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("amount", "double"), ("day", "date"))
    ],
}
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {
    "id": "00000000-0000-4000-8000-000000000000",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": 1_767_225_600_000,
}
TEXT_MAP = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema(
    [
        ("protocol", pa.struct([(name, pa.int32()) for name in PROTOCOL])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", TEXT_MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", TEXT_MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
    ]
)  # fmt: skip


def make_log(
    directory: Path, *, file_count: int, partition_count: int = 1000, column_count: int = 0
) -> Path:
    """Return a table whose checkpoint holds `file_count` files; made once and then kept.

    It has `column_count` more columns, and statistics of all.
    """
    table = directory / f"log-{file_count}-{partition_count}-{column_count}"
    log = table / "_delta_log"
    if (log / "_last_checkpoint").exists():
        return table
    log.mkdir(parents=True, exist_ok=True)
    more = [{**SCHEMA["fields"][0], "name": name} for name in _names(column_count)]
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"], *more]}
    metadata = {**METADATA, "schemaString": json.dumps(schema)}
    _write_commit(log, 0, [{"protocol": PROTOCOL}, {"metaData": metadata}])
    numbers = (file_count, partition_count, column_count)
    _write_checkpoint(log / f"{0:020}.checkpoint.parquet", metadata, *numbers)
    for version in range(1, COMMITS_AFTER + 1):
        first = file_count + version * FILES_A_COMMIT
        adds = _adds(first, FILES_A_COMMIT, partition_count, column_count).to_pylist()
        _write_commit(log, version, [{"add": _as_json(add)} for add in adds])
    pointer = {"version": 0, "size": file_count + 2}
    (log / "_last_checkpoint").write_text(json.dumps(pointer))
    return table


def _names(column_count: int) -> list[str]:
    return [f"column_{number:04}" for number in range(column_count)]


def _write_commit(log: Path, version: int, actions: list[dict]) -> None:
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020}.json").write_text(lines)


def _write_checkpoint(
    path: Path, metadata: dict, file_count: int, partition_count: int, column_count: int
) -> None:
    head = [{"protocol": PROTOCOL}, {"metaData": {**metadata, "configuration": []}}]
    head[1]["metaData"]["format"] = {"provider": "parquet", "options": []}
    with pq.ParquetWriter(path, CHECKPOINT, compression="snappy") as writer:
        writer.write_table(pa.Table.from_pylist(head, schema=CHECKPOINT))
        for start in range(0, file_count, BATCH_FILES):
            count = min(BATCH_FILES, file_count - start)
            adds = _adds(start, count, partition_count, column_count)
            nothing = [
                pa.nulls(len(adds), CHECKPOINT.field(name).type) for name in CHECKPOINT.names
            ]
            columns = [*nothing[:2], adds]
            writer.write_table(pa.Table.from_arrays(columns, schema=CHECKPOINT))


def _adds(start: int, count: int, partition_count: int, column_count: int) -> pa.StructArray:
    """Make adds of which nine in ten are small, over as many days as there are partitions."""
    chance = np.random.default_rng(start)
    ids = np.arange(start, start + count)
    day = np.datetime_as_string(np.datetime64("2024-01-01") + ids % partition_count)
    size = np.where(ids % 10, chance.integers(MIB // 8, 8 * MIB, count), 120 * MIB)
    text = pa.array(ids).cast(pa.string())
    path = _join(
        "day=", pa.array(day), "/part-", pc.utf8_lpad(text, 10, "0"), "-c000.snappy.parquet"
    )
    bounds = _join('{"id":', text, ',"amount":0.5')
    for name in _names(column_count):
        bounds = _join(bounds, f',"{name}":', text)
    bounds = _join(bounds, "}")
    stats = _join('{"numRecords":', pa.array(size // 64).cast(pa.string()), ',"minValues":', bounds,
                  ',"maxValues":', bounds, ',"nullCount":{"id":0,"amount":3}}')  # fmt: skip
    offsets = pa.array(np.arange(count + 1), pa.int32())
    partition = pa.MapArray.from_arrays(offsets, pa.array(["day"] * count), pa.array(day))
    modified = pa.array(np.full(count, 1_767_225_600_000))
    values = [path, partition, pa.array(size), modified, pa.array([True] * count), stats]
    return pa.StructArray.from_arrays(values, fields=list(CHECKPOINT.field("add").type))


def _join(*parts: str | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _as_json(add: dict) -> dict:
    return {**add, "partitionValues": dict(add["partitionValues"])}
