"""The compact Thrift protocol, without a schema.

A struct becomes `{field id: (type, value)}`, and encodes back to the same bytes. So a footer can be
changed in a few fields while everything else stays as its writer wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

#: One struct: field id -> (wire type, value). A list value is (element type, [elements]).
Struct = dict[int, tuple[int, Any]]

_BOOLEANS = (TRUE, FALSE)
_SIGNED = (I64, I32, I16)
_DOUBLE_BYTES = 8
_LONG_LIST = 15
_MAX_SHORT_DELTA = 15
_MAX_DEPTH = 64
#: Ten bytes hold 64 bits.
_MAX_SHIFT = 70
#: The high bit of a byte says that more bytes follow.
_MORE = 0x80


class ThriftError(ValueError):
    """The bytes are not compact Thrift."""


def decode(data: bytes | memoryview | mmap, start: int = 0) -> tuple[Struct, int]:
    """Return the struct at `start`, and where it ends."""
    try:
        return _read_struct(data, start, 0)
    except IndexError as error:
        raise ThriftError("the struct is truncated") from error


def find_field(data: bytes, at: int, wanted: int, *, after: int = 0) -> tuple[int, int]:
    """Return the wire type of a field of the struct at `at`, and where its value starts.

    Values before it are skipped. `after` is the field that ends at `at`, if any does.
    """
    field_id = after
    try:
        while header := data[at]:
            kind = header & 0x0F
            at += 1
            if header > _MAX_SHORT_DELTA:
                field_id += header >> 4
            else:
                field_id, at = _read_integer(data, at)
            if field_id == wanted:
                return kind, at
            if kind not in _READERS:
                break
            _, at = _READERS[kind](data, at, 1)
    except IndexError as error:
        raise ThriftError("the struct is truncated") from error
    raise ThriftError(f"there is no field {wanted}")


def first_element(data: bytes, at: int) -> int | None:
    """Return where the first element of a list of structs starts; None if the list is empty."""
    if at >= len(data) or data[at] & 0x0F != STRUCT:
        raise ThriftError("the field is not a list of structs")
    length, at = data[at] >> 4, at + 1
    if length == _LONG_LIST:
        length, at = read_varint(data, at)
    return at if length else None


def encode(struct: Struct) -> bytes:
    """Return the bytes of `struct`."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


# Footers contain a few hundred thousand values, so each costs one call and no more. Every reader
# takes the start of its value, and returns the value and its end.


def read_varint(data: Any, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < _MORE:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while byte >= _MORE:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        shift += 7
    if shift > _MAX_SHIFT:
        raise ThriftError("a number has more than 64 bits")
    return result, at + 1


def _read_integer(data: Any, at: int, _depth: int = 0) -> tuple[int, int]:
    byte = data[at]
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = read_varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _read_struct(data: Any, at: int, depth: int) -> tuple[Struct, int]:
    if depth > _MAX_DEPTH:
        raise ThriftError("structs are nested too deeply")
    fields: Struct = {}
    field_id = 0
    while header := data[at]:
        kind = header & 0x0F
        at += 1
        if header > _MAX_SHORT_DELTA:
            field_id += header >> 4
        else:
            field_id, at = _read_integer(data, at)
        # Most values are small numbers, which are not worth a call.
        if kind in _SIGNED and (byte := data[at]) < _MORE:
            fields[field_id] = (kind, (byte >> 1) ^ -(byte & 1))
            at += 1
            continue
        read = _READERS.get(kind)
        if read is None:
            raise ThriftError(f"wire type {kind} is not used in Parquet")
        value, at = read(data, at, depth + 1)
        fields[field_id] = (kind, value)
    return fields, at + 1


def _read_list(data: Any, at: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    if depth > _MAX_DEPTH:
        raise ThriftError("lists are nested too deeply")
    length, kind = data[at] >> 4, data[at] & 0x0F
    at += 1
    if length == _LONG_LIST:
        length, at = read_varint(data, at)
    if kind in _BOOLEANS:
        flags, at = _take(data, at, length)
        return (kind, list(flags)), at
    read = _READERS.get(kind)
    if read is None:
        raise ThriftError(f"wire type {kind} is not used in Parquet")
    values = []
    for _ in range(length):
        value, at = read(data, at, depth + 1)
        values.append(value)
    return (kind, values), at


def _read_binary(data: Any, at: int, _depth: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    return _take(data, at, length)


def _take(data: Any, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if end > len(data):
        raise IndexError
    return bytes(data[at:end]), end


_READERS: dict[int, Callable[[Any, int, int], tuple[Any, int]]] = {
    TRUE: lambda _data, at, _depth: (True, at),
    FALSE: lambda _data, at, _depth: (False, at),
    BYTE: lambda data, at, _depth: (data[at], at + 1),
    I16: _read_integer,
    I32: _read_integer,
    I64: _read_integer,
    DOUBLE: lambda data, at, _depth: _take(data, at, _DOUBLE_BYTES),
    BINARY: _read_binary,
    LIST: _read_list,
    SET: _read_list,
    STRUCT: _read_struct,
}


def _write_varint(out: bytearray, number: int) -> None:
    while number >= _MORE:
        out.append((number & 0x7F) | _MORE)
        number >>= 7
    out.append(number)


def _write_integer(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    if number < _MORE:
        out.append(number)
    else:
        _write_varint(out, number)


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
            _write_integer(out, field_id)
        previous = field_id
        _WRITERS[kind](out, value)
    out.append(0)


def _write_list(out: bytearray, content: tuple[int, list[Any]]) -> None:
    kind, elements = content
    if len(elements) < _LONG_LIST:
        out.append(len(elements) << 4 | kind)
    else:
        out.append(_LONG_LIST << 4 | kind)
        _write_varint(out, len(elements))
    if kind in _BOOLEANS:
        out += bytes(elements)
        return
    write = _WRITERS[kind]
    for element in elements:
        write(out, element)


def _write_binary(out: bytearray, value: bytes) -> None:
    _write_varint(out, len(value))
    out += value


_WRITERS: dict[int, Callable[[bytearray, Any], None]] = {
    # A boolean field of a struct is in its header.
    TRUE: lambda _out, _value: None,
    FALSE: lambda _out, _value: None,
    BYTE: bytearray.append,
    I16: _write_integer,
    I32: _write_integer,
    I64: _write_integer,
    DOUBLE: bytearray.extend,
    BINARY: _write_binary,
    LIST: _write_list,
    SET: _write_list,
    STRUCT: _write_struct,
}
