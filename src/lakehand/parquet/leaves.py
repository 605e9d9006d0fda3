"""The leaf columns of a Parquet schema in a comparable form.

Row groups may be copied into one file only if the bytes of their pages have the same meaning.
Writers express one meaning differently (converted type, logical type, or neither), so each leaf is
normalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.parquet.footer import field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.parquet.thrift import Struct

INT96 = 3
INT32, INT64 = 1, 2
FLOAT, DOUBLE, BYTE_ARRAY, FIXED_BYTES = 4, 5, 6, 7

_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _ID, _LOGICAL = (
    range(1, 11)
)
_UNITS = {1: "ms", 2: "us", 3: "ns"}
#: Logical types up to this id are known; a later one may mean that pages contain file offsets.
_LAST_KNOWN_LOGICAL = 18

_FROM_CONVERTED: dict[int, tuple[Any, ...]] = {
    0: ("string",),
    1: ("map",),
    2: ("map",),
    3: ("list",),
    4: ("enum",),
    6: ("date",),
    7: ("time", "ms", True),
    8: ("time", "us", True),
    9: ("timestamp", "ms", True),
    10: ("timestamp", "us", True),
    11: ("integer", 8, False),
    12: ("integer", 16, False),
    13: ("integer", 32, False),
    14: ("integer", 64, False),
    15: ("integer", 8, True),
    16: ("integer", 16, True),
    17: (),
    18: (),
    19: ("json",),
    20: ("bson",),
    21: ("interval",),
}
_FROM_LOGICAL: dict[int, tuple[Any, ...]] = {
    1: ("string",),
    2: ("map",),
    3: ("list",),
    4: ("enum",),
    6: ("date",),
    11: ("unknown",),
    12: ("json",),
    13: ("bson",),
    14: ("uuid",),
    15: ("float16",),
    16: ("variant",),
    17: ("geometry",),
    18: ("geography",),
}
_DECIMAL, _TIME, _TIMESTAMP, _INTEGER = 5, 7, 8, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A leaf column, with everything that decides how its pages are read."""

    #: Names from the top-level column down.
    path: tuple[str, ...]
    physical_type: int
    #: Bytes of a fixed-length value; None for others.
    type_length: int | None
    meaning: tuple[Any, ...]
    #: Repetition and meaning of every ancestor and of the leaf itself: they determine the levels.
    shape: tuple[tuple[int, tuple[Any, ...]], ...]
    #: Field ids from the top-level column down; None where a node has none.
    ids: tuple[int | None, ...]

    @property
    def pages_mean(self) -> tuple[Any, ...]:
        """What must be equal for pages of two files to have the same meaning."""
        return (self.path, self.physical_type, self.type_length, self.meaning, self.shape)

    @property
    def is_calendar(self) -> bool:
        """Whether Spark reads the values in a calendar that the file determines."""
        instant = self.meaning[:1] == ("timestamp",) and self.meaning[2] is True
        return self.physical_type == INT96 or self.meaning == ("date",) or instant


def leaves(schema: list[Struct]) -> list[Leaf]:
    """Return the leaves of a schema, in the order of the column chunks."""
    nodes = iter(schema)
    root = next(nodes)
    return list(_children(nodes, field(root, _CHILDREN, 0), (), (), ()))


def is_known(schema: list[Struct]) -> bool:
    """Return whether all logical types are known to have no file offsets in their pages."""
    unions = (field(element, _LOGICAL, {}) for element in schema)
    return all(kind <= _LAST_KNOWN_LOGICAL for union in unions for kind in union)


def _children(
    nodes: Iterator[Struct],
    count: int,
    path: tuple[str, ...],
    shape: tuple[tuple[int, tuple[Any, ...]], ...],
    ids: tuple[int | None, ...],
) -> Iterator[Leaf]:
    for _ in range(count):
        node = next(nodes)
        meaning = _meaning(node)
        here = (*path, field(node, _NAME).decode("utf-8", "replace"))
        levels = (*shape, (field(node, _REPETITION, 0), meaning))
        known = (*ids, field(node, _ID))
        children = field(node, _CHILDREN, 0)
        if children:
            yield from _children(nodes, children, here, levels, known)
        else:
            yield Leaf(
                path=here,
                physical_type=field(node, _TYPE),
                type_length=field(node, _LENGTH) if field(node, _TYPE) == FIXED_BYTES else None,
                meaning=meaning,
                shape=levels,
                ids=known,
            )


def _meaning(node: Struct) -> tuple[Any, ...]:
    if _LOGICAL in node and field(node, _LOGICAL):
        return _logical_meaning(field(node, _LOGICAL), field(node, _TYPE))
    converted = field(node, _CONVERTED)
    if converted is None:
        return ()
    if converted == _DECIMAL:
        return ("decimal", field(node, _PRECISION, 0), field(node, _SCALE, 0))
    return _FROM_CONVERTED.get(converted, ("converted", converted))


def _logical_meaning(union: Struct, physical_type: int | None) -> tuple[Any, ...]:
    kind = next(iter(union))
    value = field(union, kind)
    if kind == _DECIMAL:
        return ("decimal", field(value, 2, 0), field(value, 1, 0))
    if kind in (_TIME, _TIMESTAMP):
        unit = _UNITS.get(next(iter(field(value, 2, {})), 0), "?")
        return ("time" if kind == _TIME else "timestamp", unit, bool(field(value, 1)))
    if kind == _INTEGER:
        width, signed = field(value, 1), bool(field(value, 2))
        is_plain = signed and (physical_type, width) in ((INT32, 32), (INT64, 64))
        return () if is_plain else ("integer", width, signed)
    return _FROM_LOGICAL.get(kind, ("logical", kind))
