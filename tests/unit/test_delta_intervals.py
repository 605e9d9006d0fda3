from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.errors import ValidationError
from lakehand.formats.delta.protocol.actions import interval_property, parse_interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 1 week", timedelta(weeks=1)),
        ("INTERVAL 2 Days 3 hours", timedelta(days=2, hours=3)),
        ("7 days", timedelta(days=7)),
        ("interval 10 seconds 5 milliseconds", timedelta(seconds=10, milliseconds=5)),
        ("  interval   1 minute  1 microsecond ", timedelta(minutes=1, microseconds=1)),
        ("interval 2 days -1 day", timedelta(days=1)),
        ("interval 0 hours", timedelta()),
    ],
)
def test_intervals_are_sums_of_fixed_units(text, expected):
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "interval", "week", "1", "interval 1 month", "2 years", "1.5 days", "interval -1 day"],
)
def test_text_that_is_no_fixed_length_is_refused(text):
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)


def test_a_property_that_cannot_be_read_is_named():
    with pytest.raises(ValidationError, match=r"delta\.logRetentionDuration") as caught:
        interval_property(
            {"delta.logRetentionDuration": "interval 1 month"},
            "delta.logRetentionDuration",
            "interval 30 days",
        )

    assert caught.value.attributes["value"] == "interval 1 month"


def test_a_property_that_is_not_set_has_its_default():
    assert interval_property({}, "any", "interval 30 days") == timedelta(days=30)
