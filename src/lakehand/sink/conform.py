"""Rows as a table wants them: its columns in its order and types, or a clear no.

Columns are found by name, without regard to case; members of structs by their exact names. What is
missing and may be null becomes null. Types are widened where no value can change: integers, floats
and decimals to wider ones, the many forms of texts, binaries and lists to Arrow's plain ones,
timestamps to microseconds (nanoseconds only if none are lost), time zones to UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import SchemaMismatchError
from lakehand.sink.nulls import forbidden_null, may_forbid_nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

__all__ = ["Conformer"]

_MICROSECONDS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitting:
    """How batches of one schema become batches of the table's."""

    #: Position of each column of the table in the batch; None: it is missing, and so null.
    positions: tuple[int | None, ...]
    #: Whether a batch is as the table wants it already.
    is_identity: bool


class Conformer:
    """Makes batches fit one schema. What it was told of a schema once, it does not ask again."""

    def __init__(self, schema: pa.Schema, *, table: str, explicit: Collection[str] = ()) -> None:
        """`explicit` columns must not be left out."""
        self.schema = schema
        #: The same columns, all of which may be null: what is forbidden is looked at by itself.
        self._target = pa.schema([_optional(column) for column in schema])
        self._table = table
        self._explicit = frozenset(explicit)
        self._fittings: dict[pa.Schema, _Fitting] = {}
        self._guarded = [index for index, column in enumerate(schema) if may_forbid_nulls(column)]

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `batch` under the table's columns and types.

        SchemaMismatchError, which says all that differs, if they do not fit.
        """
        fitting = self._fitting(batch.schema)
        self._check_values(batch)
        fitted = batch if fitting.is_identity else self._fit(batch, fitting)
        for index in self._guarded:
            path = forbidden_null(fitted.column(index), self.schema.field(index))
            if path is not None:
                raise self._mismatch([f"column {path!r} holds a null, which the table forbids"])
        return fitted

    def _check_values(self, batch: pa.RecordBatch) -> None:
        """Refuse what is no sound Arrow: above all texts that are no UTF-8."""
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._mismatch([str(error).partition("\n")[0]]) from error

    def require(self, schema: pa.Schema) -> None:
        """Raise SchemaMismatchError if no batch of `schema` could fit."""
        self._fitting(schema)

    def _fitting(self, schema: pa.Schema) -> _Fitting:
        if schema not in self._fittings:
            self._fittings[schema] = self._compare(schema)
        return self._fittings[schema]

    def _compare(self, schema: pa.Schema) -> _Fitting:
        differences = list(_differences(schema, self.schema, self._explicit))
        if differences:
            raise self._mismatch(differences)
        found = {name.lower(): index for index, name in enumerate(schema.names)}
        return _Fitting(
            positions=tuple(found.get(name.lower()) for name in self.schema.names),
            is_identity=schema.names == self.schema.names
            and schema.types in (self._target.types, self.schema.types),
        )

    def _fit(self, batch: pa.RecordBatch, fitting: _Fitting) -> pa.RecordBatch:
        columns = [
            pa.nulls(batch.num_rows, column.type)
            if position is None
            else self._cast(batch.column(position), column)
            for position, column in zip(fitting.positions, self._target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _cast(self, values: pa.Array, column: pa.Field) -> pa.Array:
        if values.type == column.type:
            return values
        try:
            return values.cast(column.type, safe=True)
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            message = f"column {column.name!r} has a value that {column.type} cannot hold: {reason}"
            raise self._mismatch([message]) from error

    def _mismatch(self, differences: list[str]) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"these rows do not fit {self._table}: " + "; ".join(differences),
            table=self._table,
            difference=tuple(differences),
            hint="nothing of this batch was taken; cast or rename its columns",
        )


def _optional(column: pa.Field) -> pa.Field:
    """Return a column that may be null wherever Arrow lets it be."""
    type_ = column.type
    if pat.is_struct(type_):
        type_ = pa.struct([_optional(member) for member in type_])
    elif pat.is_list(type_):
        type_ = pa.list_(_optional(type_.value_field))
    elif pat.is_map(type_):
        key = _optional(type_.key_field).with_nullable(False)  # noqa: FBT003  Arrow's own
        type_ = pa.map_(key, _optional(type_.item_field))
    return pa.field(column.name, type_)


def _differences(have: pa.Schema, want: pa.Schema, explicit: Collection[str]) -> Iterator[str]:
    """Say what keeps rows of `have` from being rows of `want`."""
    offered: dict[str, pa.Field] = {}
    for column in have:
        if column.name.lower() in offered:
            yield f"column {column.name!r} is there twice"
        offered[column.name.lower()] = column
    known = {column.name.lower() for column in want}
    yield from (
        f"column {column.name!r} is not in the table"
        for name, column in offered.items()
        if name not in known
    )
    for column in want:
        found = offered.get(column.name.lower())
        if found is not None:
            yield from _type_differences(found.type, column.type, column.name)
        else:
            yield from _missing(column, has_default=column.name in explicit)


def _missing(column: pa.Field, *, has_default: bool) -> Iterator[str]:
    if not column.nullable:
        yield f"column {column.name!r} is missing, and may not be null"
    elif has_default:
        yield f"column {column.name!r} is missing, and has a default, which is not computed"


def _type_differences(have: pa.DataType, want: pa.DataType, path: str) -> Iterator[str]:
    if isinstance(have, pa.DictionaryType):
        have = have.value_type
    if have == want or pat.is_null(have):
        return
    if pat.is_struct(have) and pat.is_struct(want):
        yield from _struct_differences(have, want, path)
    elif _is_list(have) and pat.is_list(want):
        yield from _type_differences(have.value_type, want.value_type, f"{path}.element")
    elif pat.is_map(have) and pat.is_map(want):
        yield from _type_differences(have.key_type, want.key_type, f"{path}.key")
        yield from _type_differences(have.item_type, want.item_type, f"{path}.value")
    elif not _is_lossless(have, want):
        yield f"column {path!r} is {have}, and the table has {want}"


def _struct_differences(have: pa.StructType, want: pa.StructType, path: str) -> Iterator[str]:
    offered = {member.name: member for member in have}
    known = {member.name for member in want}
    for name in offered.keys() - known:
        yield f"column {path + '.' + name!r} is not in the table"
    for member in want:
        inner = f"{path}.{member.name}"
        if member.name in offered:
            yield from _type_differences(offered[member.name].type, member.type, inner)
        elif not member.nullable:
            yield f"column {inner!r} is missing, and may not be null"


def _is_list(type_: pa.DataType) -> bool:
    forms = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view)
    return any(form(type_) for form in (*forms, pat.is_large_list_view))


def _is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    """Say whether every value of `have` is one of `want`, or a cast tells which are not."""
    return any(is_kind(want) and allows(have, want) for is_kind, allows in _WIDENINGS.items())


def _integer_widens(have: pa.DataType, want: pa.DataType) -> bool:
    if pat.is_signed_integer(have):
        return bool(have.bit_width <= want.bit_width)
    return bool(pat.is_unsigned_integer(have) and have.bit_width < want.bit_width)


def _float_widens(have: pa.DataType, want: pa.DataType) -> bool:
    return bool(pat.is_floating(have) and have.bit_width <= want.bit_width)


def _decimal_widens(have: pa.DataType, want: pa.DataType) -> bool:
    if not pat.is_decimal(have):
        return False
    whole = have.precision - have.scale
    return bool(have.scale <= want.scale and whole <= want.precision - want.scale)


def _text_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    return bool(pat.is_large_string(have) or pat.is_string_view(have))


def _binary_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    forms = (pat.is_large_binary, pat.is_binary_view, pat.is_fixed_size_binary)
    return any(form(have) for form in forms)


def _timestamp_widens(have: pa.DataType, want: pa.DataType) -> bool:
    # A moment stays a moment, and the time on a wall one: a cast would make up a zone.
    same_kind = pat.is_timestamp(have) and (have.tz is None) == (want.tz is None)
    return bool(same_kind and have.unit in _MICROSECONDS)


def _date_widens(have: pa.DataType, _want: pa.DataType) -> bool:
    return bool(pat.is_date64(have))


_WIDENINGS: Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]] = {
    pat.is_signed_integer: _integer_widens,
    pat.is_floating: _float_widens,
    pat.is_decimal: _decimal_widens,
    pat.is_string: _text_widens,
    pat.is_binary: _binary_widens,
    pat.is_timestamp: _timestamp_widens,
    pat.is_date32: _date_widens,
}
