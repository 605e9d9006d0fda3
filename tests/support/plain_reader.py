"""A second opinion on tables: logs replayed line by line, files read by pyarrow alone.

Shares no code with lakehand. Deletion vectors are not read: the model knows which rows they hide.
"""

from __future__ import annotations

import json
import urllib.parse
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from support.exact_values import exact
from support.random_tables import ROW_ID_COLUMN, ROW_VERSION_COLUMN, partition_column

if TYPE_CHECKING:
    from pathlib import Path

    from support.random_tables import ModelTable, Row
    from support.table_columns import Column, Mode

_FIELD_ID = b"PARQUET:field_id"


def live_adds(path: Path) -> list[dict[str, Any]]:
    """Return the `add` of every live file, with its path decoded."""
    live: dict[str, dict[str, Any]] = {}
    for commit in sorted((path / "_delta_log").glob("[0-9]*.json")):
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        for action in actions:
            if "remove" in action:
                live.pop(urllib.parse.unquote(action["remove"]["path"]))
        for action in actions:
            if "add" in action:
                name = urllib.parse.unquote(action["add"]["path"])
                live[name] = {**action["add"], "path": name}
    return list(live.values())


def plain_rows(table: ModelTable) -> Counter[Row]:
    """Return the visible rows of a table; ids and versions last where it tracks rows."""
    found: Counter[Row] = Counter()
    for add in live_adds(table.path):
        found.update(rows_of_file(table, add))
    return found


def rows_of_file(table: ModelTable, add: dict[str, Any]) -> list[Row]:
    """Return the visible rows of one file."""
    file = pq.ParquetFile(table.path / add["path"], coerce_int96_timestamp_unit="us")
    stored = file.read()
    columns = [_values(column, stored, table.mode) for column in table.columns]
    count = stored.num_rows
    if table.traits.is_partitioned:
        raw = add["partitionValues"][partition_column(table).physical_name(table.mode)]
        columns.append([raw or None] * count)
    if table.traits.tracks_rows:
        columns += _identity(stored, add)
    rows = list(zip(*columns, strict=True))
    return [row for position, row in enumerate(rows) if position not in _deleted(table, add)]


def _deleted(table: ModelTable, add: dict[str, Any]) -> frozenset[int]:
    if "deletionVector" not in add:
        return frozenset()
    return next(file.deleted for file in table.files if file.path == add["path"])


def _identity(stored: pa.Table, add: dict[str, Any]) -> list[list[int]]:
    if ROW_ID_COLUMN in stored.column_names:
        return [stored[name].to_pylist() for name in (ROW_ID_COLUMN, ROW_VERSION_COLUMN)]
    base, count = add["baseRowId"], stored.num_rows
    return [list(range(base, base + count)), [add["defaultRowCommitVersion"]] * count]


def _values(column: Column, stored: pa.Table, mode: Mode) -> list[Any]:
    place = _find(column, stored.schema, mode)
    return [None] * stored.num_rows if place is None else _project(column, stored[place], mode)


def _find(column: Column, fields: Any, mode: Mode) -> int | None:
    for place, field in enumerate(fields):
        identifier = (field.metadata or {}).get(_FIELD_ID)
        is_named = field.name == column.physical_name(mode)
        if identifier == str(column.id).encode() if mode == "id" else is_named:
            return place
    return None


def _project(column: Column, array: pa.Array | pa.ChunkedArray, mode: Mode) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in _project(column, chunk, mode)]
    kind = array.type
    if pat.is_struct(kind):
        return _project_struct(column, array, mode)
    if pat.is_map(kind):
        sides = zip(column.parts, (array.keys, array.items), strict=True)
        keys, items = (_project(part, side, mode) for part, side in sides)
        return _cut(array, list(zip(keys, items, strict=True)))
    if pat.is_list(kind) or pat.is_large_list(kind):
        return _cut(array, _project(column.parts[0], array.values, mode))
    return exact(
        array if kind == column.type or pat.is_timestamp(kind) else array.cast(column.type)
    )


def _project_struct(column: Column, array: pa.Array, mode: Mode) -> list[Any]:
    members = []
    for part in column.parts:
        place = _find(part, array.type, mode)
        nothing = [None] * len(array)
        members.append(nothing if place is None else _project(part, array.field(place), mode))
    valid = array.is_valid().to_pylist()
    return [row if ok else None for row, ok in zip(zip(*members, strict=True), valid, strict=True)]


def _cut(array: pa.Array, entries: list[Any]) -> list[Any]:
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    spans = zip(offsets, offsets[1:], valid, strict=False)
    return [tuple(entries[start:end]) if ok else None for start, end, ok in spans]
