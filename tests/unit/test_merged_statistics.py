from __future__ import annotations

import json

import pytest

from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
)
from lakehand.formats.delta.statistics.merge import merge_statistics, statistics_rules

DAY_1, DAY_2, DAY_3 = "1999-01-01", "2020-01-01", "2020-01-02"
UTC_5, UTC_6 = "2020-01-01T05:00:00.000Z", "2020-01-01T06:00:00.000Z"
#: Four and five o'clock in UTC.
PARIS_4, PARIS_5 = "2020-01-01T06:00:00.000+02:00", "2020-01-01T07:00:00.000+02:00"


def _rules(**types: str):
    fields = [StructField(name, PrimitiveType(kind)) for name, kind in types.items()]
    return statistics_rules(
        StructType(tuple(fields)), {}, mode=MappingMode.NONE, partition_columns=()
    )


def _stats(rows: int, minimum, maximum, nulls: int | None = 0) -> str:
    document = {"numRecords": rows}
    if minimum is not None:
        document |= {"minValues": {"a": minimum}, "maxValues": {"a": maximum}}
    if nulls is not None:
        document["nullCount"] = {"a": nulls}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("kind", "one", "two", "merged"),
    [
        ("long", (1, 5), (-3, 4), (-3, 5)),
        ("string", ("b", "z"), ("é", "ü"), ("b", "ü")),
        ("date", (DAY_2, DAY_3), (DAY_1, DAY_2), (DAY_1, DAY_3)),
        ("timestamp", (UTC_5, UTC_6), (PARIS_4, PARIS_5), (PARIS_4, UTC_6)),
        ("double", (1.5, 2.5), (-1e300, 1e300), (-1e300, 1e300)),
    ],
)
def test_bounds_are_the_outermost_ones(kind, one, two, merged):
    text = merge_statistics([_stats(3, *one), _stats(4, *two)], [3, 4], _rules(a=kind))
    found = json.loads(text)
    assert (found["minValues"]["a"], found["maxValues"]["a"]) == merged
    assert (found["numRecords"], found["nullCount"]["a"]) == (7, 0)


@pytest.mark.parametrize(
    ("one", "two"),
    [((DAY_1, DAY_2), ("+20008-01-19", "+20231-05-01")), (("-0044-03-15",) * 2, (DAY_1, DAY_2))],
)
def test_dates_whose_texts_do_not_sort_as_they_do_are_no_bounds(one, two):
    text = merge_statistics([_stats(1, *one), _stats(1, *two)], [1, 1], _rules(a="date"))
    assert (json.loads(text)["minValues"], json.loads(text)["maxValues"]) == ({}, {})


def test_decimals_keep_every_digit():
    one = '{"numRecords":1,"minValues":{"a":1.00000000000000000000000001},"maxValues":{"a":9.5}}'
    text = merge_statistics([one, _stats(1, 2, 3)], [1, 1], _rules(a="decimal(38,26)"))
    assert '"minValues":{"a":1.00000000000000000000000001}' in text


def test_a_file_without_a_bound_leaves_none():
    found = json.loads(
        merge_statistics([_stats(3, 1, 5), _stats(4, None, None)], [3, 4], _rules(a="long"))
    )
    assert found["minValues"] == found["maxValues"] == {}


def test_a_file_of_nulls_needs_no_bound():
    texts = [_stats(3, 1, 5), _stats(4, None, None, nulls=4)]
    found = json.loads(merge_statistics(texts, [3, 4], _rules(a="long")))
    assert (found["minValues"]["a"], found["nullCount"]["a"]) == (1, 4)


def test_an_unknown_null_count_stays_unknown():
    texts = [_stats(3, 1, 5), _stats(4, 1, 5, nulls=None)]
    assert json.loads(merge_statistics(texts, [3, 4], _rules(a="long")))["nullCount"] == {}


def test_nan_leaves_no_bound_on_its_side():
    texts = [_stats(3, 1.5, "NaN"), _stats(4, 1.0, 2.0)]
    found = json.loads(merge_statistics(texts, [3, 4], _rules(a="double")))
    assert (found["minValues"], found["maxValues"]) == ({"a": 1.0}, {})


def test_rows_are_counted_even_where_a_file_has_no_statistics():
    found = json.loads(merge_statistics([None, _stats(4, 1, 2)], [3, 4], _rules(a="long")))
    assert (found["numRecords"], found["minValues"]) == (7, {})


def test_statistics_that_are_no_json_leave_nothing_but_the_count():
    found = json.loads(merge_statistics(["oops", _stats(4, 1, 5)], [3, 4], _rules(a="long")))
    assert found == {"numRecords": 7, "minValues": {}, "maxValues": {}, "nullCount": {}}
