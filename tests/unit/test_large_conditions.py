"""Conditions as programs write them: long lists, long chains, many parentheses."""

from __future__ import annotations

import datetime as dt
import decimal
import time

import numpy as np
import pyarrow as pa
import pytest

from lakehand.errors import PredicateError
from lakehand.expressions.computed import Calculator
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import may_match

MANY = 50_000
DAY = dt.date(2026, 1, 1)
COLUMNS = {
    "id": pa.array([1, 2, None, 70, -5], pa.int64()),
    "small": pa.array([1, 2, None, 70, -5], pa.int8()),
    "name": pa.array(["a", "it's", None, "ä", ""], pa.string()),
    "amount": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.00"), None, None, None]),
    "x": pa.array([-0.0, float("nan"), None, 1.5, float("inf")], pa.float64()),
    "day": pa.array([DAY, DAY + dt.timedelta(days=1), None, None, None], pa.date32()),
    "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None, None, None]).cast(
        pa.timestamp("us", tz="UTC")
    ),
}
BATCH = pa.record_batch(COLUMNS)


def begun(value: object) -> str:
    """Return a name of a test for a long condition."""
    return str(value)[:30]


def kept(text: str) -> list[int]:
    """Return which rows of the batch a condition keeps."""
    rows = BATCH.append_column("row", pa.array(range(BATCH.num_rows)))
    return keep_true(parse_predicate(text, BATCH.schema), rows)["row"].to_pylist()


def listed(*values: str, kind: str = "{}") -> str:
    """Return values with so many others behind them that they are a long list."""
    return ", ".join([*values, *(kind.format(1000 + number) for number in range(100))])


def among(column: str, *values: str, kind: str) -> str:
    return f"{column} IN ({listed(*values, kind=kind)})"


def seconds(action) -> float:
    """Return the processor time that something takes: others use this machine, too."""
    started = time.process_time()
    action()
    return time.process_time() - started


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"id IN ({listed('1', '-5')})", [0, 4]),
        (f"id NOT IN ({listed('1', '-5')})", [1, 3]),
        (f"id NOT IN ({listed('1', 'NULL')})", []),
        (f"NOT id IN ({listed('1')})", [1, 3, 4]),
        (f"small IN ({listed('70')})", [3]),
        (among("name", "'it''s'", "'ä'", kind="'{}'"), [1, 3]),
        (f"amount IN ({listed('1.5', '2')})", [0, 1]),
        (f"x IN ({listed('0', '1.5')})", [0, 3]),
        (among("x", "'NaN'", kind="'{}'"), [1]),
        (among("day", "DATE '2026-01-02'", kind="DATE '{}-01-01'"), [1]),
        (among("day", "'2026-01-01'", kind="'{}-01-01'"), [0]),
        (among("at", "'2026-01-01 00:00:00'", kind="'{}-01-01'"), [0]),
        (f"id + 1 IN ({listed('3')})", [1]),
        (f"CASE WHEN id IN ({listed('2')}) THEN true ELSE id = 70 END", [1, 3]),
        (f"name = 'IN (1, 2)' OR id IN ({listed('70')})", [3]),
    ],
    ids=begun,
)
def test_a_long_list_finds_what_a_chain_of_comparisons_finds(text, expected):
    assert kept(text) == expected


@pytest.mark.parametrize("text", ["id IN ({})", "id NOT IN ({})", "NOT (id IN ({}))"])
@pytest.mark.parametrize("values", [["1"], ["1", "NULL"], ["-5", "70", "2"]])
def test_a_long_list_and_a_short_one_agree(text, values):
    short, long = text.format(", ".join(values)), text.format(", ".join(values * 60))
    assert kept(short) == kept(long)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" OR ".join(f"id = {number}" for number in range(2, 5000)), [1, 3]),
        (" AND ".join(f"id <> {number}" for number in range(2, 5000)), [0, 4]),
        (" OR ".join(f"(name = '{number}')" for number in ["a", *range(5000)]), [0]),
        (" OR ".join(f"(id = {n} AND small = {n})" for n in range(100)), [0, 1, 3]),
        (" AND ".join(["id > 1"] * 300), [1, 3]),
        ("(" * 500 + "id = 1" + ")" * 500, [0]),
        ("(" * 500 + "id" + ")" * 500 + " = 1", [0]),
        ("NOT " * 501 + "id = 1", [1, 3, 4]),
        ("NOT (" * 500 + "id = 1" + ")" * 500, [0]),
        ("(id = 1 OR " * 80 + "id = 2" + ")" * 80, [0, 1]),
    ],
    ids=begun,
)
def test_long_chains_parentheses_and_nots_are_read(text, expected):
    assert kept(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(id = 1 OR (id > 5 AND " * 200 + "id = 2" + "))" * 200,
        "f(" * 500 + "id" + ")" * 500 + " = 1",
        "id" + " + (id" * 500 + ")" * 500 + " > 1",
        " OR ".join(f"id > {number}" for number in range(61)),
        "id IN (" + ", ".join(["id + 1"] * 1001) + ")",
        "id IN (" + "1," * 200 + "1)",
    ],
    ids=begun,
)
def test_what_is_too_large_is_refused_with_a_type(text, monkeypatch):
    monkeypatch.setattr("lakehand.expressions.logic._MAX_PARTS", 60)
    monkeypatch.setattr("lakehand.expressions.value_lists._MAX_VALUES", 200)
    with pytest.raises(PredicateError) as caught:
        parse_predicate(text, BATCH.schema)
    assert len(caught.value.message) < 2000


