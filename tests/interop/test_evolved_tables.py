"""Tables that took on columns and types with rows, as delta-spark and delta-rs see them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakehand
from support.rows import delta_rs_rows

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("price", pa.decimal128(6, 2)),
        ("ratio", pa.float32()),
        ("s", pa.struct([("a", pa.int16())])),
        ("items", pa.list_(pa.field("element", pa.int8()))),
    ]
)
OLD = pa.Table.from_pylist(
    [{"id": 1, "price": Decimal("1.25"), "ratio": 0.5, "s": {"a": 1}, "items": [1, None]}],
    schema=SCHEMA,
)
WIDER = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(9, 3)),
        ("ratio", pa.float64()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("items", pa.list_(pa.field("element", pa.int32()))),
        ("more", pa.map_(pa.string(), pa.struct([("x", pa.date32())]))),
    ]
)
NEW = pa.Table.from_pylist(
    [
        {
            "id": 2**40,
            "price": Decimal("123456.125"),
            "ratio": 0.1,
            "s": {"a": 2**40, "b": "b"},
            "items": [70_000],
            "more": [("k", {"x": None})],
        }
    ],
    schema=WIDER,
)
MODES = ("none", "name", "id")


def rows_of(oracle: Any, place: Any) -> list[dict[str, Any]]:
    return sorted((json.loads(row) for row in oracle.rows(place)), key=lambda row: row["id"])


@pytest.fixture(params=MODES)
def place(oracle, request, tmp_path):
    """Return a table of delta-spark's own with one row of lakehand's."""
    path = tmp_path / "t"
    columns = (
        "id INT, price DECIMAL(6, 2), ratio FLOAT, s STRUCT<a: SMALLINT>, items ARRAY<TINYINT>"
    )
    oracle.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta"
        f" TBLPROPERTIES ('delta.columnMapping.mode' = '{request.param}')"
    )
    lakehand.open_table(path).append(OLD)
    return path


def test_new_columns_come_with_their_rows_and_delta_spark_goes_on(oracle, place):
    table = lakehand.open_table(place)
    s = pa.array([{"a": 2, "b": "b"}], pa.struct([("a", pa.int16()), ("b", pa.string())]))
    before = table.snapshot().version
    report = table.append(
        pa.table({"id": pa.array([2], pa.int32()), "s": s, "more": [[1.5]]}), schema_evolution=True
    )
    assert report.version == before + 1
    oracle.sql(
        f"INSERT INTO delta.`{place}` (id, s, more) VALUES"
        " (3, named_struct('a', 3S, 'b', 'c'), array(2.5D))"
    )

    one, two, three = rows_of(oracle, place)
    assert (one["s"], one["more"]) == ({"a": 1, "b": None}, None)
    assert (two["s"], two["more"]) == ({"a": 2, "b": "b"}, [1.5])
    assert (three["s"], three["more"]) == ({"a": 3, "b": "c"}, [2.5])
    ours = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["more"] for row in ours] == [None, [1.5], [2.5]]


@pytest.mark.one_in(2)
def test_widened_tables_are_read_and_written_by_delta_spark_and_can_be_compacted(oracle, place):
    table = lakehand.open_table(place)
    table.append(NEW, schema_evolution=True, type_widening=True)
    expected = rows_of(oracle, place)
    assert [row["id"] for row in expected] == [1, 2**40]
    assert [row["price"] for row in expected] == [1.25, 123456.125]
    assert [row["items"] for row in expected] == [[1, None], [70_000]]
    assert [row["s"] for row in expected] == [{"a": 1, "b": None}, {"a": 2**40, "b": "b"}]

    assert table.compact(min_files=2, engine="local").files_removed == 2
    assert rows_of(oracle, place) == expected
    oracle.sql(f"INSERT INTO delta.`{place}` (id, ratio) VALUES (5000000000, 0.25D)")
    assert [row["id"] for row in rows_of(oracle, place)] == [1, 5_000_000_000, 2**40]
    table.append(NEW)
    assert table.to_arrow().num_rows == 4


@pytest.mark.parametrize("mode", ["none", "name"])
def test_delta_rs_reads_new_columns(tmp_path, mode):
    properties = {"delta.columnMapping.mode": mode}
    table = lakehand.create_table(tmp_path / "t", SCHEMA, properties=properties)
    table.append(OLD)
    table.append(OLD.append_column("more", pa.array(["x"])), schema_evolution=True)
    read = delta_rs_rows(tmp_path / "t")
    assert sorted(read["more"].to_pylist(), key=str) == [None, "x"]
