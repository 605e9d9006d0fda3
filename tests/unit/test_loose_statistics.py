from __future__ import annotations

import json

from lakehand.formats.delta.statistics.slices import loosen_statistics


def test_bounds_stay_and_are_no_longer_tight():
    text = '{"numRecords":4,"minValues":{"a":1},"maxValues":{"a":9},"nullCount":{"a":1},"x":true}'

    assert json.loads(loosen_statistics(text, rows=4, visible=4)) == {
        "numRecords": 4,
        "minValues": {"a": 1},
        "maxValues": {"a": 9},
        "nullCount": {"a": 1},
        "x": True,
        "tightBounds": False,
    }


def test_numbers_keep_every_digit():
    text = '{"numRecords":1,"maxValues":{"d":1234567890123456789.1230,"s":"ü\\"1.50"}}'

    loose = loosen_statistics(text, rows=1, visible=1)

    assert '"maxValues":{"d":1234567890123456789.1230,"s":"ü\\"1.50"}' in loose


def test_a_column_of_nulls_among_visible_rows_is_one_of_nulls_in_all():
    text = '{"numRecords":9,"tightBounds":true,"nullCount":{"a":5,"b":0,"s":{"c":5,"d":2}}}'

    loose = json.loads(loosen_statistics(text, rows=9, visible=5))

    assert loose["nullCount"] == {"a": 9, "b": 0, "s": {"c": 9, "d": 2}}


def test_counts_that_were_loose_before_mean_nothing_and_stay():
    text = '{"numRecords":9,"tightBounds":false,"nullCount":{"a":5}}'

    assert json.loads(loosen_statistics(text, rows=9, visible=5))["nullCount"] == {"a": 5}


def test_a_file_without_statistics_gets_its_number_of_rows():
    for text in (None, "", "no json", "[]"):
        loose = json.loads(loosen_statistics(text, rows=3, visible=3))

        assert loose == {"numRecords": 3, "tightBounds": False}
