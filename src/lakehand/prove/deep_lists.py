"""Deeply nested lists and maps, replaced by the hashes of their elements before a row is hashed.

A list of lists is hashed by a lambda in a lambda (`digest.py`), and DuckDB binds each lambda about
three times: its time is 3^depth, 0.1 s at twelve levels and an hour at twenty. Here the elements
are hashed level by level, from the innermost. The hashes of rows are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Hashes values of one type, in their order.
    HashValues = Callable[[pa.Array], pa.Array]

#: Nested lambdas that DuckDB binds in some hundredths of a second.
_MOST_LAMBDAS = 10
_HASH = pa.uint64()


def is_deep(schema: pa.Schema) -> bool:
    """Return whether some column has lists in lists beyond what DuckDB can hash in reasonable time.

    DuckDB must then hash the rows of `shallow_rows`, not those of a file.
    """
    return any(map(_is_deep, schema.types))


def hashable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `shallow_rows`."""
    columns = [
        column.with_type(_shallow_type(column.type)) if _is_deep(column.type) else column
        for column in schema
    ]
    return pa.schema(columns)


def shallow_rows(rows: pa.Table, hash_values: HashValues) -> pa.Table:
    """Return the same rows; deep columns have hashes for the elements of lists and maps."""
    for position, column in enumerate(rows.schema):
        if _is_deep(column.type):
            kind = _shallow_type(column.type)
            # The elements of a slice would be those of the whole array.
            chunks = [pa.concat_arrays([chunk]) for chunk in rows.column(position).chunks]
            hashed = pa.chunked_array([_shallow(chunk, hash_values) for chunk in chunks], kind)
            rows = rows.set_column(position, column.with_type(kind), hashed)
    return rows


def takes_lambda(element: pa.DataType) -> bool:
    """Return whether elements of this type are hashed one by one, not as a list."""
    return bool(pat.is_nested(element) or pat.is_floating(element))


def _is_deep(kind: pa.DataType) -> bool:
    return _lambdas(kind) > _MOST_LAMBDAS


def _lambdas(kind: pa.DataType) -> int:
    parts = [kind.field(index).type for index in range(kind.num_fields)]
    deepest = max(map(_lambdas, parts), default=0)
    if _is_list(kind):
        return deepest + takes_lambda(kind.value_type)
    if pat.is_map(kind):
        return deepest + (takes_lambda(kind.key_type) or takes_lambda(kind.item_type))
    return deepest


def _is_list(kind: pa.DataType) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind))


def _shallow_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([member.with_type(_shallow_type(member.type)) for member in members])
    if pat.is_map(kind):
        return pa.map_(_element_type(kind.key_type), _element_type(kind.item_type))
    if pat.is_list(kind):
        return pa.list_(_element_type(kind.value_type))
    return pa.large_list(_element_type(kind.value_type)) if pat.is_large_list(kind) else kind


def _element_type(kind: pa.DataType) -> pa.DataType:
    return _HASH if takes_lambda(kind) else kind


def _shallow(array: pa.Array, hash_values: HashValues) -> pa.Array:
    kind = array.type
    if pat.is_struct(kind) and kind.num_fields:
        members = [_shallow(array.field(index), hash_values) for index in range(kind.num_fields)]
        shallow = _shallow_type(kind)
        fields = [shallow.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null())
    if pat.is_map(kind):
        shallow = _shallow_type(kind)
        entries = [_hashed(part, hash_values) for part in (array.keys, array.items)]
        fields = [shallow.key_field, shallow.item_field]
        return _with_elements(array, shallow, pa.StructArray.from_arrays(entries, fields=fields))
    if _is_list(kind):
        return _with_elements(array, _shallow_type(kind), _hashed(array.values, hash_values))
    return array


def _hashed(values: pa.Array, hash_values: HashValues) -> pa.Array:
    return hash_values(_shallow(values, hash_values)) if takes_lambda(values.type) else values


def _with_elements(array: pa.Array, kind: pa.DataType, elements: pa.Array) -> pa.Array:
    """Return the same lists with other elements."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], offset=array.offset, children=[elements]
    )
