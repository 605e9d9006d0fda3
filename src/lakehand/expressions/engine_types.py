"""Replacements of Arrow types that DuckDB, which evaluates predicates, does not support.

Half floats are evaluated as 32-bit floats, which represent all of them exactly. Decimals of more
than 38 digits have no replacement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import PredicateError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_DIGITS = 38


def engine_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns with the types used for evaluation."""
    return pa.schema([_field(column) for column in schema])


def engine_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of `kind` are evaluated."""
    if pat.is_float16(kind):
        return pa.float32()
    if pat.is_decimal256(kind) and kind.precision <= _MAX_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_struct(kind):
        return pa.struct([_field(member) for member in kind])
    if pat.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if pat.is_large_list(kind):
        return pa.large_list(_field(kind.value_field))
    return pa.list_(_field(kind.value_field)) if pat.is_list(kind) else kind


#: Types that Spark SQL does not have, and those in which their values are evaluated.
_SPARK_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of Spark SQL in which values of any kind are evaluated, if there is one."""
    if pat.is_struct(kind):
        return pa.struct([member.with_type(spark_type(member.type)) for member in kind])
    if pat.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pat.is_timestamp(kind):
        # A zone says how an instant is shown, and not which one it is.
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pat.is_fixed_size_binary(kind):
        return pa.binary()
    return _SPARK_TYPES.get(kind) or engine_type(kind)


def _field(member: pa.Field) -> pa.Field:
    return member.with_type(engine_type(member.type))


def engine_values(values: pa.Array) -> pa.Array:
    """Return values in the type used for evaluation."""
    kind = engine_type(values.type)
    return values if kind == values.type else values.cast(kind)


def require_engine_types(paths: Sequence[Sequence[str]], types: Sequence[pa.DataType]) -> None:
    """Raise PredicateError, with the name of the column, if a type is not supported."""
    for path, kind in zip(paths, types, strict=True):
        if _is_beyond(engine_type(kind)):
            name = ".".join(path)
            raise PredicateError(
                f"predicates on column {name!r} of type {kind} are not supported",
                field=name,
                hint="use other columns in the predicate",
            )


def _is_beyond(kind: pa.DataType) -> bool:
    if pat.is_dictionary(kind):
        return _is_beyond(kind.value_type)
    members = (kind.field(number).type for number in range(kind.num_fields))
    is_beyond = pat.is_decimal256(kind) or pat.is_float16(kind)
    return bool(is_beyond) or any(map(_is_beyond, members))
