"""`add.stats`: every bound holds for every row, and is left out where it might not."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.formats.delta.protocol.schema import MappingMode, StructField, StructType
from lakehand.formats.delta.statistics.compute import (
    StatisticsCollector,
    maximum_text,
    minimum_text,
)
from lakehand.formats.delta.statistics.merge import statistics_rules

NTZ = pa.timestamp("us")
UTC_TIME = pa.timestamp("us", tz="UTC")


def statistics_of(table: pa.Table, configuration=None, **options) -> dict:
    options = {"mode": MappingMode.NONE, "partition_columns": (), **options}
    rules = statistics_rules(from_arrow(table.schema), configuration or {}, **options)
    with StatisticsCollector(rules) as collector:
        for batch in table.to_batches(max_chunksize=2):
            collector.add(pa.Table.from_batches([batch]))
        return json.loads(collector.finish(), parse_float=Decimal)


def bounds_of(values: list, kind: pa.DataType) -> tuple:
    statistics = statistics_of(pa.table({"c": pa.array(values, kind)}))
    return statistics["minValues"].get("c"), statistics["maxValues"].get("c")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int8(), [3, -1, None], (-1, 3)),
        (pa.int64(), [-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        (pa.string(), ["b", "", None], ("", "b")),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], ("0001-01-01", "9999-12-31")),
        (pa.float32(), [1.5, -2.0], (Decimal("-2.0"), Decimal("1.5"))),
        (pa.bool_(), [True, False], (None, None)),
        (pa.binary(), [b"a"], (None, None)),
        (pa.list_(pa.int32()), [[1], []], (None, None)),
        (pa.int32(), [None, None], (None, None)),
    ],
)
def test_bounds_of_each_kind_of_column(kind, values, expected):
    assert bounds_of(values, kind) == expected


def test_timestamps_are_floored_to_milliseconds_on_both_sides():
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    after = datetime(2026, 1, 1, 0, 0, 0, 123_999, tzinfo=UTC)

    expected = ("1969-12-31T23:59:59.999Z", "2026-01-01T00:00:00.123Z")

    assert bounds_of([before, after], UTC_TIME) == expected
    naive = [at.replace(tzinfo=None) for at in (before, after)]
    assert bounds_of(naive, NTZ) == tuple(text.removesuffix("Z") for text in expected)


def test_a_year_that_cannot_be_printed_has_no_bound():
    far = pa.array([-(2**62), 0, 2**62], pa.int64()).cast(UTC_TIME)

    assert bounds_of(far, UTC_TIME) == (None, None)


def test_decimals_keep_every_digit_and_have_no_exponent():
    values = [Decimal("-0.0000000001"), Decimal("1234567890123456789012345678.0000000000")]
    table = pa.table({"c": pa.array(values, pa.decimal128(38, 10))})
    rules = statistics_rules(
        from_arrow(table.schema), {}, mode=MappingMode.NONE, partition_columns=()
    )
    with StatisticsCollector(rules) as collector:
        collector.add(table)
        text = collector.finish()

    assert '"minValues":{"c":-0.0000000001}' in text
    assert '"maxValues":{"c":1234567890123456789012345678.0000000000}' in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, math.nan], (1, None)),
        ([math.nan], (None, None)),
        ([-math.inf, 1.0], (None, 1)),
        ([1.0, math.inf], (1, None)),
    ],
)
def test_no_bound_is_told_where_nan_or_infinity_would_be_one(values, expected):
    assert bounds_of(values, pa.float64()) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_has_the_sign_that_makes_the_bound_wider(zero):
    scalar = pa.scalar(zero)

    assert minimum_text(scalar, string_prefix=32) == "-0.0"
    assert maximum_text(scalar, string_prefix=32) == "0.0"


def test_nulls_are_counted_for_every_leaf_and_through_null_structs():
    kind = pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())})
    table = pa.table({"s": pa.array([None, {"x": None, "tags": []}, {"x": 4, "tags": None}], kind)})

    statistics = statistics_of(table)

    assert statistics["nullCount"] == {"s": {"x": 2, "tags": 2}}
    assert statistics["minValues"] == statistics["maxValues"] == {"s": {"x": 4}}


def test_only_the_first_leaves_are_indexed_and_clustering_columns_always():
    table = pa.table({name: [1] for name in "abcd"})
    configuration = {"delta.dataSkippingNumIndexedCols": "2"}

    statistics = statistics_of(table, configuration, clustering_columns=[("d",)])

    assert list(statistics["nullCount"]) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("B, s.x, missing", {"b": 0, "s": {"x": 0}}),
        ("s", {"s": {"x": 0, "y.z": 0}}),
        ("s.`y.z`", {"s": {"y.z": 0}}),
        ("`b`", {"b": 0}),
        ("", {}),
    ],
)
def test_listed_columns_win_over_the_first_ones(listed, expected):
    table = pa.table({"a": [1], "b": [2], "s": [{"x": 3, "y.z": 4}]})

    statistics = statistics_of(table, {"delta.dataSkippingStatsColumns": listed})

    assert statistics["nullCount"] == expected


def test_partition_columns_have_no_statistics():
    table = pa.table({"a": [1], "day": ["x"]})

    assert statistics_of(table, partition_columns=["day"])["nullCount"] == {"a": 0}


def test_names_are_physical_under_column_mapping():
    metadata = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    schema = from_arrow(pa.schema({"a": pa.int64()}))
    mapped = StructType((StructField("a", schema.fields[0].type, metadata=metadata),))
    rules = statistics_rules(mapped, {}, mode=MappingMode.NAME, partition_columns=())

    with StatisticsCollector(rules) as collector:
        collector.add(pa.table({"col-1": [7]}))
        statistics = json.loads(collector.finish())

    assert statistics["minValues"] == {"col-1": 7}


def test_tightness_is_stated_only_where_deletion_vectors_may_be():
    table = pa.table({"a": [1]})

    assert "tightBounds" not in statistics_of(table)
    assert statistics_of(table, writer_features=["deletionVectors"])["tightBounds"] is True


def test_a_collector_begins_anew_after_each_file():
    rules = statistics_rules(
        from_arrow(pa.schema({"a": pa.int64()})), {}, mode=MappingMode.NONE, partition_columns=()
    )
    with StatisticsCollector(rules) as collector:
        collector.add(pa.table({"a": [1, 2]}))
        collector.finish()
        collector.add(pa.table({"a": [9]}))

        assert json.loads(collector.finish())["minValues"] == {"a": 9}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 32, "x" * 32),
        ("x" * 33, "x" * 32 + "\x7f"),
        ("x" * 32 + "é", "x" * 32 + "\U0010ffff"),
        ("x" * 32 + "\U0010ffff" + "y", "x" * 32 + "\U0010ffff" + "\x7f"),
        ("\U0010ffff" * 70, None),
    ],
)
def test_an_upper_bound_of_a_long_string_is_cut_so_that_it_stays_above(text, expected):
    bound = maximum_text(pa.scalar(text), string_prefix=32)

    assert bound == (None if expected is None else json.dumps(expected, ensure_ascii=False))


@given(st.text(max_size=12), st.integers(1, 4))
def test_cut_strings_bound_the_string_when_compared_as_utf8(text, prefix):
    low = json.loads(minimum_text(pa.scalar(text), string_prefix=prefix))
    high = maximum_text(pa.scalar(text), string_prefix=prefix)

    assert low.encode() <= text.encode()
    assert high is None or json.loads(high).encode() >= text.encode()
