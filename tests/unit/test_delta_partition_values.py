from __future__ import annotations

import logging
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.errors import CorruptLogError, SchemaMismatchError
from lakehand.formats.delta.protocol import partition_values
from lakehand.formats.delta.protocol.partition_values import (
    format_partition_value,
    parse_partition_values,
)
from lakehand.formats.delta.protocol.schema import ArrayType, PrimitiveType

LOCAL = datetime.fromisoformat("2026-01-02T03:04:05.000006")


def parse(type_: str, *raw: str | None, time_zone: str = "UTC") -> list:
    column = pa.chunked_array([pa.array(raw, pa.string())])
    return parse_partition_values(column, PrimitiveType(type_), time_zone=time_zone).to_pylist()


@pytest.mark.parametrize(
    ("type_", "raw", "value"),
    [
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("byte", "-128", -128),
        ("short", " 7 ", 7),
        ("integer", "2147483647", 2147483647),
        ("long", "-9223372036854775808", -9223372036854775808),
        ("float", "1.5", 1.5),
        ("double", "1.0E10", 1e10),
        ("double", "Infinity", math.inf),
        ("double", "-Infinity", -math.inf),
        ("decimal(10,3)", "1.50", Decimal("1.500")),
        ("decimal(10,3)", "12", Decimal("12.000")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("string", "007", "007"),
        ("string", " ", " "),
        ("binary", "äb", "äb".encode()),
        ("date", "2026-02-28", date(2026, 2, 28)),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("timestamp_ntz", "2026-01-02 03:04:05.000006", LOCAL),
        ("timestamp_ntz", "2026-01-02", LOCAL.replace(hour=0, minute=0, second=0, microsecond=0)),
    ],
)
def test_raw_values_become_values_of_the_column_type(type_, raw, value):
    assert parse(type_, raw) == [value]


@pytest.mark.parametrize(
    "raw",
    [
        "2026-01-02T03:04:05.000006Z",
        "2026-01-02 03:04:05.000006",
        "2026-01-02T05:04:05.000006+02:00",
        "2026-01-01 19:04:05.000006-0800",
    ],
)
def test_timestamps_are_read_in_every_spelling(raw):
    assert parse("timestamp", raw) == [LOCAL.replace(tzinfo=UTC)]


def test_timestamps_without_a_zone_are_of_the_zone_that_is_set():
    raw = ("2026-01-02 03:00:00", "2026-01-02T03:00:00.000000Z")
    found = parse("timestamp", *raw, time_zone="America/Los_Angeles")
    assert [value.astimezone(UTC).hour for value in found] == [11, 3]


def test_a_zone_that_had_to_be_assumed_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(partition_values, "_warned", set())
    with caplog.at_level(logging.WARNING, logger="lakehand"):
        parse("timestamp", "2026-01-02 03:00:00")
        parse("timestamp", "2026-01-02 03:00:00")
    assert [record.event for record in caplog.records] == ["partition_time_zone_assumed"]


@pytest.mark.parametrize("type_", ["string", "integer", "date", "timestamp", "binary", "void"])
def test_null_and_empty_are_null_in_every_type(type_):
    assert parse(type_, None, "") == [None, None]


def test_nan_is_a_value():
    assert math.isnan(parse("double", "NaN")[0])


@pytest.mark.parametrize(
    ("type_", "raw"),
    [("integer", "x"), ("byte", "128"), ("date", "yesterday"), ("timestamp", "noon")],
)
def test_values_that_do_not_fit_are_a_typed_error(type_, raw):
    with pytest.raises(CorruptLogError, match="partition value"):
        parse(type_, raw)


def test_nested_columns_do_not_partition_a_table():
    column = pa.chunked_array([pa.array(["x"])])
    with pytest.raises(CorruptLogError, match="nested"):
        parse_partition_values(column, ArrayType(PrimitiveType("long")))
    with pytest.raises(SchemaMismatchError):
        format_partition_value(1, PrimitiveType("variant"))


def test_a_column_without_files_keeps_its_type():
    empty = parse_partition_values(pa.chunked_array([], pa.string()), PrimitiveType("date"))
    assert (len(empty), empty.type) == (0, pa.date32())


EPOCH = datetime.fromisoformat("1970-01-01")
instants = st.timedeltas(timedelta(days=-719_000), timedelta(days=2_900_000)).map(EPOCH.__add__)
VALUES = {
    "boolean": st.booleans(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "decimal(20,4)": st.decimals(-(10**15), 10**15, places=4),
    "date": st.dates(),
    "timestamp": instants.map(lambda value: value.replace(tzinfo=UTC)),
    "timestamp_ntz": instants,
    "string": st.text(st.characters(codec="utf-8"), min_size=1),
    "binary": st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode),
}


@pytest.mark.parametrize("type_", VALUES)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_values_survive_the_way_into_the_log_and_back(type_, data):
    values = data.draw(st.lists(VALUES[type_] | st.none(), max_size=5))
    raw = [format_partition_value(value, PrimitiveType(type_)) for value in values]
    assert parse(type_, *raw) == values
