"""Rows are held against what a table asks of them, and completed where it says how."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakehand.errors import ConstraintError, RefusedError
from lakehand.expressions.computed import Calculator
from lakehand.expressions.constraints import RowChecker
from lakehand.expressions.spark_types import Unsupported
from lakehand.formats.delta.protocol.actions import Metadata
from lakehand.formats.delta.protocol.schema import PrimitiveType, StructField, StructType, row_rules
from lakehand.model.table_head import RowRules
from lakehand.observe.clock import ManualClock
from lakehand.schema.conform import Conformer

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("money", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)


def conform(rules: RowRules, rows: pa.RecordBatch) -> list[dict]:
    return Conformer(SCHEMA, table="memory://t", rules=rules).conform(rows).to_pylist()


def ids(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def test_rows_that_break_a_constraint_are_shown_and_refused():
    rules = RowRules(constraints={"positive": "id > 0"})
    assert len(conform(rules, ids(1, 2))) == 2
    with pytest.raises(ConstraintError) as refused:
        conform(rules, ids(*range(-20, 5)))
    error = refused.value
    assert (error.constraint, error.condition) == ("positive", "id > 0")
    assert error.rows == [{"id": str(number)} for number in range(-20, -15)]
    assert "21 of 25 rows" in str(error)


def test_a_constraint_that_is_null_is_broken():
    with pytest.raises(ConstraintError, match="id = None"):
        conform(RowRules(constraints={"positive": "id > 0"}), ids(1, None))
    assert conform(RowRules(constraints={"positive": "id > 0 OR id IS NULL"}), ids(1, None))


def test_long_values_are_shown_in_part():
    rows = pa.record_batch({"name": ["x" * 10_000]})
    with pytest.raises(ConstraintError) as refused:
        conform(RowRules(constraints={"short": "length(name) < 5"}), rows)
    assert len(str(refused.value)) < 500


def test_the_rule_that_cannot_be_computed_for_a_row_is_named():
    rules = RowRules(constraints={"fine": "id >= 0", "cased": "upper(name) = name"})
    rows = pa.record_batch({"id": [1], "name": ["straße"]})
    with pytest.raises(ConstraintError, match=r"'cased'.*a letter like ß") as refused:
        conform(rules, rows)
    assert refused.value.constraint == "cased"


def test_a_generated_column_is_computed_if_it_is_missing_and_checked_if_it_is_there():
    rules = RowRules(generated={"day": "CAST(at AS DATE)"})
    at = pa.array([dt.datetime(2026, 11, 16, 23, 59, tzinfo=dt.UTC), None])
    [row, empty] = conform(rules, pa.record_batch({"at": at}))
    assert (row["day"], empty["day"]) == (dt.date(2026, 11, 16), None)

    right = pa.array([dt.date(2026, 11, 16), None])
    assert len(conform(rules, pa.record_batch({"at": at, "day": right}))) == 2
    with pytest.raises(ConstraintError, match="generated column 'day'"):
        conform(rules, pa.record_batch({"at": at, "day": right.take(pa.array([1, 0]))}))


def test_generated_columns_follow_from_defaults():
    rules = RowRules(generated={"name": "concat('n', id)"}, defaults={"id": "7"})
    [row] = conform(rules, pa.record_batch({"ratio": [1.0]}))
    assert (row["id"], row["name"]) == (7, "n7")


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("id", "5", 5),
        ("id", "NULL", None),
        ("id", "-3", -3),
        ("name", "'it''s'", "it's"),
        ("day", "DATE'2026-01-02'", dt.date(2026, 1, 2)),
        ("money", "1.5", pa.scalar("1.50").cast(pa.decimal128(10, 2)).as_py()),
        ("ratio", "1.5", 1.5),
        ("day", "current_date()", dt.date(2030, 1, 1)),
        ("at", "current_timestamp()", dt.datetime(2030, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_defaults_are_constants_or_the_time(column, text, expected):
    clock = ManualClock(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    rules = RowRules(defaults={column: text})
    checker = RowChecker(rules, SCHEMA, table="memory://t", clock=clock)
    empty = pa.RecordBatch.from_pylist([{}], schema=SCHEMA)
    assert checker.complete(empty, [column]).column(column).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (RowRules(constraints={"odd": "id & 1 = 1"}), "constraint odd"),
        (RowRules(constraints={"pattern": "name RLIKE '(?i)ac'"}), "constraint pattern"),
        (RowRules(constraints={"gone": "nothing > 0"}), "constraint gone"),
        (RowRules(constraints={"number": "id + 1"}), "constraint number"),
        (RowRules(constraints={"broken": "id >"}), "constraint broken"),
        (RowRules(generated={"id": "CAST(ratio AS BIGINT)"}), "generated column id"),
        (RowRules(defaults={"name": "uuid()"}), "default of column name"),
        (RowRules(defaults={"id": "'text'"}), "default of column id"),
        (RowRules(defaults={"id": "99999999999999999999"}), "default of column id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_is_refused_by_the_name_of_the_rule_that_is_not_computed(rules, named):
    with pytest.raises(RefusedError) as refused:
        Conformer(SCHEMA, table="memory://t", rules=rules)
    assert refused.value.feature == named


@pytest.mark.parametrize(
    "text",
    [
        "id / name > 1", "1 / id > 0", "id % id = 0", "money / 2 > 1", "money > ratio",
        "name > 5", "day > 'tomorrow'", "round(ratio, 1) = 1", "try_cast(name AS INT) = 1",
        "CAST(ratio AS INT) = 1", "CAST(name AS INT) = 1", "CAST(money AS DOUBLE) > 1",
        "tags[-1] = 'a'", "element_at(tags, 1) = 'a'", "tags = tags", "exists(tags, t -> t = 'a')",
        "date_format(at, 'E') = 'Mon'", "name ILIKE 'ä%'", "name LIKE name", "rand() > 0.5",
        "name RLIKE 'a++'", "now() > at", "substring(name, -2) = 'a'", "at > '2026-1-1'",
        "id IN (SELECT 1)",
        "max(id) > 0", "id BETWEEN SYMMETRIC 3 AND 1", "trim(BOTH 'x' FROM name) = 'a'",
    ],
)  # fmt: skip
def test_what_engines_compute_differently_is_not_computed(text):
    with pytest.raises(Unsupported):
        Calculator(SCHEMA).compile(text)


TEXT = PrimitiveType("string")


def rules_of(*fields: StructField, **configuration: str) -> RowRules:
    schema = StructType(fields)
    metadata = Metadata(
        id="1",
        schema_string=schema.to_json(),
        configuration={name.replace("__", "."): text for name, text in configuration.items()},
    )
    return row_rules(metadata, schema, table="t")


def test_rules_are_read_from_properties_and_fields_at_any_depth():
    invariant = {"delta.invariants": '{"expression": {"expression": "s.n > 3"}}'}
    nested = StructType((StructField("n", PrimitiveType("long"), metadata=invariant),))
    rules = rules_of(
        StructField("s", nested),
        StructField("code", TEXT, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
        StructField("g", TEXT, metadata={"delta.generationExpression": "upper(code)"}),
        StructField("d", TEXT, metadata={"CURRENT_DEFAULT": "'x'"}),
        delta__constraints__c="d <> 'y'",
    )
    assert rules == RowRules(
        constraints={
            "c": "d <> 'y'",
            "invariant of s.n": "s.n > 3",
            "varchar(5) of code": "`code` IS NULL OR length(`code`) <= 5",
        },
        generated={"g": "upper(code)"},
        defaults={"d": "'x'"},
    )


def test_rules_about_texts_that_compare_by_a_collation_are_refused():
    collated = StructField("a", TEXT, metadata={"__COLLATIONS": {"a": "spark.UNICODE_CI"}})
    assert rules_of(collated) == RowRules()
    with pytest.raises(RefusedError, match="collation"):
        rules_of(collated, delta__constraints__c="a <> 'y'")
