"""Conditions on one table's columns, out of a file of SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehand.assess.query_workload import Query, read_queries

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "region": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
        "point": pa.struct({"x": pa.float64()}),
        "user_id": pa.int64(),
    }
)


def read(text):
    return read_queries(text, table_name="events", schema=SCHEMA)


def predicates(text):
    return [query.predicate for query in read(text).queries]


@pytest.mark.parametrize(
    ("condition", "predicate"),
    [
        ("region = 'eu'", "(region = 'eu')"),
        ("id > 3 AND id <= 9", "(id <= 9) AND (id > 3)"),
        ("id IN (1, 2)", "(id IN (1, 2))"),
        ("ts BETWEEN '2026-01-01' AND '2026-01-02'", "(ts BETWEEN '2026-01-01' AND '2026-01-02')"),
        ("region LIKE 'e%'", "(region LIKE 'e%')"),
        ("point.x < 1", "(point.x < 1)"),
        ("region IS NULL OR id = 1", "(region IS NULL OR id = 1)"),
    ],
)
def test_conditions_are_taken_as_they_are(condition, predicate):
    assert predicates(f"SELECT * FROM events WHERE {condition};") == [predicate]


def test_the_name_of_the_table_is_left_out_of_conditions():
    assert predicates("SELECT * FROM lake.events e WHERE e.id = 1 AND e.point.x > 2;") == [
        "(id = 1) AND (point.x > 2)"
    ]


def test_conditions_that_nobody_can_decide_by_bounds_are_left_out():
    assert predicates("SELECT 1 FROM events WHERE id = 1 AND region = some_udf(region);") == [
        "(id = 1)"
    ]


def test_a_join_gives_the_conditions_on_this_table_and_the_columns_it_is_joined_by():
    text = """
        SELECT * FROM events e JOIN users u ON e.user_id = u.id AND e.region = 'eu'
        WHERE u.country = 'de' AND e.id > 5;
    """
    [query] = read(text).queries

    assert query == Query(predicate="(id > 5) AND (region = 'eu')", joined=("user_id",))


def test_a_condition_of_an_outer_join_filters_nothing():
    text = "SELECT * FROM events e LEFT JOIN users u ON e.user_id = u.id AND e.id > 5;"

    assert read(text).unused == {"without a condition on a column": 1}


def test_subqueries_and_named_queries_are_looked_into():
    text = """
        WITH recent AS (SELECT * FROM events WHERE id > 5)
        SELECT * FROM recent r JOIN (SELECT * FROM events WHERE region = 'eu') USING (id);
    """

    assert sorted(predicates(text)) == ["(id > 5)", "(region = 'eu')"]


def test_deletes_and_updates_ask_too():
    text = "DELETE FROM events WHERE id = 1; UPDATE events SET region = 'x' WHERE id = 2;"

    assert predicates(text) == ["(id = 1)", "(id = 2)"]


def test_what_is_asked_often_counts_often():
    text = "SELECT 1 FROM events WHERE id = 1;\n" * 3 + "SELECT 2 FROM events WHERE id = 2;"

    assert list(read(text).queries.values()) == [3, 1]


def test_a_statement_may_stand_on_a_line_without_semicolons():
    text = "SELECT 1 FROM events WHERE id = 1\nSELECT 1 FROM events WHERE id = 2\n"

    assert predicates(text) == ["(id = 1)", "(id = 2)"]


def test_one_statement_over_many_lines_needs_no_semicolon():
    assert predicates("SELECT 1\nFROM events\nWHERE id = 1\n") == ["(id = 1)"]


def test_what_is_of_no_use_is_counted_with_its_reason():
    text = (
        "SELECT * FROM other o JOIN others p USING (id); SELECT FROM WHERE; SELECT 1 FROM events;"
    )

    workload = read(text)

    assert workload.queries == {}
    assert workload.unused == {
        "about other tables": 1,
        "not understood": 1,
        "without a condition on a column": 1,
    }


def test_the_only_table_of_a_query_is_this_one_whatever_it_is_called():
    assert predicates("SELECT * FROM sales_view WHERE id = 7;") == ["(id = 7)"]


def test_semicolons_in_texts_and_comments_end_nothing():
    text = "-- first; query\nSELECT 1 FROM events WHERE region = 'a;b';"

    assert predicates(text) == ["(region = 'a;b')"]
