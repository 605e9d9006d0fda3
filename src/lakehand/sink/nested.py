"""What is inside of nested columns: their members, and the values of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["inner_values", "members_of", "present_maps"]


def members_of(type_: pa.DataType) -> list[pa.Field]:
    """Return what a type is made of; of a map its values."""
    if pat.is_struct(type_):
        return list(type_)
    if pat.is_list(type_):
        return [type_.value_field]
    if pat.is_map(type_):
        return [type_.item_field]
    return []


def inner_values(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each member, as many as there are."""
    if pat.is_struct(values.type):
        yield from values.flatten()
    elif pat.is_list(values.type):
        yield values.flatten()
    elif pat.is_map(values.type):
        present, start, end = present_maps(values)
        yield present.items.slice(start, end - start)


def present_maps(values: pa.MapArray) -> tuple[pa.MapArray, int, int]:
    """Return the maps that are not null, and between which places their entries lie."""
    present = values.drop_null() if values.null_count else values
    return present, present.offsets[0].as_py(), present.offsets[-1].as_py()
