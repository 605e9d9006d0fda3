"""Values of every type that has an order, as integers or bytes that Arrow can search and sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["comparable_column"]

#: Digits of a decimal that fit into 64 bits.
_LONG_DIGITS = 18
_SIGN = np.uint64(1 << 63)
_ALL_BUT_SIGN = np.int64(2**63 - 1)


def comparable_column(rows: pa.RecordBatch | pa.Table, path: Sequence[str]) -> pa.Array:
    """Return the values of a column, or of a member of a struct, with nulls as they are.

    The order is that of the values: text by its characters, decimals by their number, -0.0 as 0.0
    and NaN, of which there is one, above all other numbers.
    """
    column = rows.column(path[0])
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(path) > 1:
        column = pc.struct_field(column, list(path[1:]))
    return _comparable(column)


def _comparable(column: pa.Array) -> pa.Array:
    if pat.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pat.is_floating(kind):
        return _ordered_floats(column)
    if pat.is_decimal(kind):
        return _ordered_decimals(column)
    if pat.is_date32(kind):
        return column.cast(pa.int32())
    if pat.is_temporal(kind):
        return column.cast(pa.int64())
    return column.cast(pa.uint8()) if pat.is_boolean(kind) else column


def _ordered_floats(column: pa.Array) -> pa.Array:
    values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy() + 0.0
    bits: NDArray[np.int64] = values.view(np.int64)
    # The bits of positive numbers ascend with them, those of negative ones descend.
    ordered = bits ^ ((bits >> 63) & _ALL_BUT_SIGN)
    ordered[np.isnan(values)] = _ALL_BUT_SIGN
    return pa.array(ordered, mask=_nulls(column))


def _ordered_decimals(column: pa.Array) -> pa.Array:
    exact = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if not len(exact):
        return pa.array([], pa.int64())
    words = np.frombuffer(exact.buffers()[1], np.uint64).reshape(-1, 2)
    words = words[exact.offset : exact.offset + len(exact)]
    if exact.type.precision <= _LONG_DIGITS:
        return pa.array(words[:, 0].astype(np.int64), mask=_nulls(column))
    # Most significant byte first, negative numbers below the others.
    flipped = np.stack([words[:, 1] ^ _SIGN, words[:, 0]], axis=1).astype(">u8")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(exact), [None, pa.py_buffer(flipped.tobytes())]
    )
    return pc.if_else(column.is_valid(), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _nulls(column: pa.Array) -> NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    mask: NDArray[np.bool_] = np.from_dlpack(column.is_null().cast(pa.uint8())).astype(np.bool_)
    return mask
