"""Decimals in half of their bytes while rows are divided, wait and are sorted.

Arrow gives each of them 16 bytes, and those of up to 18 digits fit into eight.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

__all__ = ["narrowed", "narrowed_schema", "widened"]

_LONG_DIGITS = 18


def narrowed_schema(schema: pa.Schema) -> pa.Schema:
    """Return what `narrowed` makes of the columns of `schema`."""
    fields = [field.with_type(pa.int64()) if _fits(field.type) else field for field in schema]
    return pa.schema(fields)


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals as the numbers that they are without their point; others as they are."""
    if not _fits(column.type):
        return column
    return pa.chunked_array([_narrow(chunk) for chunk in column.chunks], pa.int64())


def _narrow(chunk: pa.Array) -> pa.Array:
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


def widened(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows that were narrowed as `schema` has them."""
    columns, fields = list(rows.columns), list(rows.schema)
    for position, field in enumerate(schema):
        if _fits(field.type) and fields[position].type == pa.int64():
            columns[position] = _widen(columns[position], field.type)
            fields[position] = field
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _widen(column: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = np.from_dlpack(column.fill_null(0) if column.null_count else column)
    content = pa.allocate_buffer(16 * len(column))
    words = np.frombuffer(content, np.int64).reshape(-1, 2)
    words[:, 0] = numbers
    np.right_shift(numbers, 63, out=words[:, 1])
    validity = column.is_valid() if column.null_count else None
    bits = None if validity is None else validity.buffers()[1]
    return pa.Array.from_buffers(kind, len(column), [bits, content])


def _fits(kind: pa.DataType) -> bool:
    return bool(pat.is_decimal128(kind) and kind.precision <= _LONG_DIGITS)
