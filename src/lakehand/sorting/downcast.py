"""Integers downcast to the fewest bytes while rows are shuffled, spilled and sorted.

Most integer columns have small values, and the cost of these steps is moving bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

_LONG_DIGITS = 18
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals and dates as integers, and all integers as short as possible.

    The width depends on the rows: others of the same table may need more.
    """
    numbers = _numbers(column)
    if not pat.is_integer(numbers.type):
        return numbers
    # Without values, any width fits.
    low, high = (found.as_py() or 0 for found in pc.min_max(numbers).values())
    kinds = _SIGNED if pat.is_signed_integer(numbers.type) else _UNSIGNED
    kind = next(kind for kind in kinds if _holds(kind, low) and _holds(kind, high))
    return numbers if kind == numbers.type else numbers.cast(kind, safe=False)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_short(column.type):
        return pa.chunked_array([_without_point(chunk) for chunk in column.chunks], pa.int64())
    return column.cast(pa.int32()) if pat.is_date32(column.type) else column


def _holds(kind: pa.DataType, number: int) -> bool:
    bits: int = kind.bit_width - pat.is_signed_integer(kind)
    return (number if number >= 0 else ~number).bit_length() <= bits


def _without_point(chunk: pa.Array) -> pa.Array:
    numbers = _words(chunk)[:, 0].copy()
    if not chunk.null_count:
        return pa.array(numbers)
    nulls = np.from_dlpack(chunk.is_null().cast(pa.uint8())).astype(np.bool_)
    return pa.array(numbers, mask=nulls)


def _words(chunk: pa.Array) -> np.ndarray:
    if not len(chunk):
        return np.zeros((0, 2), np.int64)
    words = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
    return words[chunk.offset : chunk.offset + len(chunk)]


def widened(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return downcast integers with their original type `kind`; other columns unchanged."""
    if not pat.is_integer(column.type) or column.type == kind:
        return column
    if pat.is_date32(kind):
        return column.cast(pa.int32()).cast(kind)
    return _with_point(column, kind) if pat.is_decimal128(kind) else column.cast(kind)


def _with_point(column: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = np.from_dlpack(column.fill_null(0) if column.null_count else column)
    content = pa.allocate_buffer(16 * len(column))
    words = np.frombuffer(content, np.int64).reshape(-1, 2)
    words[:, 0] = numbers
    np.right_shift(words[:, 0], 63, out=words[:, 1])
    validity = column.is_valid() if column.null_count else None
    bits = None if validity is None else validity.buffers()[1]
    return pa.Array.from_buffers(kind, len(column), [bits, content])


def _is_short(kind: pa.DataType) -> bool:
    return bool(pat.is_decimal128(kind) and kind.precision <= _LONG_DIGITS)
