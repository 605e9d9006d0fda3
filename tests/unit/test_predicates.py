from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.expressions.conditions import Prefix, fixed_prefix
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import decide
from lakehand.formats.delta.protocol.arrow_types import to_arrow
from lakehand.formats.delta.protocol.schema import PrimitiveType, StructField, StructType
from lakehand.observe.clock import ManualClock

TEXT = PrimitiveType("string")
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("Region", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("ratio", pa.float64()),
        ("place", pa.struct([("city", pa.struct([("name", pa.string())]))])),
        ("a.b", pa.int32()),
        ("ok", pa.bool_()),
    ]
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "Region": "eu", "day": dt.date(2026, 1, 1), "ratio": float("nan"), "ok": True},
        {"id": 2, "Region": "it's", "place": {"city": {"name": "Bern"}}, "ok": False},
        {"id": None, "Region": "100%", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "a.b": 7},
    ],
    schema=SCHEMA,
)


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        ("id > 1", ["it's"]),
        ("NOT id > 1", ["eu"]),
        ("id <> 5 OR id IS NULL", ["eu", "it's", "100%"]),
        ("region = 'it''s'", ["it's"]),
        ("region = 'it\\'s'", ["it's"]),
        ('REGION = "eu"', ["eu"]),
        ("Region LIKE '100\\%'", ["100%"]),
        ("Region LIKE '100\\%' AND `a.b` = 7", ["100%"]),
        ("ratio > 1e300", ["eu"]),
        ("place.city.name = 'Bern'", ["it's"]),
        ("Place.City.Name IN ('Bern', 'Rom')", ["it's"]),
        ("at >= TIMESTAMP '2026-01-01 01:00:00+01:00'", ["100%"]),
        ("at = '2026-01-01'", ["100%"]),
        ("day = '2026-01-01' AND year(day) = 2026", ["eu"]),
        ("ok", ["eu"]),
        ("isnotnull(ok) AND NOT ok", ["it's"]),
        ("id <=> NULL", ["100%"]),
        ("id NOT IN (1, NULL)", []),
        ("true", ["eu", "it's", "100%"]),
    ],
)
def test_only_rows_for_which_a_predicate_is_true_are_kept(text, regions):
    predicate = parse_predicate(text, SCHEMA)

    assert keep_true(predicate, ROWS)["Region"].to_pylist() == regions


NUMBERS = pa.schema(
    [("x", pa.float64()), ("g", pa.float32()), ("n", pa.int32()), ("d", pa.date32())]
)
#: The fifteenth was a Sunday.
SOME = pa.RecordBatch.from_pydict(
    {
        "x": [1.7, 2.2, -1.5],
        "g": [0.1, 0.2, None],
        "n": [2**31 - 1, 2, None],
        "d": [dt.date(2026, 11, 15), dt.date(2026, 11, 16), None],
    },
    schema=NUMBERS,
)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("g = 0.1", []),
        ("g > 0.1", [0, 1]),
        ("g <= 1.0E-1", []),
        ("dayofweek(d) = 1", [0]),
        ("extract(dow FROM d) = 2", [1]),
        ("n = '2'", [1]),
        ("x > '2.0'", [1]),
        ("floor(x) = -2", [2]),
        ("d >= DATE '2026-12-16' - INTERVAL 1 MONTH", [1]),
    ],
)
def test_rows_are_those_that_spark_finds(text, places):
    """Checked with Spark once; test_expressions_as_spark asks it for such conditions each time."""
    numbered = SOME.append_column("place", pa.array([0, 1, 2]))
    kept = keep_true(parse_predicate(text, NUMBERS), numbered)
    assert kept["place"].to_pylist() == places


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("CAST(x AS INT) = 2", "double where one of type int32"),
        ("n = '1.5'", "'1.5' where one of type int32"),
        ("substring('abc', 0, n) = 'ab'", "substring"),
        ("CAST(d AS INT) = 1", "date32"),
        ("round(x) = 2", "the function round"),
        ("x RLIKE '1'", "double where a string is expected"),
    ],
)
def test_what_would_find_other_rows_than_spark_is_refused(text, complaint):
    with pytest.raises(PredicateError, match=complaint):
        parse_predicate(text, NUMBERS)


def test_elements_of_lists_are_found_as_in_spark():
    lists = pa.array([[12, 13], [13, None], [1], None], pa.list_(pa.int64()))
    rows = pa.record_batch({"place": [0, 1, 2, 3], "items": lists})

    def kept(text):
        return keep_true(parse_predicate(text, rows.schema), rows)["place"].to_pylist()

    assert kept("items[0] = 12") == [0]
    assert kept("array_contains(items, 13)") == [0, 1]
    assert kept("NOT array_contains(items, 7)") == [0, 2]
    assert kept("size(items) = 2") == [0, 1]
    with pytest.raises(PredicateError, match="no element 1"):
        kept("items[1] = 13")


def test_a_sum_that_is_too_large_is_an_error_and_not_true():
    with pytest.raises(PredicateError, match="Overflow"):
        keep_true(parse_predicate("n + 1 > 0", NUMBERS), SOME)


