"""Rows in types that the digest tells apart to the bit, whatever columns a dataset has.

DuckDB, which hashes rows, knows no half floats, cuts nanoseconds off and takes -0.0 for 0.0 in
arrays. So such values are hashed as the bits they are made of.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS_A_BYTE = 8
#: A vector: the bits of all its elements and, if some are null, a byte for each that says so.
_VECTOR = pa.large_binary()
_INTEGERS = {8: pa.uint8(), 16: pa.uint16(), 32: pa.int32(), 64: pa.int64()}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types that `plain_batch` hands out."""
    try:
        return _known_schema(schema)
    except TypeError:
        # Some of Lance's own types cannot be looked up, as they have no hash.
        return _known_schema.__wrapped__(schema)


@lru_cache(maxsize=8)
def _known_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, _plain_type(field.type)) for field in schema])


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in plain types: two values are equal where these are."""
    columns = [_plain(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.schema))


def plain_table(rows: pa.Table) -> pa.Table:
    """Return the same rows in plain types."""
    batches = [plain_batch(batch) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, schema=plain_schema(rows.schema))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pat.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return _nested_type(kind) if pat.is_nested(kind) else _bits_type(kind)


def _nested_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_struct(kind):
        return pa.struct([(member.name, _plain_type(member.type)) for member in kind])
    if pat.is_map(kind):
        return pa.list_(_plain_type(pa.struct({"key": kind.key_type, "value": kind.item_type})))
    if pat.is_fixed_size_list(kind) and _is_vector(kind):
        return _VECTOR
    return pa.list_(_plain_type(kind.value_type))


def _bits_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_decimal256(kind) or pat.is_interval(kind):
        return pa.binary(kind.bit_width // _BITS_A_BYTE)
    if pat.is_float16(kind) or pat.is_temporal(kind):
        return _INTEGERS[kind.bit_width]
    return kind


def _is_vector(kind: pa.DataType) -> bool:
    element = kind.value_type
    return bool(pat.is_primitive(element) and not pat.is_boolean(element))


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if _plain_type(kind) == kind:
        return array
    steps: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], pa.Array]], ...] = (
        (pat.is_dictionary, lambda values: _plain(values.dictionary_decode())),
        (pat.is_fixed_size_list, _plain_fixed_list),
        (pat.is_map, _plain_map),
        (pat.is_nested, _plain_nested),
    )
    for is_kind, convert in steps:
        if is_kind(kind):
            return convert(array)
    return array.view(_bits_type(kind))


def _plain_nested(array: pa.Array) -> pa.Array:
    if pat.is_struct(array.type):
        members = [_plain(array.field(number)) for number in range(array.type.num_fields)]
        fields = list(_plain_type(array.type))
        return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null())
    return _listed(array, _plain(array.flatten()))


def _plain_map(array: pa.MapArray) -> pa.Array:
    pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets = pc.subtract(array.offsets, start)
    values = _plain(pairs.slice(start, end - start))
    return pa.ListArray.from_arrays(offsets, values, mask=array.is_null())


def _plain_fixed_list(array: pa.FixedSizeListArray) -> pa.Array:
    if _is_vector(array.type):
        return _vectors(array)
    return _listed(array, _plain(array.flatten()))


def _listed(array: pa.Array, values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=array.is_null())


def _vectors(array: pa.FixedSizeListArray) -> pa.Array:
    """Return the bits of each vector, out of the memory that they lie in."""
    size, count = array.type.list_size, len(array)
    elements = array.values.slice(array.offset * size, count * size)
    kind = _INTEGERS[elements.type.bit_width]
    width = size * kind.bit_width // _BITS_A_BYTE
    if elements.null_count:
        return _vectors_with_nulls(array, elements.view(kind), width)
    return _texts(elements.view(kind).to_numpy(), _even_offsets(width, count), array)


def _vectors_with_nulls(array: pa.Array, elements: pa.Array, width: int) -> pa.Array:
    """Do the same where elements are null: they count as zero, and as null.

    Vectors without such elements are as long as everywhere, and the others are longer.
    """
    is_null = elements.is_null().to_numpy(zero_copy_only=False)
    is_null = is_null.reshape(len(array), array.type.list_size)
    bits = pc.fill_null(elements, 0).to_numpy().view(np.uint8).reshape(len(array), width)
    is_longer = is_null.any(axis=1)
    rows = np.concatenate([bits, is_null.view(np.uint8)], axis=1)
    is_kept = np.ones(rows.shape, np.bool_)
    is_kept[~is_longer, width:] = False
    lengths = is_kept.sum(axis=1)
    offsets = pa.py_buffer(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))
    return _texts(rows[is_kept], offsets, array)


def _texts(data: np.ndarray, offsets: pa.Buffer, like: pa.Array) -> pa.Array:
    """Return what lies between `offsets` in the memory of `data`, null where `like` is."""
    validity = like.is_valid().buffers()[1] if like.null_count else None
    return pa.Array.from_buffers(_VECTOR, len(like), [validity, offsets, pa.py_buffer(data)])


@lru_cache(maxsize=8)
def _even_offsets(width: int, count: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width)
