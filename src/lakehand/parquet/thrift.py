"""The compact Thrift encoding, without a schema.

A struct becomes `{field id: (type, value)}`, and encodes back to the bytes it came from. So a
footer can be changed in a few places while everything else in it stays as its writer wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmap import mmap

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

#: One struct: field id -> (wire type, value). A list value is (element type, [elements]).
Struct = dict[int, tuple[int, Any]]

_INTEGERS = (I16, I32, I64)
_BOOLEANS = (TRUE, FALSE)
_DOUBLE_BYTES = 8
_LONG_LIST = 15
_MAX_SHORT_DELTA = 15
_MAX_DEPTH = 64


class ThriftError(ValueError):
    """The bytes are not compact Thrift."""


def decode(data: bytes | mmap, start: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at `start`, and where it ends."""
    reader = _Reader(data, start)
    try:
        struct = reader.struct(depth=0)
    except IndexError as error:
        raise ThriftError("the struct is cut off") from error
    return struct, reader.at


def encode(struct: Struct) -> bytes:
    """Return the bytes of `struct`."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes | mmap, at: int) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004  the high bit says that more bytes follow
                return result
            shift += 7

    def zigzag(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise IndexError
        value = self.data[self.at : end]
        self.at = end
        return value

    def struct(self, depth: int) -> Struct:
        if depth > _MAX_DEPTH:
            raise ThriftError("structs are nested too deep")
        fields: Struct = {}
        field_id = 0
        while header := self.byte():
            delta, kind = header >> 4, header & 0x0F
            field_id = field_id + delta if delta else self.zigzag()
            fields[field_id] = (kind, self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self.list(depth)
        return self.scalar(kind)

    def scalar(self, kind: int) -> Any:
        if kind in _BOOLEANS:
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind == DOUBLE:
            return self.take(_DOUBLE_BYTES)
        raise ThriftError(f"wire type {kind} is not used in Parquet")

    def list(self, depth: int) -> tuple[int, list[Any]]:
        header = self.byte()
        length, kind = header >> 4, header & 0x0F
        if length == _LONG_LIST:
            length = self.varint()
        if kind in _BOOLEANS:
            return kind, list(self.take(length))
        return kind, [self.value(kind, depth) for _ in range(length)]


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:  # noqa: PLR2004  seven bits a byte
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)


def _write_zigzag(out: bytearray, number: int) -> None:
    _write_varint(out, (number << 1) ^ (number >> 63))


def _write_struct(out: bytearray, struct: Struct) -> None:
    previous = 0
    for field_id in sorted(struct):
        kind, value = struct[field_id]
        if kind in _BOOLEANS:
            kind = TRUE if value else FALSE
        delta = field_id - previous
        if 0 < delta <= _MAX_SHORT_DELTA:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, field_id)
        previous = field_id
        if kind not in _BOOLEANS:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_zigzag(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        _write_list(out, *value)
    elif kind == BYTE:
        out.append(value)
    else:
        out += value


def _write_list(out: bytearray, kind: int, elements: list[Any]) -> None:
    if len(elements) < _LONG_LIST:
        out.append(len(elements) << 4 | kind)
    else:
        out.append(_LONG_LIST << 4 | kind)
        _write_varint(out, len(elements))
    if kind in _BOOLEANS:
        out += bytes(elements)
        return
    for element in elements:
        _write_value(out, kind, element)
