"""Nulls where a table forbids them, at any depth.

A struct that is null has members that are null, as delta-spark sees it: it would refuse to write
such a row again. Lists and maps that are null have nothing inside, nor have elements that are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["forbidden_null", "may_forbid_nulls"]


def may_forbid_nulls(column: pa.Field) -> bool:
    """Say whether a column, or anything inside it, must not be null."""
    return not column.nullable or any(map(may_forbid_nulls, _members(column.type)))


def forbidden_null(values: pa.Array, column: pa.Field) -> str | None:
    """Return the path of a null that `column` forbids; None if there is none."""
    if not column.nullable and values.null_count:
        return str(column.name)
    for member, inner in zip(_members(column.type), _inner(values), strict=True):
        if may_forbid_nulls(member):
            is_element = member.nullable and not pat.is_struct(column.type)
            path = forbidden_null(inner.drop_null() if is_element else inner, member)
            if path is not None:
                return f"{column.name}.{path}"
    return None


def _members(type_: pa.DataType) -> list[pa.Field]:
    if pat.is_struct(type_):
        return list(type_)
    if pat.is_list(type_):
        return [type_.value_field]
    if pat.is_map(type_):
        return [type_.item_field]
    return []


def _inner(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each member, as many as there are."""
    if pat.is_struct(values.type):
        yield from values.flatten()
    elif pat.is_list(values.type):
        yield values.flatten()
    elif pat.is_map(values.type):
        present = values.drop_null() if values.null_count else values
        start, end = present.offsets[0].as_py(), present.offsets[-1].as_py()
        yield present.items.slice(start, end - start)
