from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from lakehand.errors import UnknownColumnError
from lakehand.formats.delta.log.snapshot import load_snapshot
from support.hand_written_logs import add, field, metadata, new_log, protocol

NESTED = {"type": "struct", "fields": [field("x", "decimal(30,2)"), field("d", "date")]}
MAPPED = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
COLUMNS = (
    field("id", "long"),
    field("s", NESTED),
    field("at", "timestamp"),
    field("local", "timestamp_ntz"),
    field("small", "byte"),
    field("flag", "boolean"),
)


def bounds_of(stats: dict | str, *columns: str, table=None) -> dict:
    text = stats if isinstance(stats, str) else json.dumps(stats)
    text = text.replace('"12345678901234567890.10"', "12345678901234567890.10")
    store = new_log((protocol(), table or metadata(*COLUMNS)), [add("f", stats=text)])
    return load_snapshot(store, statistics=columns).files["bounds"].to_pylist()[0]


def test_bounds_have_the_type_of_their_column():
    stats = {
        "numRecords": 5,
        "minValues": {
            "id": -(2**62),
            "s": {"x": "12345678901234567890.10", "d": "2026-01-02"},
            "at": "2026-01-02T03:04:05.123Z",
            "local": "2026-01-02T03:04:05.123",
        },
        "nullCount": {"id": 1, "s": {"x": 0}},
    }
    found = bounds_of(stats, "id", "s.x", "s.d", "at", "local")
    assert found["id"] == {"min": -(2**62), "max": None, "nulls": 1}
    # Wider than written, because some engines print decimals of so many digits as doubles.
    assert 0 < Decimal("12345678901234567890.10") - found["s.x"]["min"] < 50_000
    assert found["s.d"] == {"min": date(2026, 1, 2), "max": None, "nulls": None}
    at = datetime(2026, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)
    assert (found["at"]["min"], found["local"]["min"]) == (at, at.replace(tzinfo=None))


@pytest.mark.parametrize("stats", ["oops", "{}", "[1]", '{"minValues":{"id":"x","small":400}}'])
def test_statistics_that_make_no_sense_are_no_bounds(stats):
    found = bounds_of(stats, "id", "small", "at")
    assert found["id"] == found["small"] == {"min": None, "max": None, "nulls": None}


def test_columns_without_order_have_counts_only():
    stats = {"minValues": {"flag": True}, "nullCount": {"flag": 2}}
    assert bounds_of(stats, "flag")["flag"] == {"min": None, "max": None, "nulls": 2}


@pytest.mark.parametrize(("count", "known"), [(0, 0), (7, 7), (3, None)])
def test_counts_that_deletion_vectors_blurred_are_unknown(count, known):
    stats = {"numRecords": 7, "nullCount": {"id": count}, "tightBounds": False}
    assert bounds_of(stats, "id")["id"]["nulls"] == known


def test_statistics_are_found_by_physical_name():
    properties = {"delta.columnMapping.mode": "name"}
    table = metadata(field("name", "string", **MAPPED), properties=properties)
    stats = {"minValues": {"col-1": "a"}, "maxValues": {"col-1": "z"}, "nullCount": {"col-1": 0}}
    assert bounds_of(stats, "name", table=table)["name"] == {"min": "a", "max": "z", "nulls": 0}


def test_columns_are_found_without_case_and_keep_the_name_asked_for():
    assert list(bounds_of({"numRecords": 1}, "ID")) == ["ID"]


def test_a_column_that_is_not_there_is_refused_by_name():
    with pytest.raises(UnknownColumnError, match=r"s\.y"):
        bounds_of({}, "s.y")


def test_bounds_are_there_only_if_asked_for():
    store = new_log((protocol(), metadata(*COLUMNS)), [add("f")])
    assert "bounds" not in load_snapshot(store).files.column_names
