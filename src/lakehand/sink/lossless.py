"""Types whose values all are values of another type, and types that hold the values of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["is_list", "is_lossless", "widened_type"]

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
