from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import ValidationError
from lakehand.model.quantities import (
    format_bytes,
    format_count,
    format_duration,
    parse_bytes,
    resolve_timestamp,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (128 * 2**20, "128 MiB"),
        (3 * 2**50, "3 PiB"),
        (5000 * 2**50, "5000 PiB"),
    ],
)
def test_sizes_are_written_with_the_unit_that_keeps_them_short(count, text):
    assert format_bytes(count) == text


@given(st.integers(min_value=0, max_value=2**49))
def test_a_written_size_reads_back_to_nearly_itself(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.051, abs=1)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(milliseconds=3), "3 ms"),
        (timedelta(seconds=1.5), "1.5 s"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=2, minutes=3), "2 h 3 min"),
        (timedelta(days=9, hours=1), "9 d 1 h"),
    ],
)
def test_durations_are_written_with_the_two_units_that_matter(duration, text):
    assert format_duration(duration) == text


def test_one_thing_is_singular():
    assert format_count(1, "file") == "1 file"
    assert format_count(0, "file") == "0 files"
    assert format_count(12_000, "file") == "12,000 files"


@pytest.mark.parametrize("version", ["3", 3.0, True, str.upper])
def test_a_version_is_an_integer(version):
    with pytest.raises(ValidationError, match="version must be an integer") as caught:
        resolve_timestamp(version, None)
    assert (caught.value.hint == "call it: version()") is callable(version)
    assert resolve_timestamp(np.int64(3), None) is None
