"""Statistics of some row groups of a file: true, or left out."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
)
from lakehand.formats.delta.statistics.merge import statistics_rules
from lakehand.formats.delta.statistics.slices import slice_statistics
from lakehand.parquet.footer import FileField, Footer, read_footer
from lakehand.storage import open_store


@pytest.fixture
def statistics_of(tmp_path):
    """Return a function from values, two a row group, to the statistics of the second one."""
    store = open_store(tmp_path)

    def make(
        values, kind, *, low=None, high=None, nulls=0, key_values=None, change=None, **options
    ):
        column = pa.array(values, options.pop("type"))
        rows = pa.table({"a": column}).replace_schema_metadata(key_values)
        pq.write_table(rows, tmp_path / "f.parquet", row_group_size=2, **options)
        footer = read_footer(store, "f.parquet")
        footer = footer if change is None else change(footer)
        whole = {"numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {"a": nulls}}
        whole["minValues"] |= {} if low is None else {"a": low}
        whole["maxValues"] |= {} if high is None else {"a": high}
        schema = StructType((StructField("a", PrimitiveType(kind)),))
        rules = statistics_rules(schema, {}, mode=MappingMode.NONE, partition_columns=())
        text = slice_statistics(json.dumps(whole), footer, [1], rules, rows=2)
        found = json.loads(text)
        return found["minValues"].get("a"), found["maxValues"].get("a"), found["nullCount"].get("a")

    return make


@pytest.mark.parametrize(
    ("kind", "type_", "values", "whole", "expected"),
    [
        ("long", pa.int64(), [1, 9, 4, 5], (1, 9), (4, 5)),
        ("long", pa.int32(), [-1, 9, -4, 5], (-4, 9), (-4, 5)),
        ("short", pa.int16(), [1, 9, 4, 5], (1, 9), (4, 5)),
        ("double", pa.float64(), [1.0, 9.0, -0.0, 0.0], (-0.0, 9.0), (-0.0, 0.0)),
        ("double", pa.float32(), [1.0, 9.0, 0.5, 2.5], (0.5, 9.0), (0.5, 2.5)),
        ("float", pa.float32(), [0.1, 0.7, 0.1, 0.7], (0.1, 0.7), None),
        ("string", pa.string(), ["a", "z", "b", "é"], ("a", "é"), ("b", "é")),
        ("date", pa.date32(), [date(2020, 1, n) for n in (1, 9, 4, 5)],
         ("2020-01-01", "2020-01-09"), ("2020-01-04", "2020-01-05")),
        ("decimal(9,2)", pa.decimal128(9, 2), [Decimal(n) / 4 for n in (1, 9, 4, 5)],
         (0.25, 2.25), (1.0, 1.25)),
    ],
)  # fmt: skip
def test_bounds_are_those_of_the_row_groups(statistics_of, kind, type_, values, whole, expected):
    options = {"type": type_, "store_decimal_as_integer": True}
    low, high, nulls = statistics_of(values, kind, low=whole[0], high=whole[1], **options)

    if expected is None:
        assert (low, high) == (pytest.approx(whole[0]), pytest.approx(whole[1]))
    else:
        assert (low, high) == expected
    assert nulls == 0


def test_milliseconds_of_the_log_hold_microseconds_of_the_footer(statistics_of):
    at = [datetime(2020, 1, 1, 0, 0, 0, n, tzinfo=UTC) for n in (0, 1_999, 500, 1_999)]
    whole = {"low": "2020-01-01T00:00:00.000Z", "high": "2020-01-01T00:00:00.001Z"}
    low, high, _ = statistics_of(at, "timestamp", type=pa.timestamp("us", "UTC"), **whole)

    assert (low, high) == ("2020-01-01T00:00:00.000Z", "2020-01-01T00:00:00.001Z")


@pytest.mark.parametrize(
    ("kind", "type_", "values", "whole"),
    [
        ("decimal(9,2)", pa.decimal128(9, 2), [Decimal(n) for n in (1, 9, 4, 5)], (1, 9)),
        ("long", pa.uint32(), [1, 9, 4, 5], (1, 9)),
        ("binary", pa.binary(), [b"a", b"z", b"b", b"c"], ("a", "z")),
        ("timestamp", pa.timestamp("us"), [datetime(2020, 1, n) for n in (1, 9, 4, 5)],  # noqa: DTZ001
         ("2020-01-01T00:00:00Z", "2020-01-09T00:00:00Z")),
        ("string", pa.int64(), [1, 9, 4, 5], ("1", "9")),
    ],
    ids=["decimal in bytes", "unsigned", "binary", "no zone", "another type"],
)  # fmt: skip
def test_what_writers_disagree_on_has_no_bounds(statistics_of, kind, type_, values, whole):
    low, high, _ = statistics_of(values, kind, low=whole[0], high=whole[1], type=type_)

    assert (low, high) == (None, None)


@pytest.mark.parametrize(("low", "high"), [(None, None), (5, 4), (1, "NaN")])
def test_bounds_that_the_log_does_not_confirm_are_left_out(statistics_of, low, high):
    kind, type_ = ("double", pa.float64()) if high == "NaN" else ("long", pa.int64())
    found = statistics_of([1, 9, 4, 5], kind, low=low, high=high, type=type_)

    assert found[1] is None
    assert found[0] == (4 if low == 1 else None)


def test_a_footer_leaves_nan_out_and_the_log_does_not(statistics_of):
    nan = float("nan")
    low, high, _ = statistics_of([1.0, 2.0, nan, 1.5], "double", low=1.0, high="NaN",
                                 type=pa.float64())  # fmt: skip

    assert (low, high) == (1.5, None)


@pytest.mark.parametrize(
    ("values", "whole", "expected"),
    [
        ([1, None, None, 2], 2, 1),
        ([1, 2, 3, 4], 0, 0),
        ([None, None, None, None], 4, 2),
        ([1, 2, None, None], 2, 2),
    ],
)
def test_nulls_are_counted_exactly(statistics_of, values, whole, expected):
    found = statistics_of(values, "long", low=1, high=9, nulls=whole, type=pa.int64())

    assert found[2] == expected


def test_legacy_dates_have_no_bounds_because_spark_shifts_them(statistics_of):
    marks = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    days = [date(1000, 1, n) for n in (1, 9, 4, 5)]
    whole = {"low": "1000-01-01", "high": "1000-01-09"}
    options = {"type": pa.date32(), "key_values": marks, **whole}

    assert statistics_of(days, "date", **options)[:2] == (None, None)


def test_bounds_of_an_order_that_is_not_stated_are_left_out(statistics_of):
    def without_orders(footer: Footer) -> Footer:
        meta = {key: footer.meta[key] for key in footer.meta if key != FileField.COLUMN_ORDERS}
        return Footer(path=footer.path, file_bytes=footer.file_bytes, meta=meta)

    options = {"type": pa.int64(), "low": 1, "high": 9, "change": without_orders}
    assert statistics_of([1, 9, 4, 5], "long", **options)[:2] == (None, None)
