"""Arrow types of columns: what nested ones hold, and which are cast to which without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.expressions.duckdb_session import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


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


def is_text(column: pa.Field) -> bool:
    """Say whether values of a column may be of length 0."""
    return bool(pat.is_string(column.type) or pat.is_binary(column.type))


def without_empty_texts(values: pa.Array) -> pa.Array:
    """Return strings or bytes with null instead of empty ones; the same array if none is empty."""
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


def holds_maps(type_: pa.DataType) -> bool:
    """Say whether a type is a map, or has one inside."""
    return bool(pat.is_map(type_) or any(holds_maps(member.type) for member in members_of(type_)))


def repeated_key(values: pa.Array, column: pa.Field) -> str | None:
    """Return the path of a map that has a key twice; None if there is none."""
    if pat.is_map(values.type) and _has_key_twice(values):
        return str(column.name)
    for member, inner in zip(members_of(values.type), inner_values(values), strict=True):
        if holds_maps(member.type):
            path = repeated_key(inner, member)
            if path is not None:
                return f"{column.name}.{path}"
    return None


def _has_key_twice(values: pa.MapArray) -> bool:
    present, start, end = present_maps(values)
    sizes = np.diff(present.offsets.to_numpy())
    if not (sizes > 1).any():
        return False
    maps = np.repeat(np.arange(len(sizes)), sizes)
    keys = present.keys.slice(start, end - start)
    if pat.is_nested(keys.type):
        entries = pa.table({"map": maps, "key": keys})
        distinct = select("SELECT count(*) FROM (SELECT DISTINCT * FROM given)", given=entries)
        return bool(distinct.column(0)[0].as_py() < end - start)
    if pat.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # Readers take -0.0 for 0.0.
    encoded = pc.dictionary_encode(keys)
    pairs = maps * len(encoded.dictionary) + encoded.indices.to_numpy()
    # They are sorted except within each map, which a stable sort makes use of.
    return bool((np.diff(np.sort(pairs, kind="stable")) == 0).any())


# Casts

_MICROSECONDS = ("s", "ms", "us", "ns")
_WIDEST_DECIMAL = 38
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def is_list(type_: pa.DataType) -> bool:
    forms = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view)
    return any(form(type_) for form in (*forms, pat.is_large_list_view))


def is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    """Say whether every value of `have` is one of `want`, or a cast tells which are not."""
    return any(is_kind(want) and allows(have, want) for is_kind, allows in _WIDENINGS.items())


def widened_type(rows: pa.DataType, table: pa.DataType) -> pa.DataType | None:
    """Return the least type to which a table's type may be widened so that it holds the rows'.

    None if there is none: integers become wider integers, floats doubles, decimals get more digits.
    """
    if pat.is_signed_integer(table):
        wider = (type_ for type_ in _INTEGERS if type_.bit_width > table.bit_width)
        return next((type_ for type_ in wider if _integer_widens(rows, type_)), None)
    if table == pa.float32() and rows == pa.float64():
        return rows
    if pat.is_decimal(table) and pat.is_decimal(rows):
        scale = max(rows.scale, table.scale)
        whole = max(rows.precision - rows.scale, table.precision - table.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= _WIDEST_DECIMAL else None
    return None


def _integer_widens(have: pa.DataType, want: pa.DataType) -> bool:
    if pat.is_signed_integer(have):
        return bool(have.bit_width <= want.bit_width)
    return bool(pat.is_unsigned_integer(have) and have.bit_width < want.bit_width)


def _float_widens(have: pa.DataType, want: pa.DataType) -> bool:
    return bool(pat.is_floating(have) and have.bit_width <= want.bit_width)


def _decimal_widens(have: pa.DataType, want: pa.DataType) -> bool:
    if not pat.is_decimal(have):
        return False
    whole = have.precision - have.scale
    return bool(have.scale <= want.scale and whole <= want.precision - want.scale)


def _text_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    return bool(pat.is_large_string(have) or pat.is_string_view(have))


def _binary_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    forms = (pat.is_large_binary, pat.is_binary_view, pat.is_fixed_size_binary)
    return any(form(have) for form in forms)


def _timestamp_widens(have: pa.DataType, want: pa.DataType) -> bool:
    # A moment stays a moment, and the time on a wall one: a cast would make up a zone.
    same_kind = pat.is_timestamp(have) and (have.tz is None) == (want.tz is None)
    return bool(same_kind and have.unit in _MICROSECONDS)


def _date_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    return bool(pat.is_date64(have))


_WIDENINGS: Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]] = {
    pat.is_signed_integer: _integer_widens,
    pat.is_floating: _float_widens,
    pat.is_decimal: _decimal_widens,
    pat.is_string: _text_widens,
    pat.is_binary: _binary_widens,
    pat.is_timestamp: _timestamp_widens,
    pat.is_date32: _date_widens,
}
