from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from lakehand.formats.delta.log.replay import text_of_parsed

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def text_of(value: object, type_: pa.DataType, *, name: str = "c") -> str:
    """Print statistics with one member."""
    struct = pa.struct([(name, type_)])
    table = pa.table({"stats": pa.array([{name: value}], struct)})
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        return connection.sql(f"SELECT {text_of_parsed('stats', struct)} FROM given").fetchall()[0][
            0
        ]


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (7, pa.int64(), "7"),
        (-1, pa.int8(), "-1"),
        (1.5, pa.float64(), "1.5"),
        (math.nan, pa.float64(), '"NaN"'),
        (math.inf, pa.float32(), '"Infinity"'),
        (-math.inf, pa.float64(), '"-Infinity"'),
        (Decimal("12345678901234567890.10"), pa.decimal128(30, 2), "12345678901234567890.10"),
        (True, pa.bool_(), "true"),
        (date(2026, 1, 2), pa.date32(), '"2026-01-02"'),
        (AT, pa.timestamp("us", tz="UTC"), '"2026-01-02T03:04:05.678000Z"'),
        (AT, pa.timestamp("ns"), '"2026-01-02T03:04:05.678000Z"'),
        (AT.replace(tzinfo=None), pa.timestamp("us"), '"2026-01-02T03:04:05.678000"'),
        ('q"uo\\te\n', pa.string(), '"q\\"uo\\\\te\\n"'),
        ("日本", pa.string(), '"日本"'),
    ],
)
def test_every_type_prints_as_the_log_spells_it(value, type_, text):
    assert text_of(value, type_) == f'{{"c":{text}}}'


def test_members_that_are_null_are_left_out():
    assert text_of(None, pa.int64()) == "{}"


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a.b", "a\\b"])
def test_names_of_any_kind_are_kept(name):
    assert json.loads(text_of(1, pa.int64(), name=name)) == {name: 1}


def test_no_statistics_print_as_nothing():
    with duckdb.connect() as connection:
        query = f"SELECT {text_of_parsed('s', pa.struct([('c', pa.int64())]))}"
        nothing = "(SELECT CAST(NULL AS STRUCT(c BIGINT)) AS s)"
        assert connection.sql(f"{query} FROM {nothing}").fetchall() == [(None,)]
