"""Changes of type that a table says its columns went through."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.schema import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

__all__ = ["check_type_changes", "has_dates_made_timestamps"]

_KEY = "delta.typeChanges"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER: Mapping[str, frozenset[str]] = {
    "byte": frozenset({"short", "integer", "int", "long", "double"}),
    "short": frozenset({"integer", "int", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "int": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
#: Digits before the point that integers need.
_DIGITS: Mapping[str, int] = {"byte": 10, "short": 10, "integer": 10, "int": 10, "long": 20}


def check_type_changes(schema: StructType, *, table: str) -> None:
    """Raise RefusedError if a column went through a change that files cannot be read across."""
    for column in _fields(schema):
        for change in column.metadata.get(_KEY) or ():
            if not _is_known(change):
                described = f"{change.get('fromType')} to {change.get('toType')}"
                raise RefusedError(
                    f"column {column.name!r} of {table} was changed from {described}",
                    table=table,
                    operation="read",
                    feature="typeWidening",
                    hint="a newer lakehand may know how to read values of both types as one",
                )


def has_dates_made_timestamps(schema: StructType) -> bool:
    """Say whether files may hold dates in columns that are timestamps now."""
    changes = (change for column in _fields(schema) for change in column.metadata.get(_KEY) or ())
    return any(change.get("fromType") == "date" for change in changes)


def _fields(kind: DeltaType) -> Iterator[StructField]:
    match kind:
        case StructType(fields):
            for field in fields:
                yield field
                yield from _fields(field.type)
        case ArrayType(element):
            yield from _fields(element)
        case MapType(key, value):
            yield from _fields(key)
            yield from _fields(value)


def _is_known(change: Mapping[str, Any]) -> bool:
    old, new = str(change.get("fromType")), str(change.get("toType"))
    if new in _WIDER.get(old, ()):
        return True
    wanted = _DECIMAL.fullmatch(new)
    if wanted is None:
        return False
    precision, scale = int(wanted[1]), int(wanted[2])
    if old in _DIGITS:
        return precision - scale >= _DIGITS[old]
    held = _DECIMAL.fullmatch(old)
    if held is None:
        return False
    return scale >= int(held[2]) and precision - scale >= int(held[1]) - int(held[2])
