"""Values of files as values of the table's current types: only changes that lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["can_cast", "cast_values"]

_MICROSECONDS = pa.timestamp("us")
#: Digits before the point that integers of a width need.
_INTEGER_DIGITS: Mapping[int, int] = {8: 10, 16: 10, 32: 10, 64: 20}
_NARROW_BITS = 32


def can_cast(have: pa.DataType, want: pa.DataType) -> bool:
    """Say whether values of a file's type are values of a table's type, all of them.

    Beyond the changes that Delta allows these are other spellings of the same type, and the
    narrow integers that some writers store without saying so, which are checked value by value.
    """
    plain = _plain(have)
    if plain == want or pa.types.is_null(plain):
        return True
    rule = next((rule for test, rule in _RULES.items() if test(want)), None)
    return rule is not None and rule(plain, want)


def cast_values(values: pa.Array, want: pa.DataType) -> pa.Array:
    """Return values of a type that `can_cast`; pa.ArrowInvalid for one that does not fit."""
    if isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_decode()
    have = values.type
    if have == want:
        return values
    if pa.types.is_timestamp(want):
        return _cast_times(values, want)
    if pa.types.is_string(want) and not pa.types.is_large_string(have):
        # Spark's strings may hold any bytes; they pass through as they are.
        return values.cast(want, safe=False)
    return values.cast(want)


def _cast_times(values: pa.Array, want: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        if values.type.unit == "ns":
            values = pc.floor_temporal(values, unit="microsecond")
        values = values.cast(pa.timestamp(values.type.unit))
    micros = values.cast(_MICROSECONDS, safe=not _is_nanos(values.type))
    return micros.view(want)


def _is_nanos(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "ns")


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if isinstance(type_, pa.DictionaryType) else type_


def _to_integer(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_unsigned_integer(have):
        return bool(have.bit_width < want.bit_width)
    if not pa.types.is_signed_integer(have):
        return False
    return bool(have.bit_width <= max(want.bit_width, _NARROW_BITS))


def _to_float(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_integer(have):
        return bool(pa.types.is_float64(want) and have.bit_width <= _NARROW_BITS)
    return bool(pa.types.is_float32(have) and pa.types.is_float64(want))


def _to_decimal(have: pa.DataType, want: pa.DataType) -> bool:
    digits = want.precision - want.scale
    if pa.types.is_signed_integer(have):
        return bool(digits >= _INTEGER_DIGITS[have.bit_width])
    if not pa.types.is_decimal(have):
        return False
    return bool(want.scale >= have.scale and digits >= have.precision - have.scale)


def _to_timestamp(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_date(have):
        return want.tz is None
    # A file with instants cannot tell what a clock on some wall showed.
    return bool(pa.types.is_timestamp(have) and (want.tz is not None or have.tz is None))


def _to_date(have: pa.DataType, want: pa.DataType) -> bool:  # noqa: ARG001  one shape of rules
    return bool(pa.types.is_date(have))


def _to_bytes(have: pa.DataType, want: pa.DataType) -> bool:
    types = pa.types
    if types.is_fixed_size_binary(have):
        return bool(types.is_binary(want))
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    binaries = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(have) for test in texts + binaries)


_RULES: Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]] = {
    pa.types.is_integer: _to_integer,
    pa.types.is_floating: _to_float,
    pa.types.is_decimal: _to_decimal,
    pa.types.is_timestamp: _to_timestamp,
    pa.types.is_date: _to_date,
    pa.types.is_string: _to_bytes,
    pa.types.is_binary: _to_bytes,
}
