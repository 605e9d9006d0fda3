"""Tables that delta-rs writes are the same to it, to DuckDB and to lakehand once compacted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from support.exact_values import exact_rows
from support.forced_compactions import compact_here
from support.plain_reader import live_adds
from support.rows import delta_rs_rows, lakehand_rows

BERLIN = dt.timezone(dt.timedelta(hours=2))
POINT = pa.struct({"x": pa.float32(), "y": pa.list_(pa.string())})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "small": pa.int8(),
        "ratio": pa.float64(),
        "exact": pa.decimal128(38, 9),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "clock": pa.timestamp("us"),
        "bytes": pa.binary(),
        "point": POINT,
        "points": pa.list_(POINT),
        "labels": pa.map_(pa.string(), pa.int32()),
    }
)


def rows(start: int, count: int = 20) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in range(start, start + count)], SCHEMA)


def row(number: int) -> dict:
    point = {"x": -0.0, "y": [None, ""][: number % 3]}
    return {
        "id": number,
        "part": [None, "a b/ü=%", "plain"][number % 3],
        "small": None if number % 5 == 0 else number % 100,
        "ratio": [float("nan"), -0.0, 0.0, float("inf"), None][number % 5],
        "exact": Decimal(number).scaleb(-9) if number % 4 else None,
        "day": dt.date(1 + number % 3000, 2, 28),
        "at": dt.datetime(1900 + number % 200, 1, 1, microsecond=number, tzinfo=BERLIN),
        "clock": dt.datetime(1 + number % 3000, 1, 1, microsecond=number),  # noqa: DTZ001
        "bytes": bytes([number % 256, 0]) if number % 3 else None,
        "point": None if number % 4 == 0 else point,
        "points": [None, [], [None, point]][number % 3],
        "labels": [None, [], [("k", None), ("l", number)]][number % 3],
    }


def write_plain(path):
    for start in range(0, 100, 20):
        write_deltalake(path, rows(start), mode="append")


def write_partitioned(path):
    for start in range(0, 100, 20):
        write_deltalake(path, rows(start), mode="append", partition_by=["part"])


def write_by_several_writers(path):
    for start, codec in ((0, "SNAPPY"), (20, "ZSTD"), (40, "UNCOMPRESSED"), (60, "GZIP")):
        properties = WriterProperties(compression=codec, max_row_group_size=5)
        write_deltalake(path, rows(start), mode="append", writer_properties=properties)


def write_with_new_columns(path):
    write_deltalake(path, rows(0).select(["id", "point"]))
    write_deltalake(path, rows(20), mode="append", schema_mode="merge")
    fewer = rows(40).select(["id", "day", "labels"])
    write_deltalake(path, fewer, mode="append", schema_mode="merge")


def write_and_change(path):
    write_partitioned(path)
    DeltaTable(path).delete("id % 7 = 3")
    DeltaTable(path).update(predicate="id % 7 = 4", updates={"small": "1"})
    write_deltalake(path, rows(200), mode="append", partition_by=["part"])


WRITERS = (
    write_plain,
    write_partitioned,
    write_by_several_writers,
    write_with_new_columns,
    write_and_change,
)


def seen_by_duckdb(path):
    """Return the rows that DuckDB finds in the live files, whatever their partitions are."""
    files = [str(path / add["path"]) for add in live_adds(path)]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.read_parquet(files, union_by_name=True, hive_partitioning=False)
        columns = sorted(set(found.columns) - {"part"})
        return exact_rows(found.select(*columns).to_arrow_table())


@pytest.mark.parametrize("method", ["recode", "copy"])
@pytest.mark.parametrize("write", WRITERS)
def test_a_table_of_delta_rs_is_the_same_to_every_reader(tmp_path, write, method):
    path = tmp_path / "t"
    write(str(path))
    ours, theirs = exact_rows(lakehand_rows(path)), exact_rows(delta_rs_rows(path))
    assert ours == theirs
    in_files = seen_by_duckdb(path)

    report = compact_here(path, method=method)

    assert report.outcome == "committed"
    assert exact_rows(lakehand_rows(path)) == ours
    assert exact_rows(delta_rs_rows(path)) == ours
    assert seen_by_duckdb(path) == in_files
    assert compact_here(path).outcome == "nothing_to_do"


def test_rows_that_delta_rs_appends_later_are_compacted_with_the_rest(tmp_path):
    path = tmp_path / "t"
    write_plain(str(path))
    compact_here(path)

    write_deltalake(str(path), rows(500), mode="append")
    expected = exact_rows(delta_rs_rows(path))
    report = compact_here(path)

    assert (report.files_before, report.files_after) == (2, 1)
    assert exact_rows(delta_rs_rows(path)) == expected == exact_rows(lakehand_rows(path))
