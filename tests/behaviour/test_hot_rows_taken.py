"""Rows that a hot table has taken can be flushed: what cannot be is refused when it comes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

import lakehand
from lakehand.errors import SchemaMismatchError
from support.hot_tables import SCHEMA, cold_pairs, hot_table, rows


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
def test_long_texts_in_partition_columns_are_flushed(tmp_path, key):
    """No directory can have such a name; none needs to."""
    lakehand.create_table(tmp_path / "table", SCHEMA, partition_by=["value"])
    with hot_table(tmp_path, key=key) as hot:
        hot.append(rows([1], "x" * 300))
        hot.append(rows([2], "é" * 150))
        hot.append(rows([3], "x" * 200))
    assert cold_pairs(tmp_path) == [(1, "x" * 300), (2, "é" * 150), (3, "x" * 200)]
    assert len(list((tmp_path / "table").glob("value=*/*.parquet"))) == 1


def test_bytes_that_no_log_can_keep_are_refused_where_they_divide_a_table(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("value", pa.binary())])
    table = lakehand.create_table(tmp_path / "table", schema, partition_by=["value"])
    bad, good = (pa.table({"id": [1], "value": [v]}, schema=schema) for v in (b"\xff", b"a"))
    with hot_table(tmp_path, schema=schema) as hot:
        with pytest.raises(SchemaMismatchError, match="'value' divides the table"):
            hot.append(bad)
        hot.append(good)
    with pytest.raises(SchemaMismatchError, match="'value' divides the table"):
        table.append(bad)
    assert table.to_arrow().to_pydict() == {"id": [1], "value": [b"a"]}


@pytest.mark.parametrize("has_flushed", [False, True], ids=["first flush", "later flush"])
@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
def test_rows_are_flushed_into_a_table_that_got_a_column_since(tmp_path, key, has_flushed):
    expected = []
    hot = hot_table(tmp_path, key=key).open()
    if has_flushed:
        hot.append(rows([0]))
        hot.flush()
        expected.append((0, "a", None))
    hot.append(rows([1]))
    new = Field("extra", PrimitiveType("string"))
    DeltaTable(str(tmp_path / "table")).alter.add_columns([new])
    assert hot.read().column_names == ["id", "value", "extra"]
    hot.append(pa.table({"id": [2], "value": ["b"], "extra": ["c"]}))
    hot.flush()
    hot.close()

    found = lakehand.open_table(tmp_path / "table").to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        *expected,
        (1, "a", None),
        (2, "b", "c"),
    ]


def test_rows_of_a_log_are_flushed_into_a_table_that_got_a_column_since(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.append(rows([1]))
        hot.delete([7])
        hot.close(flush=False)
    new = Field("extra", PrimitiveType("long"))
    DeltaTable(str(tmp_path / "table")).alter.add_columns([new])
    with hot_table(tmp_path, key=["id"]):
        pass

    found = lakehand.open_table(tmp_path / "table").to_arrow().to_pylist()
    assert found == [{"id": 1, "value": "a", "extra": None}]
