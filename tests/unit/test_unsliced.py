"""DuckDB refuses some slices of nested structs, which every rewrite makes when it rolls files."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lakehand.duckdb_pool import unsliced

INNER = pa.struct({"a": pa.int32()})
OUTER = pa.struct({"s": INNER})
NESTED = [{"s": {"a": number}} for number in range(10)]
PARTS = {
    "struct of struct": pa.array(NESTED, OUTER).slice(3),
    "list behind an offset": pa.ListArray.from_arrays(
        pa.array(range(8), pa.int32()), pa.array(NESTED, OUTER).slice(3)
    ),
    "list of struct of struct": pa.array([[row] for row in NESTED], pa.list_(OUTER)).slice(3),
    "map": pa.array([[("k", row)] for row in NESTED], pa.map_(pa.string(), OUTER)).slice(3),
    "plain": pa.array(range(10), pa.int32()).slice(3),
}


@pytest.mark.parametrize("name", PARTS)
def test_duckdb_reads_the_rows_of_a_slice(name):
    rows = pa.table({"x": PARTS[name]})

    with duckdb.connect() as connection:
        connection.register("rows_given", unsliced(rows))
        found = connection.sql("SELECT x FROM rows_given").to_arrow_table()

    assert found["x"].to_pylist() == rows["x"].to_pylist()


def test_duckdb_alone_would_not_take_them():
    with duckdb.connect() as connection:
        connection.register("rows_given", pa.table({"x": PARTS["struct of struct"]}))
        with pytest.raises(duckdb.InvalidInputException, match="below an offset"):
            connection.execute("SELECT x FROM rows_given").fetchall()


def test_rows_that_are_no_slices_are_not_copied():
    rows = pa.table({"x": pa.array(NESTED, OUTER), "y": range(10)})
    assert unsliced(rows) is rows
