"""Page locations of a column chunk, from the offset index of a file.

A file has one per chunk, and one location per page, so they are parsed with a pattern for the form
that all writers use: four times as fast as generic Thrift, which is the fallback.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakehand.parquet.footer import elements, field
from lakehand.parquet.thrift import I64, decode, encode, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
#: Offset, size and first row of a page, each after its field header, and the struct's end.
_LOCATION = re.compile(rb"\x16(%b)\x15(%b)(\x16%b\x00)" % (_NUMBER, _NUMBER, _NUMBER))
#: Field 1, a list; the type of its elements, a struct; their number, if it exceeds a nibble.
_LIST, _STRUCT, _LONG_LIST = 0x19, 0x0C, 15
_MORE = 0x80


def shift_offset_index(data: bytes, delta: int) -> bytes:
    """Return the index of a chunk that is relocated by `delta` bytes."""
    locations = _usual_locations(data)
    if locations is None:
        return _shift_any(data, delta)
    first, end, found = locations
    moved = [
        b"\x16%b\x15%b%b" % (_varint(_number(offset) + delta), size, rest)
        for offset, size, rest in found
    ]
    return b"".join((data[:first], *moved, data[end:]))


def page_locations(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and size of every page."""
    locations = _usual_locations(data)
    if locations is None:
        for location in elements(decode(data)[0], 1):
            yield field(location, 1), field(location, 2)
        return
    for offset, size, _ in locations[2]:
        yield _number(offset), _number(size)


def _usual_locations(data: bytes) -> tuple[int, int, list[tuple[Any, ...]]] | None:
    """Return where the locations start and end, and their parts; None if one has another form."""
    if data[:1] != bytes([_LIST]) or data[1] & 0x0F != _STRUCT:
        return None
    count, first = data[1] >> 4, 2
    if count == _LONG_LIST:
        count, first = read_varint(data, first)
    found, end = [], first
    for _ in range(count):
        location = _LOCATION.match(data, end)
        if location is None:
            return None
        found.append(location.groups())
        end = location.end()
    return first, end, found


def _shift_any(data: bytes, delta: int) -> bytes:
    index, _ = decode(data)
    for location in elements(index, 1):
        location[1] = (I64, field(location, 1) + delta)
    return encode(index)


def _number(varint: bytes) -> int:
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= _MORE:
        out.append(number & 0x7F | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)
