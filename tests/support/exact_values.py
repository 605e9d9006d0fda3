"""Arrow values as Python values that are equal only if every bit is, and back.

Floating-point numbers are their bits, dates and timestamps their integers: Python's own types know
fewer years, and take -0.0 for 0.0.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Value = Any


def exact_rows(rows: pa.Table) -> Counter[tuple[Value, ...]]:
    """Return the rows as a bag."""
    return Counter(zip(*(exact(column) for column in rows.columns), strict=True))


def exact(array: pa.Array | pa.ChunkedArray) -> list[Value]:
    """Return the values of an array: structs as tuples, lists and maps as tuples of entries."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in exact(chunk)]
    kind = array.type
    if pat.is_dictionary(kind):
        return exact(array.dictionary_decode())
    if pat.is_struct(kind):
        members = [exact(array.field(index)) for index in range(kind.num_fields)]
        rows = zip(*members, strict=True) if members else (() for _ in range(len(array)))
        return _masked(array, rows)
    if pat.is_map(kind):
        pairs = list(zip(exact(array.keys), exact(array.items), strict=True))
        return _cut(array, pairs)
    if pat.is_list(kind) or pat.is_large_list(kind):
        return _cut(array, exact(array.values))
    return _leaves(array)


def _masked(array: pa.Array, values: Iterable[Value]) -> list[Value]:
    return [v if is_set else None for v, is_set in zip(values, _validity(array), strict=True)]


def _validity(array: pa.Array) -> list[bool]:
    return array.is_valid().to_pylist()


def _cut(array: pa.Array, entries: list[Value]) -> list[Value]:
    offsets = array.offsets.to_pylist()
    cut = (tuple(entries[start:end]) for start, end in itertools.pairwise(offsets))
    return _masked(array, cut)


def _leaves(array: pa.Array) -> list[Value]:
    kind = array.type
    if pat.is_floating(kind):
        bits = array.view(pa.int64() if kind == pa.float64() else pa.int32())
        return bits.to_pylist()
    if pat.is_timestamp(kind):
        naive = array.cast(pa.timestamp(kind.unit))
        return naive.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    if pat.is_date32(kind):
        return array.view(pa.int32()).to_pylist()
    return array.to_pylist()


def arrow_array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Return values as `exact` gives them as an array."""
    if pat.is_struct(kind):
        members = [
            arrow_array([None if v is None else v[index] for v in values], field.type)
            for index, field in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=_nulls(values))
    if pat.is_map(kind):
        keys, items = zip(*_entries(values), strict=True) if _entries(values) else ((), ())
        pair = [arrow_array(keys, kind.key_type), arrow_array(items, kind.item_type)]
        entries = pa.StructArray.from_arrays(pair, fields=[kind.key_field, kind.item_field])
        return _nested(values, entries, kind)
    if pat.is_list(kind):
        return _nested(values, arrow_array(_entries(values), kind.value_type), kind)
    return _leaf_array(values, kind)


def _entries(values: Sequence[Value]) -> list[Value]:
    return [entry for value in values if value is not None for entry in value]


def _nulls(values: Sequence[Value]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _nested(values: Sequence[Value], entries: pa.Array, kind: pa.DataType) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    valid = pa.array([value is not None for value in values], pa.bool_())
    buffers = [valid.buffers()[1], offsets.buffers()[1]]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[entries])


def _leaf_array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    if pat.is_floating(kind):
        return pa.array(values, pa.int64() if kind == pa.float64() else pa.int32()).view(kind)
    if pat.is_timestamp(kind):
        factor = {"us": 1, "ms": 1000}[kind.unit]
        scaled = [None if value is None else value // factor for value in values]
        return pa.array(scaled, pa.int64()).view(kind)
    if pat.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    return pa.array(values, kind)