def test_precedence_is_that_of_sql():
    assert kept("id = 1 OR id = 2 AND small = 5") == [0]
    assert kept("NOT id = 1 AND id BETWEEN 2 AND 3 OR id = 70") == [1, 3]
    assert kept("id BETWEEN 1 AND 2 AND NOT (id = 1 OR small = 5)") == [1]
    assert kept("CASE WHEN id = 1 AND small = 1 OR id = 2 THEN true END") == [0, 1]


def test_the_text_of_a_large_condition_means_the_same():
    text = f"NOT (id IN ({listed('1')}) OR id = 2) AND (small > 1 OR name = 'a') AND name <> 'x'"
    again = parse_predicate(parse_predicate(text, BATCH.schema).text, BATCH.schema)
    assert kept(again.text) == kept(text) == [3]
    assert parse_predicate(again.text, BATCH.schema).text == again.text


def test_fifty_thousand_values_take_well_under_a_second():
    text = f"id IN ({', '.join(str(number * 3) for number in range(MANY))})"
    files = bounded(np.arange(1000) * 100, np.arange(1000) * 100 + 1)
    rows = pa.record_batch({"id": np.arange(100_000)})
    schema = rows.schema
    predicate = parse_predicate(text, schema)

    assert seconds(lambda: parse_predicate(text, schema)) < 1
    assert seconds(lambda: may_match(predicate, files)) < 1
    assert seconds(lambda: keep_true(predicate, rows)) < 1
    assert keep_true(predicate, rows)["id"].to_pylist() == list(range(0, 100_000, 3))
    found = [low % 3 != 1 for low in range(0, 100_000, 100)]
    assert may_match(predicate, files).to_pylist() == found


def bounded(lows, highs, nulls=None) -> pa.Table:
    """Return files of ten rows with these bounds of `id`."""
    low, high = pa.array(lows), pa.array(highs)
    counts = pa.array(nulls if nulls is not None else [0] * len(low), pa.int64())
    bounds = pa.StructArray.from_arrays([low, high, counts], ["min", "max", "nulls"])
    column = pa.StructArray.from_arrays([bounds], ["id"])
    return pa.table({"rows": pa.array([10] * len(low)), "bounds": column})


@pytest.mark.parametrize(
    ("type_", "bounds", "values", "expected"),
    [
        (pa.int64(), [(1, 4), (5, 9), (None, 3), (500, None)], "5, 3", [True, True, True, True]),
        (pa.int64(), [(1, 2), (6, 9), (None, 2), (2000, None)], "5, 3", [False] * 4),
        (pa.float64(), [(1.0, 2.0), (2.5, 3.5)], "3.0", [False, True]),
        (pa.string(), [("a", "b"), ("d", "e")], "'c', 'd'", [False, True]),
        (pa.string(), [("a", "b" * 32), ("a", "b" * 31)], "'{}'".format("b" * 40), [True, False]),
        (pa.date32(), [(DAY, DAY)], "'2026-01-01'", [True]),
    ],
    ids=begun,
)
def test_a_long_list_leaves_files_out_whose_bounds_hold_none_of_it(type_, bounds, values, expected):
    lows, highs = (pa.array(ends, type_) for ends in zip(*bounds, strict=True))
    fill = {pa.string(): "'zz{}'", pa.date32(): "'{}-01-01'"}.get(type_, "{}")
    text = f"id IN ({listed(values, kind=fill)})"
    predicate = parse_predicate(text, pa.schema([("id", type_)]))
    assert may_match(predicate, bounded(lows, highs)).to_pylist() == expected


def test_constraints_and_generated_columns_take_large_expressions():
    calculator = Calculator(BATCH.schema)
    check = calculator.compile(f"id IN ({listed('1', '2')}) OR {'(' * 60}id = 70{')' * 60}")
    other = calculator.compile(among("name", "'a'", kind="'{}'"))
    answers = calculator.compute([check.sql, other.sql], BATCH)
    assert [answer.to_pylist() for answer in answers] == [
        [True, True, None, True, False],
        [True, False, None, False, False],
    ]


def test_a_long_list_of_nulls_alone_is_true_for_no_row():
    nulls = ", ".join(["NULL"] * 60)
    assert kept(f"id IN ({nulls})") == kept(f"NOT id IN ({nulls})") == []
    files = bounded(pa.array([1, None]), pa.array([9, None]))
    for text in (f"id IN ({nulls})", f"NOT id IN ({nulls})"):
        assert may_match(parse_predicate(text, BATCH.schema), files).to_pylist() == [False, False]


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN {} THEN true ELSE false END".format(" OR ".join(["id = 1", "id = 2"] * 40)),
        "coalesce({}, false)".format(" OR ".join(["id = 1", "id = 2"] * 40)),
        "id {} < 3".format("+ 0 " * 80),
    ],
    ids=begun,
)
def test_a_chain_inside_of_another_expression_leaves_no_file_out(text):
    predicate = parse_predicate(f"{text} AND id < 50", BATCH.schema)
    files = bounded(pa.array([1, 60]), pa.array([9, 70]))
    assert may_match(predicate, files).to_pylist() == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "id = {}",
        "id IN (1, {})",
        "id % {} = 1",
        "id = -{}",
        "cast(id AS decimal({}, 2)) = 1",
        "cast(id AS decimal(2, {})) = 1",
        "cast(id AS decimal(99, 2)) = 1",
        "cast(id AS decimal(2, 5)) = 1",
    ],
)
def test_a_number_that_no_column_can_hold_is_refused(text):
    with pytest.raises(PredicateError):
        parse_predicate(text.format("7" * 5_000), BATCH.schema)