def test_bounds_of_a_column_that_is_converted_are_converted_alike():
    limits = pa.struct([("min", pa.float32()), ("max", pa.float32()), ("nulls", pa.int64())])
    bounds = [
        {"g": {"min": low, "max": high, "nulls": 0}} for low, high in ((0.0, 0.1), (0.2, 0.3))
    ]
    files = pa.table({"rows": [3, 3], "bounds": pa.array(bounds, pa.struct([("g", limits)]))})

    # The single that is nearest to 0.2 is above it.
    for text in ("g < 0.2", "g BETWEEN 0.1 AND 0.15"):
        assert decide(parse_predicate(text, NUMBERS), files).to_pylist() == ["unknown", "none"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id =", "cannot parse"),
        ("", "cannot parse"),
        ("id = 1; DROP TABLE t", "DROP TABLE"),
        ("id IN (SELECT 1)", "SELECT 1"),
        ("count(id) > 1", "the function count"),
        ("rand() < id", "the function rand"),
        ("getenv('HOME') = Region", "the function getenv"),
        ("id + 1", "is not boolean"),
        ("id = 'x'", "'x' where one of type int32"),
        ('"id" = 1', "has no column"),
    ],
)
def test_a_predicate_that_means_nothing_is_refused(text, complaint):
    with pytest.raises(PredicateError, match=complaint):
        parse_predicate(text, SCHEMA)


def test_an_unknown_column_is_named_with_those_there_are():
    with pytest.raises(UnknownColumnError, match="no column named 'regoin'; the columns are: id,"):
        parse_predicate("regoin = 'eu'", SCHEMA)
    with pytest.raises(UnknownColumnError) as caught:
        parse_predicate("regoin = 'eu'", SCHEMA)
    assert caught.value.hint == "did you mean Region?"
    with pytest.raises(UnknownColumnError, match=r"'place.town'; the columns are: place.city"):
        parse_predicate("place.town = 'Bern'", SCHEMA)


def test_a_name_that_may_be_any_of_two_columns_is_refused():
    rows = pa.record_batch({"key": [1, 2], "Key": [2, 1]})

    assert keep_true(parse_predicate("Key = 1", rows.schema), rows).column("key").to_pylist() == [2]
    with pytest.raises(PredicateError, match="ambiguous: it may be key, Key"):
        parse_predicate("KEY = 1", rows.schema)


def test_a_column_with_a_collation_is_refused():
    """Its texts may be equal although their bytes are not."""
    collation = {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}
    plain, collated = StructField("id", TEXT), StructField("name", TEXT, metadata=collation)
    schema = to_arrow(StructType((plain, collated)))

    assert parse_predicate("id = 'ann'", schema)
    with pytest.raises(PredicateError, match="because it has a collation"):
        parse_predicate("name = 'ann'", schema)


def test_a_predicate_means_the_same_when_it_is_parsed_again_later():
    clock = ManualClock(dt.datetime(2026, 3, 4, tzinfo=dt.UTC))
    first = parse_predicate("at < now() AND day < current_date()", SCHEMA, clock=clock)

    again = parse_predicate(first.text, SCHEMA)
    assert again.text == first.text
    assert "2026-03-04" in first.text


def test_a_predicate_reads_each_column_once_and_survives_a_process_boundary():
    predicate = parse_predicate("id > 1 AND ID < 9 AND place.city.name = 'x'", SCHEMA)

    assert pickle.loads(pickle.dumps(predicate)).references == (
        ("id",),
        ("place", "city", "name"),
    )
    assert predicate.columns == ("id", "place")


def test_a_constant_of_a_type_that_orders_differently_decides_nothing():
    bounds = {"Region": {"min": "1", "max": "2", "nulls": 0}}
    files = pa.table({"rows": [3], "bounds": [bounds]})

    predicate = parse_predicate("Region > cast(day AS string)", SCHEMA)
    assert decide(predicate, files).to_pylist() == ["unknown"]


def test_values_that_all_rows_share_decide_any_predicate_on_them():
    partition = pa.array([{"Region": "eu"}, {"Region": "us"}, {"Region": None}])
    files = pa.table({"rows": [1, 1, 1], "partition": partition})

    predicate = parse_predicate("upper(Region) = 'EU'", SCHEMA)
    assert decide(predicate, files).to_pylist() == ["all", "none", "none"]


def test_a_bound_that_is_no_number_decides_nothing():
    nan, bounds = float("nan"), []
    for low, high in ((nan, nan), (nan, 2.0), (1.0, nan), (1.0, 2.0)):
        bounds.append({"ratio": {"min": low, "max": high, "nulls": 0}})
    files = pa.table({"rows": [9] * 4, "bounds": bounds})

    below = parse_predicate("ratio < 0", SCHEMA)
    assert decide(below, files).to_pylist() == ["unknown", "unknown", "none", "none"]
    equal = parse_predicate("ratio = 3", SCHEMA)
    assert decide(equal, files).to_pylist() == ["unknown", "none", "unknown", "none"]


def test_a_long_list_of_values_is_judged_by_its_ends():
    bounds = [{"id": {"min": low, "max": low + 9, "nulls": 0}} for low in (0, 500, 2000)]
    files = pa.table({"rows": [9, 9, 9], "bounds": bounds})

    predicate = parse_predicate(f"id IN ({', '.join(map(str, range(100, 1000)))})", SCHEMA)
    assert decide(predicate, files).to_pylist() == ["none", "unknown", "none"]


def test_the_fixed_part_of_a_pattern_ends_at_its_first_wildcard():
    assert fixed_prefix("ab%") == Prefix("ab", is_whole=True)
    assert fixed_prefix("ab%c") == Prefix("ab", is_whole=False)
    assert fixed_prefix(r"a\_b_") == Prefix("a_b", is_whole=False)
    assert fixed_prefix("a!%b%", escape="!") == Prefix("a%b", is_whole=True)
