"""Rows as Spark's `toJSON` writes them."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np

from lakehand.formats.delta.protocol.schema import ArrayType, MapType, StructType
from support.variant_json import variant_to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import pyarrow as pa

    from lakehand.formats.delta.protocol.schema import DeltaType


def to_json_lines(rows: pa.Table, schema: StructType) -> list[str]:
    """Return each row as JSON: nulls left out, times to the millisecond, in UTC."""
    return [render(row, schema) for row in rows.to_pylist()]


def render(value: Any, kind: DeltaType) -> str:
    if value is None:
        return "null"
    if isinstance(kind, StructType):
        members = [(field, value[field.name]) for field in kind.fields]
        shown = (f"{_text(f.name)}:{render(v, f.type)}" for f, v in members if v is not None)
        return "{" + ",".join(shown) + "}"
    if isinstance(kind, ArrayType):
        return "[" + ",".join(render(item, kind.element) for item in value) + "]"
    if isinstance(kind, MapType):
        pairs = (f"{_key(key, kind.key)}:{render(item, kind.value)}" for key, item in value)
        return "{" + ",".join(pairs) + "}"
    return _primitive(value, kind.name)


def _key(key: Any, kind: DeltaType) -> str:
    if isinstance(kind, ArrayType):
        return _text(_address(key))
    shown = render(key, kind)
    return shown if shown.startswith('"') else _text(shown)


def _primitive(value: Any, name: str) -> str:
    show = _SHOWN.get(name, lambda item: _text(item) if isinstance(item, str) else str(item))
    return show(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _floating(value: float, *, is_single: bool) -> str:
    """Return the shortest digits that mean the same number, laid out as Java does."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    number = np.float32(value) if is_single else np.float64(value)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    digits, exponent = np.format_float_scientific(number, unique=True, trim="0").split("e")
    return f"{digits}E{int(exponent)}"


def _address(integers: list[int]) -> str:
    """Return what Java's `toString` gives for an array of ints: a name and a hash of its bytes."""
    header = struct.pack(f"<q{(len(integers) + 63) // 64}q", len(integers), 0)
    items = struct.pack(f"<{len(integers)}i", *integers)
    data = header + items + bytes(-len(items) % 8)
    return f"org.apache.spark.sql.catalyst.expressions.UnsafeArrayData@{_murmur3(data):x}"


def _murmur3(data: bytes) -> int:
    state = 42
    for (word,) in struct.iter_unpack("<I", data):
        mixed = _rotated(word * 0xCC9E2D51, 15) * 0x1B873593 & 0xFFFFFFFF
        state = (_rotated(state ^ mixed, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & 0xFFFFFFFF
    return state


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


def _instant(value: datetime) -> str:
    return _text(value.astimezone(UTC).replace(tzinfo=None).isoformat("T", "milliseconds") + "Z")


_SHOWN: dict[str, Callable[[Any], str]] = {
    "boolean": lambda value: str(value).lower(),
    "float": lambda value: _floating(value, is_single=True),
    "double": lambda value: _floating(value, is_single=False),
    "variant": lambda value: variant_to_json(value["metadata"], value["value"]),
    "binary": lambda value: _text(base64.b64encode(value).decode()),
    "timestamp": _instant,
    "timestamp_ntz": lambda value: _text(value.isoformat("T", "milliseconds")),
    "date": lambda value: _text(value.isoformat()),
}
