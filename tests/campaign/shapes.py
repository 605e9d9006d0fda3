"""Tables of unusual shapes: further columns whose values follow from the ids of rows."""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa

Shape = Literal["wide", "deep", "long", "scattered"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

WIDE_COLUMNS = 2_000
DEEP_LEVELS = 40
LONG_BYTES = 30_000_000


def extra_fields(shape: Shape | None) -> list[pa.Field]:
    """Return the columns of a shape that come after those of all tables."""
    if shape == "wide":
        kinds = (pa.int64(), pa.string(), pa.float64(), pa.date32())
        return [pa.field(f"c{n}", kinds[n % 4]) for n in range(WIDE_COLUMNS)]
    if shape == "deep":
        return [pa.field("deep", _deep_type())]
    return [pa.field("long", pa.string())] if shape == "long" else []


def extra_columns(shape: Shape | None, ids: list[int]) -> dict[str, pa.Array]:
    """Return the values of `extra_fields` in the rows with these ids."""
    columns = {}
    for number, column in enumerate(extra_fields(shape)):
        if shape == "deep":
            values = [None if i % 7 == 0 else _deep_value(i) for i in ids]
        elif shape == "long":  # one row of each block
            values = [chr(97 + i % 26) * LONG_BYTES if i % 40 == 0 else str(i) for i in ids]
        else:
            values = [None if (i + number) % 9 == 0 else _plain_value(i, number) for i in ids]
        columns[column.name] = pa.array(values, column.type)
    return columns


def partition_of(shape: Shape | None, row_id: int) -> str:
    """Return the partition of a row: scattered rows have one each."""
    return f"p{row_id if shape == 'scattered' else row_id % 3}"


def differing_columns(shape: Shape | None, rows: pa.Table) -> list[str]:
    """Return the columns of a shape whose values are not those that belong to the ids of `rows`."""
    expected = extra_columns(shape, rows["id"].to_pylist())
    found = {name: rows[name].combine_chunks() for name in expected}
    return [name for name, values in expected.items() if not _plain(found[name]).equals(values)]


def _plain(found: pa.Array) -> pa.Array:
    """Return strings of readers that have views of them as strings."""
    return found.cast(pa.string()) if found.type == pa.string_view() else found


def _plain_value(row_id: int, number: int) -> object:
    value = row_id + number
    return (value, f"text {value % 13}", value / 8, value % 20_000)[number % 4]


def _deep_type() -> pa.DataType:
    kind = pa.int64()
    for level in range(DEEP_LEVELS):
        kind = (pa.struct({"a": kind}), pa.list_(kind), pa.map_(pa.string(), kind))[level % 3]
    return kind


def _deep_value(row_id: int) -> object:
    value: object = row_id
    for level in range(DEEP_LEVELS):
        value = ({"a": value}, [value], [("k", value)])[level % 3]
    return value
