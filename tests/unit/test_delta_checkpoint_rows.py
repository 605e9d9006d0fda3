from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.formats.delta.checkpoints.checkpoint_rows import (
    action_rows,
    checkpoint_schema,
    file_rows,
    in_groups,
    parse_statistics,
    statistics_type,
)
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
)

PLAIN = checkpoint_schema(
    statistics_json=True, statistics_struct=None, partition_struct=pa.struct([])
)


def leaves_of(**types):
    fields = [
        StructField(name, PrimitiveType(type_) if isinstance(type_, str) else type_)
        for name, type_ in types.items()
    ]
    return list(leaves(StructType(tuple(fields))))


def parse_one(text, **types):
    type_ = statistics_type(leaves_of(**types), tight_bounds=False)
    return parse_statistics(pa.chunked_array([[text]]), type_)[0].as_py()


@pytest.mark.parametrize(
    ("type_", "spelling", "value"),
    [
        ("byte", "-128", -128),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "-0.0", -0.0),
        ("double", '"-Infinity"', float("-inf")),
        ("decimal(38,8)", "123456789012345678901234567890.12345678",
         Decimal("123456789012345678901234567890.12345678")),
        ("decimal(38,0)", "-99999999999999999999999999999999999999",
         Decimal(1 - 10**38)),
        ("decimal(12,2)", "5", Decimal("5.00")),
        ("string", '"\\u00e9 \\ud83d\\ude00"', "é 😀"),
        ("date", '"2020-02-29"', date(2020, 2, 29)),
        ("timestamp", '"2020-01-01T02:00:00.123+02:00"',
         datetime(2020, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        ("timestamp", '"2020-01-01T00:00:00.123Z"',
         datetime(2020, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        ("timestamp_ntz", '"2020-01-01T00:00:00.123"',
         datetime.fromisoformat("2020-01-01T00:00:00.123")),
        # The column was widened: its old statistics are spelled as a date.
        ("timestamp_ntz", '"2020-01-01"', datetime.fromisoformat("2020-01-01")),
    ],
)  # fmt: skip
def test_a_bound_keeps_its_exact_value(type_, spelling, value):
    text = f'{{"numRecords":1,"minValues":{{"c":{spelling}}},"maxValues":{{"c":{spelling}}}}}'

    parsed = parse_one(text, c=type_)

    assert parsed["minValues"]["c"] == value
    assert parsed["maxValues"]["c"] == value


def test_nested_columns_are_nested_and_counted():
    inner = StructType((StructField("x", PrimitiveType("long")),))
    text = '{"numRecords":9,"minValues":{"s":{"x":1}},"nullCount":{"s":{"x":2},"l":3}}'

    parsed = parse_one(text, s=inner, l=ArrayType(PrimitiveType("long")))

    assert parsed == {
        "numRecords": 9,
        "minValues": {"s": {"x": 1}},
        "maxValues": None,
        "nullCount": {"s": {"x": 2}, "l": 3},
    }


@pytest.mark.parametrize("text", [None, "", "{bad", "null"])
def test_statistics_that_cannot_be_read_are_unknown(text):
    assert parse_one(text, c="long") is None


def test_one_bad_value_does_not_take_the_others_with_it():
    text = '{"numRecords":4,"minValues":{"a":"x","b":2}}'

    parsed = parse_one(text, a="integer", b="integer")

    assert parsed["numRecords"] == 4
    assert parsed["minValues"] == {"a": None, "b": 2}


def test_columns_without_order_have_no_bounds_and_void_has_nothing():
    type_ = statistics_type(
        leaves_of(b="boolean", r="binary", v="variant", n="void"), tight_bounds=True
    )

    assert [member.name for member in type_] == ["numRecords", "nullCount", "tightBounds"]
    assert [member.name for member in type_.field("nullCount").type] == ["b", "r", "v"]


def test_a_table_without_columns_has_a_row_count_only():
    assert statistics_type([], tight_bounds=False) == pa.struct([("numRecords", pa.int64())])


def test_an_action_without_file_fills_its_column_only():
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["a"]}
    metadata = {"id": "x", "configuration": {"k": "v"}, "format": {"options": {}}}

    rows = action_rows([("protocol", protocol), ("metaData", metadata)], PLAIN).to_pylist()

    assert [[name for name, value in row.items() if value] for row in rows] == [
        ["protocol"],
        ["metaData"],
    ]
    assert rows[0]["protocol"]["writerFeatures"] is None
    assert rows[1]["metaData"]["configuration"] == [("k", "v")]
    assert rows[1]["metaData"]["format"]["options"] == []


def test_a_file_action_fills_what_it_has_and_leaves_the_rest_null():
    values = pa.array([[("p", None)]], pa.map_(pa.string(), pa.string()))

    rows = file_rows("add", pa.table({"path": ["f"], "partitionValues": values}), PLAIN)

    (row,) = rows.to_pylist()
    assert row["remove"] is None
    assert row["add"]["partitionValues"] == [("p", None)]
    assert row["add"]["deletionVector"] is None


@given(
    sizes=st.lists(st.integers(0, 30), max_size=8),
    rows=st.integers(1, 12),
)
def test_cutting_anew_keeps_every_row_in_order(sizes, rows):
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    tables = [
        pa.table({"n": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts, sizes, strict=True)
    ]

    groups = list(in_groups(tables, rows))

    assert [n for group in groups for n in group["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(group.num_rows == rows for group in groups[:-1])
    assert all(0 < group.num_rows <= rows for group in groups)
