from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.patterns import Prefix, fixed_prefix
from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import decide
from lakehand.observe.clock import ManualClock

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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id =", "cannot parse"),
        ("", "cannot parse"),
        ("id = 1; DROP TABLE t", "cannot hold"),
        ("id IN (SELECT 1)", "cannot hold"),
        ("count(id) > 1", "cannot hold"),
        ("rand() < id", "'rand' cannot be used"),
        ("getenv('HOME') = Region", "'getenv' cannot be used"),
        ("id + 1", "neither true nor false"),
        ("id = 'x'", "Could not convert string 'x'"),
        ('"id" = 1', "names no column"),
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
