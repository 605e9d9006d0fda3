"""Which columns have use for a dictionary.

Encoding a column both ways to see which is smaller costs as much as encoding it twice, and happens
for every file. A few thousand rows, taken evenly from the first row group, tell nearly as well: how
many of their values repeat says how many different ones there are in all.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DICTIONARY_BYTES", "without_use_for_dictionaries"]

#: The encoder gives a dictionary up that grows beyond this.
DICTIONARY_BYTES = 2**20
_SAMPLE_ROWS = 4096
#: So few values are read faster by their numbers, whatever a codec makes of them.
_FEW_VALUES = 255
_BITS_A_BYTE = 8
_TEXT = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}


def without_use_for_dictionaries(rows: pa.Table, codec: str) -> frozenset[str]:
    """Return flat columns whose row group is no larger, or even smaller, without a dictionary."""
    flat = [field.name for field in rows.schema if _can_be_sampled(field.type)]
    if not flat or not rows.num_rows:
        return frozenset()
    sample = rows.select(flat).take(_evenly(rows.num_rows)).combine_chunks()
    present = {name: _present(sample[name]) for name in flat}
    return frozenset(
        name
        for name, values in present.items()
        if len(values)
        and not _pays(values, rows=rows.num_rows * len(values) / len(sample), codec=codec)
    )


def _can_be_sampled(kind: pa.DataType) -> bool:
    is_number = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return is_number or pa.types.is_decimal(kind) or kind in _TEXT


def _evenly(rows: int) -> pa.Array:
    """Return row numbers far enough from each other that values in runs count once."""
    count = min(rows, _SAMPLE_ROWS)
    return pa.array(np.linspace(0, rows - 1, count, dtype=np.int64))


def _present(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.drop_null().chunks) if len(column) > column.null_count else []


def _pays(values: pa.Array, *, rows: float, codec: str) -> bool:
    """Say whether `rows` rows take less room with a dictionary, judged by some of their values."""
    found = pc.count_distinct(values).as_py()
    if found <= min(_FEW_VALUES, len(values) / 2):
        return True
    distinct = _distinct_among(rows, sampled=len(values), found=found)
    if distinct * values.nbytes / len(values) > DICTIONARY_BYTES:
        return False
    value_bytes = _stored_bytes(values, codec) / len(values)
    numbers = rows * math.ceil(math.log2(max(2.0, distinct))) / _BITS_A_BYTE
    return distinct * value_bytes + numbers < rows * value_bytes


def _distinct_among(rows: float, *, sampled: int, found: int) -> float:
    """Return how many different values `rows` rows have, if all are about equally frequent."""
    repeats = sampled - found
    if not repeats:
        return rows
    population = sampled**2 / (2 * repeats) if repeats < sampled / 2 else found
    return min(rows, population * -math.expm1(-rows / population))


def _stored_bytes(values: pa.Array, codec: str) -> int:
    """Return what the values take one after the other, compressed as they will be in the file."""
    buffers = [buffer for buffer in values.buffers()[1:] if buffer is not None]
    if codec == "none":
        return sum(buffer.size for buffer in buffers)
    compress = pa.Codec(codec).compress
    return sum(len(compress(buffer)) for buffer in buffers)
