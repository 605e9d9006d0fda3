"""What Arrow's encoder says of the rows it wrote is what the rows themselves say."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.formats.delta.protocol.schema import MappingMode
from lakehand.formats.delta.statistics.compute import StatisticsCollector
from lakehand.formats.delta.statistics.merge import statistics_rules
from lakehand.formats.delta.statistics.written import WrittenStatistics
from lakehand.parquet.rolling_writer import ParquetLayout, RollingWriter
from support.reading import fresh_store

NAN = math.nan
STRUCT = pa.struct({"x": pa.int16(), "inner": pa.struct({"y": pa.string(), "z": pa.float32()})})


def rules_of(schema: pa.Schema):
    return statistics_rules(from_arrow(schema), {}, mode=MappingMode.NONE, partition_columns=())


def written_statistics(table: pa.Table, *, group_rows: int = 2, watched=True, **options) -> str:
    """Return the statistics that come of writing `table` in small row groups."""
    statistics = WrittenStatistics(rules_of(table.schema), table.schema, **options)
    with RollingWriter(
        fresh_store(),
        table.schema,
        ParquetLayout(target_file_bytes=2**30, row_group_rows=group_rows),
        name=str,
        watch=lambda _, rows: statistics.watch(rows) if watched else None,
    ) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        [file] = writer.close()
    assert len(file.row_groups) == -(-table.num_rows // group_rows)
    return statistics.finish(file.row_groups)


def statistics_of_rows(table: pa.Table, **options) -> str:
    with StatisticsCollector(rules_of(table.schema), **options) as collector:
        collector.add(table)
        return collector.finish()


LONG = "y" * 5000
COLUMNS = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, math.inf, -math.inf, 1.5, -2.5])),
    "text": (
        pa.string(),
        st.sampled_from(["", "a", "é" * 40, "z\U0010ffff" * 30, LONG, "x" + LONG]),
    ),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "flag": (pa.bool_(), st.booleans()),
    "short_decimal": (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "decimal": (pa.decimal128(18, 4), st.decimals(-(10**13), 10**13, places=4)),
    "wide": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", tz="UTC"), st.integers(-(2**60), 2**60)),
    "clock": (pa.timestamp("us"), st.integers(-(2**60), 2**60)),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=2)),
    "map": (pa.map_(pa.string(), pa.int32()), st.just([("k", None)])),
    "struct": (
        STRUCT,
        st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(-9, 9),
                "inner": st.none()
                | st.fixed_dictionaries(
                    {
                        "y": st.none() | st.sampled_from(["b", LONG]),
                        "z": st.none() | st.sampled_from([NAN, 1.0, -0.0]),
                    }
                ),
            }
        ),
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}),
    min_size=1,
    max_size=9,
)
SCHEMA = pa.schema({name: kind for name, (kind, _) in COLUMNS.items()})


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_the_encoder_and_the_rows_tell_the_same(rows):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)

    assert json.loads(written_statistics(table)) == json.loads(statistics_of_rows(table))
    assert written_statistics(table) == statistics_of_rows(table)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1.0, 2.0, NAN, NAN], 1.0, None), ([NAN, NAN, NAN, NAN], None, None)],
)
def test_a_row_group_of_nothing_but_nan_takes_the_upper_bound_away(values, low, high):
    statistics = json.loads(written_statistics(pa.table({"f": values})))

    assert statistics["minValues"].get("f") == low
    assert statistics["maxValues"].get("f") == high


def test_texts_too_long_for_a_footer_have_bounds_all_the_same():
    texts = ["m", "n", "b" + LONG, "x" + LONG]

    statistics = json.loads(written_statistics(pa.table({"t": texts})))

    assert statistics["minValues"]["t"] == "b" + "y" * 31
    assert statistics["maxValues"]["t"] == "x" + "y" * 31 + "\x7f"


def test_a_row_group_of_unknown_bounds_leaves_the_file_without_any():
    table = pa.table({"t": ["m", "n", "b" + LONG, "x" + LONG]})

    statistics = json.loads(written_statistics(table, watched=False))

    assert statistics["minValues"] == statistics["maxValues"] == {}
    assert statistics["nullCount"] == {"t": 0}


def test_bytes_that_are_no_text_are_no_bounds():
    table = pa.table({"t": pa.array([b"\xff\xfe", b"a"])}).cast(
        pa.schema({"t": pa.string()}), safe=False
    )

    statistics = json.loads(written_statistics(table))

    assert statistics["minValues"] == {"t": "a"}
    assert statistics["maxValues"] == {}


def test_ancient_dates_that_readers_shift_are_no_bounds():
    table = pa.table({"d": pa.array([-354_280, 19_000], pa.int32()).cast(pa.date32())})

    text = written_statistics(table, is_legacy=True)

    assert json.loads(text)["minValues"] == {}
    assert json.loads(text)["maxValues"] == {"d": "2022-01-08"}
    assert text == statistics_of_rows(table, is_legacy=True)
