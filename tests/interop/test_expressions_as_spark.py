"""What tables ask of their rows, and users of them, is computed as by Spark, types included."""

from __future__ import annotations

import math

import pyarrow.parquet as pq
import pytest

import lakehand
from lakehand.expressions.computed import Calculator
from support.spark_expressions import SCHEMA, WRITTEN, Expressions, rows

SEED, ROW_COUNT, EXPRESSION_COUNT = 20261116, 300, 150
KINDS = ("boolean", "integer", "double", "decimal", "text", "date", "time")


def expressions() -> list[str]:
    maker = Expressions(SEED)
    made = [maker.make(KINDS[n % len(KINDS)], depth=3) for n in range(EXPRESSION_COUNT)]
    return list(dict.fromkeys([*made, *WRITTEN]))


@pytest.fixture(scope="module")
def answers(oracle, tmp_path_factory):
    """Return the rows, and what Spark says of each expression for each of them, in one query."""
    place = tmp_path_factory.mktemp("expressions")
    given = rows(ROW_COUNT, seed=SEED)
    lakehand.create_table(place / "t", SCHEMA).append(given)
    columns = ["id AS row", *(f"{text} AS e{n}" for n, text in enumerate(expressions()))]
    oracle.export(place / "t", place / "answers", columns=columns)
    return given, pq.read_table(place / "answers").sort_by("row")


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


def test_random_expressions_come_out_as_in_spark(answers):
    given, spark = answers
    [batch] = given.combine_chunks().to_batches()
    different = []
    for number, text in enumerate(expressions()):
        calculator = Calculator(SCHEMA)
        value = calculator.compile(text)
        ours = calculator.compute([value.sql], batch)[0].to_pylist()
        theirs = spark[f"e{number}"]
        pairs = list(zip(ours, theirs.to_pylist(), strict=True))
        if value.type != theirs.type or not all(same(*pair) for pair in pairs):
            example = next((pair for pair in pairs if not same(*pair)), None)
            different.append((text, str(value.type), str(theirs.type), example))
    assert different == []
