"""Variant values: bytes that describe themselves, turned into JSON text."""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["variant_to_json"]

_PRIMITIVE, _SHORT_TEXT, _OBJECT = range(3)
_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIDNIGHT = datetime(1970, 1, 1)  # noqa: DTZ001  a wall clock has no zone


def variant_to_json(metadata: bytes, value: bytes) -> str:
    """Return a variant as JSON; CorruptFileError if its bytes are none.

    Values that JSON lacks become strings: times in ISO 8601, bytes in base64, NaN and infinities.
    """
    try:
        return _Reader(_names(metadata), value).text(0)
    except (IndexError, struct.error, ValueError, KeyError, OverflowError) as error:
        raise CorruptFileError(f"a variant value cannot be decoded: {error!r}") from error


def _names(metadata: bytes) -> list[str]:
    header = metadata[0]
    if header & 0x0F != _VERSION:
        raise ValueError(f"unknown version {header & 0x0F}")
    width = (header >> 6) + 1
    count = _unsigned(metadata, 1, width)
    offsets = [_unsigned(metadata, 1 + width * (1 + index), width) for index in range(count + 1)]
    start = 1 + width * (count + 2)
    ends = pairwise(offsets)
    return [metadata[start + low : start + high].decode() for low, high in ends]


def _unsigned(data: bytes, position: int, width: int) -> int:
    if position + width > len(data):
        raise ValueError("the bytes end too early")
    return int.from_bytes(data[position : position + width], "little")


@dataclass(frozen=True, slots=True)
class _Reader:
    names: list[str]
    data: bytes

    def text(self, position: int) -> str:
        """Return the JSON of the value that begins at `position`."""
        kind, header = self.data[position] & 0b11, self.data[position] >> 2
        if kind == _PRIMITIVE:
            return _PRIMITIVES[header](self.data, position + 1)
        if kind == _SHORT_TEXT:
            return _quoted(self._slice(position + 1, header).decode())
        if kind == _OBJECT:
            return self._object(position + 1, header)
        return self._array(position + 1, header)

    def _object(self, position: int, header: int) -> str:
        offset_width, id_width = (header & 0b11) + 1, (header >> 2 & 0b11) + 1
        count, position = self._count(position, is_large=bool(header >> 4 & 1))
        ids = self._numbers(position, count, id_width)
        items = self._items(position + count * id_width, count, offset_width)
        pairs = zip(ids, items, strict=True)
        return "{" + ",".join(f"{_quoted(self.names[i])}:{item}" for i, item in pairs) + "}"

    def _array(self, position: int, header: int) -> str:
        count, position = self._count(position, is_large=bool(header >> 2 & 1))
        return "[" + ",".join(self._items(position, count, (header & 0b11) + 1)) + "]"

    def _count(self, position: int, *, is_large: bool) -> tuple[int, int]:
        width = 4 if is_large else 1
        return _unsigned(self.data, position, width), position + width

    def _items(self, position: int, count: int, width: int) -> list[str]:
        start = position + (count + 1) * width
        return [self.text(start + offset) for offset in self._numbers(position, count, width)]

    def _numbers(self, position: int, count: int, width: int) -> list[int]:
        return [_unsigned(self.data, position + index * width, width) for index in range(count)]

    def _slice(self, position: int, length: int) -> bytes:
        return _slice(self.data, position, length)


def _slice(data: bytes, position: int, length: int) -> bytes:
    if position + length > len(data):
        raise ValueError("the bytes end too early")
    return data[position : position + length]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _constant(text: str) -> Callable[[bytes, int], str]:
    return lambda _data, _position: text


def _packed(form: str, show: Callable[[Any], str]) -> Callable[[bytes, int], str]:
    return lambda data, position: show(struct.unpack_from(form, data, position)[0])


def _decimal(width: int) -> Callable[[bytes, int], str]:
    def read(data: bytes, position: int) -> str:
        unscaled = int.from_bytes(_slice(data, position + 1, width), "little", signed=True)
        return f"{Decimal(unscaled).scaleb(-data[position]).normalize():f}"

    return read


def _sized(show: Callable[[bytes], str]) -> Callable[[bytes, int], str]:
    def read(data: bytes, position: int) -> str:
        return show(_slice(data, position + 4, _unsigned(data, position, 4)))

    return read


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else _quoted(str(value))


def _date(days: int) -> str:
    return _quoted((date(1970, 1, 1) + timedelta(days=days)).isoformat())


def _instant(microseconds: int) -> str:
    return _quoted((_EPOCH + microseconds * _MICROSECOND).isoformat())


def _wall_clock(microseconds: int) -> str:
    return _quoted((_MIDNIGHT + microseconds * _MICROSECOND).isoformat())


def _time(microseconds: int) -> str:
    moment: time = (_MIDNIGHT + microseconds * _MICROSECOND).time()
    return _quoted(moment.isoformat())


_PRIMITIVES: Mapping[int, Callable[[bytes, int], str]] = {
    0: _constant("null"),
    1: _constant("true"),
    2: _constant("false"),
    3: _packed("<b", str),
    4: _packed("<h", str),
    5: _packed("<i", str),
    6: _packed("<q", str),
    7: _packed("<d", _number),
    8: _decimal(4),
    9: _decimal(8),
    10: _decimal(16),
    11: _packed("<i", _date),
    12: _packed("<q", _instant),
    13: _packed("<q", _wall_clock),
    14: _packed("<f", _number),
    15: _sized(lambda data: _quoted(base64.b64encode(data).decode())),
    16: _sized(lambda data: _quoted(data.decode())),
    17: _packed("<q", _time),
    18: _packed("<q", lambda nanoseconds: _instant(nanoseconds // 1000)),
    19: _packed("<q", lambda nanoseconds: _wall_clock(nanoseconds // 1000)),
    20: lambda data, position: _quoted(str(uuid.UUID(bytes=_slice(data, position, 16)))),
}
