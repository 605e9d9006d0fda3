from __future__ import annotations

import json
import struct

import pytest

from lakehand.errors import CorruptFileError
from support.variant_json import variant_to_json

EMPTY = b"\x01\x00\x00"
#: The names "a" and "größe".
NAMES = b"\x01\x02\x00\x01\x08" + "agröße".encode()


def primitive(kind: int, form: str = "", *values: object) -> bytes:
    return bytes([kind << 2]) + struct.pack("<" + form, *values)


def short_text(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data) << 2 | 1]) + data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (primitive(0), "null"),
        (primitive(1), "true"),
        (primitive(2), "false"),
        (primitive(3, "b", -7), "-7"),
        (primitive(4, "h", 300), "300"),
        (primitive(5, "i", -70000), "-70000"),
        (primitive(6, "q", 2**40), str(2**40)),
        (primitive(7, "d", 0.1), "0.1"),
        (primitive(7, "d", float("nan")), '"nan"'),
        (primitive(8, "Bi", 2, -12345), "-123.45"),
        (primitive(9, "Bq", 3, 1000), "1"),
        (primitive(10, "Bqq", 1, 25, 0), "2.5"),
        (primitive(11, "i", 1), '"1970-01-02"'),
        (primitive(12, "q", 1_000_001), '"1970-01-01T00:00:01.000001+00:00"'),
        (primitive(13, "q", -1), '"1969-12-31T23:59:59.999999"'),
        (primitive(14, "f", 0.5), "0.5"),
        (primitive(15, "I", 2) + b"\x00\xff", '"AP8="'),
        (primitive(16, "I", 3) + b'a"b', '"a\\"b"'),
        (primitive(17, "q", 3_600_000_000), '"01:00:00"'),
        (primitive(18, "q", 1_000), '"1970-01-01T00:00:00.000001+00:00"'),
        (primitive(19, "q", 0), '"1970-01-01T00:00:00"'),
        (primitive(20) + bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (short_text("ü"), '"ü"'),
    ],
)
def test_every_simple_value_has_its_text(value, text):
    assert variant_to_json(EMPTY, value) == text


def test_objects_and_arrays_nest():
    numbers = b"\x03\x02\x00\x02\x04" + primitive(3, "b", 1) + primitive(3, "b", 2)
    value = b"\x02\x02\x00\x01\x00" + bytes([len(numbers), len(numbers) + 1])
    text = variant_to_json(NAMES, value + numbers + primitive(0))
    assert json.loads(text) == {"a": [1, 2], "größe": None}
    assert text == '{"a":[1,2],"größe":null}'


def test_large_arrays_use_wider_numbers():
    header = bytes([(0b101 << 2) | 3]) + struct.pack("<I", 300)
    offsets = struct.pack("<301H", *range(301))
    assert json.loads(variant_to_json(EMPTY, header + offsets + primitive(1) * 300)) == [True] * 300


@pytest.mark.parametrize(
    ("metadata", "value"),
    [
        (b"", primitive(0)),
        (b"\x02\x00\x00", primitive(0)),
        (b"\x01\x05\x00", primitive(0)),
        (EMPTY, b""),
        (EMPTY, primitive(5)),
        (EMPTY, primitive(16, "I", 99)),
        (EMPTY, primitive(63)),
        (EMPTY, b"\x02\x01\x00\x00\x01\x00"),
        (EMPTY, primitive(12, "q", 2**62)),
    ],
)
def test_bytes_that_are_no_variant_are_refused(metadata, value):
    with pytest.raises(CorruptFileError, match="variant value cannot be decoded"):
        variant_to_json(metadata, value)
