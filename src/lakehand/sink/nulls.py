"""Nulls where a table forbids them, at any depth, and where it cannot tell them from empty texts.

A struct that is null has members that are null, as delta-spark sees it: it would refuse to write
such a row again. Lists and maps that are null have nothing inside, nor have elements that are.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.sink.nested import inner_values, members_of

__all__ = ["forbidden_null", "is_text", "may_forbid_nulls", "without_empty_texts"]


def is_text(column: pa.Field) -> bool:
    """Say whether values of a column may be of length 0."""
    return bool(pat.is_string(column.type) or pat.is_binary(column.type))


def without_empty_texts(values: pa.Array) -> pa.Array:
    """Return texts or bytes with null in the place of empty ones; the same array if none is."""
    is_set = pc.binary_length(values).cast(pa.bool_())
    if pc.all(is_set).as_py() is not False:
        return values
    return pc.if_else(is_set, values, pa.nulls(len(values), values.type))


def may_forbid_nulls(column: pa.Field) -> bool:
    """Say whether a column, or anything inside it, must not be null."""
    return not column.nullable or any(map(may_forbid_nulls, members_of(column.type)))


def forbidden_null(values: pa.Array, column: pa.Field) -> str | None:
    """Return the path of a null that `column` forbids; None if there is none."""
    if not column.nullable and values.null_count:
        return str(column.name)
    for member, inner in zip(members_of(column.type), inner_values(values), strict=True):
        if may_forbid_nulls(member):
            is_element = member.nullable and not pat.is_struct(column.type)
            path = forbidden_null(inner.drop_null() if is_element else inner, member)
            if path is not None:
                return f"{column.name}.{path}"
    return None
