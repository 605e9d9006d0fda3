"""Quantiles of a column: a thousand steps from its minimum to its maximum."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakehand.planning.file_bounds import ValueBounds

    Numbers = NDArray[np.float64]

#: Steps between the minimum and the maximum.
STEPS = 1000
#: Number of positions that represent all rows.
_POSITIONS = 64 * 1024
#: The fractional parts of its multiples fill the interval from 0 to 1 evenly at any number.
_GOLDEN_RATIO = (5**0.5 - 1) / 2
#: Bytes of strings that are distinguished, as long as their numbers are exact.
_MAX_STRING_BYTES = 16
_EXACT_BITS = 52
#: More digits than a decimal has, also if a double is slightly larger.
_DECIMAL_DIGITS = 80


def quantiles_of_values(values: pa.Array) -> pa.Array:
    """Return the quantiles of rows that were read; empty if none has a value."""
    known = values.drop_null()
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    return _at_steps(known.take(pc.sort_indices(known)))


def quantiles_of_bounds(bounds: ValueBounds, rows: NDArray[np.int64]) -> pa.Array:
    """Estimate the quantiles from bounds: the rows of a file spread evenly between its own.

    Empty if nothing is known.
    """
    known = np.flatnonzero(_both_known(bounds) & (rows > 0))
    if not len(known):
        return bounds.low.slice(0, 0)
    steps = np.arange(_POSITIONS)
    rows_until = np.cumsum(rows[known])
    files = known[np.searchsorted(rows_until, (steps + 0.5) / _POSITIONS * rows_until[-1])]
    low, high = bounds.low.take(pa.array(files)), bounds.high.take(pa.array(files))
    scale = _scale_of(low, high)
    starts, ends = scale.numbers(low), scale.numbers(high)
    positions = np.sort(starts + (ends - starts) * (steps * _GOLDEN_RATIO % 1))
    positions[0], positions[-1] = starts.min(), ends.max()
    return scale.values(_at_numbers(positions))


def _at_steps(ascending: pa.Array) -> pa.Array:
    return ascending.take(pa.array(_steps(len(ascending)), pa.int64()))


def _at_numbers(ascending: Numbers) -> Numbers:
    return ascending[_steps(len(ascending))]


def _steps(count: int) -> NDArray[np.int64]:
    positions = np.linspace(0, count - 1, STEPS + 1) if count else np.zeros(0)
    return np.round(positions).astype(np.int64)


def _both_known(bounds: ValueBounds) -> NDArray[np.bool_]:
    valid = pc.and_(bounds.low.is_valid(), bounds.high.is_valid()).cast(pa.uint8())
    return np.from_dlpack(valid).astype(np.bool_) & ~bounds.is_empty


def _scale_of(low: pa.Array, high: pa.Array) -> _NumberScale | _StringScale:
    type_ = low.type
    if pa.types.is_decimal(type_):
        return _DecimalScale(type_)
    if _is_string(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return _StringScale(low, high)
    return _NumberScale(type_)


class _NumberScale:
    """Values that are numbers, or stored as numbers: dates, timestamps, booleans."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._stored = _stored_type(type_)

    def numbers(self, values: pa.Array) -> Numbers:
        plain = values.cast(self._stored) if pa.types.is_boolean(self._type) else values
        numbers = np.from_dlpack(plain.view(self._stored)).astype(np.float64)
        return np.nan_to_num(numbers)

    def values(self, numbers: Numbers) -> pa.Array:
        target = self._stored.to_pandas_dtype()
        if pa.types.is_integer(self._stored):
            limits = np.iinfo(target)
            # The largest 64-bit integer is not a double; the next lower one is.
            numbers = np.clip(np.floor(numbers), limits.min, np.nextafter(float(limits.max), 0))
        stored = pa.array(numbers.astype(target))
        is_boolean = pa.types.is_boolean(self._type)
        return stored.cast(self._type) if is_boolean else stored.view(self._type)


class _DecimalScale(_NumberScale):
    def numbers(self, values: pa.Array) -> Numbers:
        numbers: Numbers = np.from_dlpack(values.cast(pa.float64())).astype(np.float64)
        return numbers

    def values(self, numbers: Numbers) -> pa.Array:
        with localcontext(prec=_DECIMAL_DIGITS):
            step = Decimal(1).scaleb(-self._type.scale)
            most = (Decimal(10) ** self._type.precision - 1) * step
            found = (Decimal(float(number)).quantize(step, ROUND_FLOOR) for number in numbers)
            bounded = [max(-most, min(most, text)) for text in found]
        return pa.array(bounded, self._type)


class _StringScale:
    """Strings as numbers: the bytes after their common prefix, as digits.

    There are as many digits as different bytes, so that interpolated strings look like the others.
    """

    def __init__(self, low: pa.Array, high: pa.Array) -> None:
        self._type = low.type
        ends = [pc.min(_as_bytes(low)).as_py(), pc.max(_as_bytes(high)).as_py()]
        self._prefix = _common_prefix(*ends)
        tails = np.concatenate([self._tails(low), self._tails(high)])
        longest = max(1, int(np.count_nonzero(tails.any(axis=0))))
        self._alphabet = np.unique(tails[:, :longest])
        self._base = max(2, len(self._alphabet))
        self._length = min(longest, math.floor(_EXACT_BITS / math.log2(self._base)))

    def numbers(self, values: pa.Array) -> Numbers:
        digits = np.searchsorted(self._alphabet, self._tails(values)[:, : self._length])
        weights = float(self._base) ** np.arange(self._length - 1, -1, -1)
        numbers: Numbers = digits @ weights
        return numbers

    def values(self, numbers: Numbers) -> pa.Array:
        found = pa.array([self._value(int(number)) for number in numbers], self._type)
        return found.take(pc.sort_indices(found))

    def _tails(self, values: pa.Array) -> NDArray[np.uint8]:
        """Return the bytes after the common prefix, one row per value, padded with zeros."""
        content = pa.concat_arrays([_as_bytes(values)])
        ends = np.frombuffer(content.buffers()[1], np.int64, len(content) + 1)
        data = np.frombuffer(content.buffers()[2] or b"\0", np.uint8)
        positions = ends[:-1, None] + len(self._prefix) + np.arange(_MAX_STRING_BYTES)
        is_inside = positions < ends[1:, None]
        return np.where(is_inside, data[np.where(is_inside, positions, 0)], np.uint8(0))

    def _value(self, number: int) -> Any:
        digits = []
        for _ in range(self._length):
            number, digit = divmod(number, self._base)
            digits.append(int(self._alphabet[min(digit, len(self._alphabet) - 1)]))
        tail = bytes(reversed(digits)).rstrip(b"\0")
        # A zero marks the end of a string.
        is_string = _is_string(self._type)
        return (
            _valid_string(self._prefix + tail.split(b"\0")[0]) if is_string else self._prefix + tail
        )


def _valid_string(whole: bytes) -> str:
    try:
        return whole.decode()
    except UnicodeDecodeError as error:
        return whole[: error.start].decode()


def _common_prefix(first: bytes, second: bytes) -> bytes:
    pairs = zip(first, second, strict=False)
    length = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    return first[:length]


def _is_string(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _as_bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the integer type that a value is stored as."""
    if pa.types.is_boolean(type_):
        return pa.uint8()
    if pa.types.is_temporal(type_):
        return pa.int32() if type_.bit_width == 32 else pa.int64()  # noqa: PLR2004
    return type_
