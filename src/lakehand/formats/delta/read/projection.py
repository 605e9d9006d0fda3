"""Logical columns made from the columns of one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import RefusedError, SchemaMismatchError
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import (
    CHANGE_TYPE,
    ArrayType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructType,
    field_id,
    is_void,
    physical_name,
)
from lakehand.parquet.columns import FileColumn, is_any_list
from lakehand.parquet.variant_shredding import (
    METADATA,
    TYPED_VALUE,
    VALUE,
    reassemble,
    unreadable_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

_MICROSECONDS = pa.timestamp("us")
#: Digits before the point that integers of a width need.
_INTEGER_DIGITS: Mapping[int, int] = {8: 10, 16: 10, 32: 10, 64: 20}
_NARROW_BITS = 32


def can_cast(have: pa.DataType, want: pa.DataType) -> bool:
    """Say whether values of a file's type are values of a table's type, all of them.

    Beyond the changes that Delta allows these are other spellings of the same type, and the
    narrow integers that some writers store without saying so, which are checked value by value.
    """
    plain = _plain(have)
    if plain == want or pa.types.is_null(plain):
        return True
    rule = next((rule for test, rule in _RULES.items() if test(want)), None)
    return rule is not None and rule(plain, want)


def cast_values(values: pa.Array, want: pa.DataType) -> pa.Array:
    """Return values of a type that `can_cast`; pa.ArrowInvalid for one that does not fit."""
    if isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_decode()
    have = values.type
    if have == want:
        return values
    if pa.types.is_timestamp(want):
        return _cast_times(values, want)
    if pa.types.is_string(want) and not pa.types.is_large_string(have):
        # Spark's strings may hold any bytes; they are passed on unchanged.
        return values.cast(want, safe=False)
    return values.cast(want)


def _cast_times(values: pa.Array, want: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        if values.type.unit == "ns":
            values = pc.floor_temporal(values, unit="microsecond")
        values = values.cast(pa.timestamp(values.type.unit))
    micros = values.cast(_MICROSECONDS, safe=not _is_nanos(values.type))
    return micros.view(want)


def _is_nanos(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "ns")


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if isinstance(type_, pa.DictionaryType) else type_


def _to_integer(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_unsigned_integer(have):
        return bool(have.bit_width < want.bit_width)
    if not pa.types.is_signed_integer(have):
        return False
    return bool(have.bit_width <= max(want.bit_width, _NARROW_BITS))


def _to_float(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_integer(have):
        return bool(pa.types.is_float64(want) and have.bit_width <= _NARROW_BITS)
    return bool(pa.types.is_float32(have) and pa.types.is_float64(want))


def _to_decimal(have: pa.DataType, want: pa.DataType) -> bool:
    digits = want.precision - want.scale
    if pa.types.is_signed_integer(have):
        return bool(digits >= _INTEGER_DIGITS[have.bit_width])
    if not pa.types.is_decimal(have):
        return False
    return bool(want.scale >= have.scale and digits >= have.precision - have.scale)


def _to_timestamp(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_date(have):
        return want.tz is None
    # A file with instants cannot tell what a clock on some wall showed.
    return bool(pa.types.is_timestamp(have) and (want.tz is not None or have.tz is None))


def _to_date(have: pa.DataType, want: pa.DataType) -> bool:  # noqa: ARG001  one shape of rules
    return bool(pa.types.is_date(have))


def _to_bytes(have: pa.DataType, want: pa.DataType) -> bool:
    types = pa.types
    if types.is_fixed_size_binary(have):
        return bool(types.is_binary(want))
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    binaries = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(have) for test in texts + binaries)


_RULES: Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]] = {
    pa.types.is_integer: _to_integer,
    pa.types.is_floating: _to_float,
    pa.types.is_decimal: _to_decimal,
    pa.types.is_timestamp: _to_timestamp,
    pa.types.is_date: _to_date,
    pa.types.is_string: _to_bytes,
    pa.types.is_binary: _to_bytes,
}


_VARIANT_PARTS = (METADATA, VALUE)


class Projection(Protocol):
    """How one logical value is made from what the file holds of it."""

    @property
    def leaves(self) -> tuple[int, ...]:
        """Stored columns that have to be read."""
        ...

    def apply(self, array: pa.Array) -> pa.Array: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RowProjection:
    """How rows are made from rows of a file."""

    #: Name in the file (None: not there) and projection of each column.
    members: tuple[tuple[str | None, Projection], ...]

    @property
    def leaves(self) -> tuple[int, ...]:
        """Stored columns that have to be read."""
        return _joined(member.leaves for _, member in self.members)

    def apply(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return one array per column."""
        return [
            member.apply(pa.nulls(batch.num_rows) if name is None else batch.column(name))
            for name, member in self.members
        ]


def project_rows(
    columns: Sequence[StructField], stored: Sequence[FileColumn], mode: MappingMode
) -> RowProjection:
    """Return how to make `columns` from what a file stores; nulls where it has none of a column."""
    _require_ids(stored, mode, place="the file")
    members = (_project_field(column, stored, mode, place=column.name) for column in columns)
    return RowProjection(members=tuple(members))


def _require_ids(stored: Sequence[FileColumn], mode: MappingMode, *, place: str) -> None:
    """Refuse columns without ids where only ids tell them apart: they would read as null."""
    if mode is MappingMode.ID and stored and not any(column.field_id for column in stored):
        message = f"{place} has no field ids, and the table finds its columns by them alone"
        raise SchemaMismatchError(message, hint="rewrite the file with the engine that wrote it")


def find_column(
    column: StructField, columns: Sequence[FileColumn], mode: MappingMode
) -> FileColumn | None:
    """Return the column of the file that holds `column`."""
    identifier = field_id(column)
    if mode is MappingMode.ID and column.name != CHANGE_TYPE:
        return next((c for c in columns if c.field_id == identifier is not None), None)
    return named(physical_name(column, mode=mode), columns)


def named(name: str, columns: Sequence[FileColumn]) -> FileColumn | None:
    """Return the column of this name; if there is none, the one that differs by case only."""
    exact = [column for column in columns if column.name == name]
    if exact:
        return exact[0]
    folded = [column for column in columns if column.name.lower() == name.lower()]
    if len(folded) > 1:
        names = ", ".join(column.name for column in folded)
        raise SchemaMismatchError(f"the file has several columns named {name!r}: {names}")
    return folded[0] if folded else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Missing:
    """A value that the file does not hold: null. `witness` tells whether the parent is there."""

    type: pa.DataType
    leaves: tuple[int, ...] = ()

    def apply(self, array: pa.Array) -> pa.Array:
        return pa.nulls(len(array), self.type)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Value:
    type: pa.DataType
    leaves: tuple[int, ...]

    def apply(self, array: pa.Array) -> pa.Array:
        return cast_values(array, self.type)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Struct:
    type: pa.DataType
    #: Name in the file (None: not there) and projection of each member.
    members: tuple[tuple[str | None, Projection], ...]
    leaves: tuple[int, ...]

    def apply(self, array: pa.Array) -> pa.Array:
        children = [
            member.apply(array if name is None else array.field(name))
            for name, member in self.members
        ]
        if not children:
            return array.cast(self.type)
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=array.is_null())


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShreddedVariant:
    type: pa.DataType
    leaves: tuple[int, ...]

    def apply(self, array: pa.Array) -> pa.Array:
        parts = [cast_values(array.field(METADATA), pa.binary()), reassemble(array)]
        return pa.StructArray.from_arrays(parts, fields=list(self.type), mask=array.is_null())


@dataclass(frozen=True, kw_only=True, slots=True)
class _List:
    type: pa.DataType
    element: Projection

    @property
    def leaves(self) -> tuple[int, ...]:
        return self.element.leaves

    def apply(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        return _with_entries(array, self.element.apply(array.values), self.type)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Map:
    type: pa.DataType
    key: Projection
    value: Projection

    @property
    def leaves(self) -> tuple[int, ...]:
        return self.key.leaves + self.value.leaves

    def apply(self, array: pa.Array) -> pa.Array:
        fields = [self.type.key_field, self.type.item_field]
        pair = [self.key.apply(array.keys), self.value.apply(array.items)]
        return _with_entries(array, pa.StructArray.from_arrays(pair, fields=fields), self.type)


def _with_entries(array: pa.Array, entries: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a list or map with the same lengths and nulls and with other entries, uncopied."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(array), [validity, offsets], offset=array.offset, children=[entries]
    )


def _project_field(
    column: StructField, columns: Sequence[FileColumn], mode: MappingMode, *, place: str
) -> tuple[str | None, Projection]:
    found = find_column(column, columns, mode)
    if found is None or is_void(column.type):
        return None, _Missing(type=arrow_type(column.type))
    return found.name, _project(column.type, found, mode, place=place)


def _project(kind: DeltaType, found: FileColumn, mode: MappingMode, *, place: str) -> Projection:
    type_ = arrow_type(kind)
    match kind:
        case StructType() if pa.types.is_struct(found.type):
            return _project_struct(kind, found, mode, place=place)
        case ArrayType(element) if is_any_list(found.type):
            inner = _project(element, found.parts[0], mode, place=f"{place}.element")
            return _List(type=type_, element=inner)
        case MapType(key, value) if pa.types.is_map(found.type):
            return _Map(
                type=type_,
                key=_project(key, found.parts[0], mode, place=f"{place}.key"),
                value=_project(value, found.parts[1], mode, place=f"{place}.value"),
            )
        case PrimitiveType("variant") if pa.types.is_struct(found.type):
            return _project_variant(found, type_, place=place)
        case PrimitiveType() if can_cast(found.type, type_):
            return _Value(type=type_, leaves=found.leaves)
    message = f"the file holds column {place!r} as {found.type}, which cannot become {type_}"
    raise SchemaMismatchError(message, difference=f"{place}: {found.type} -> {type_}")


def _project_struct(
    kind: StructType, found: FileColumn, mode: MappingMode, *, place: str
) -> Projection:
    _require_ids(found.parts, mode, place=f"column {place!r} of the file")
    members = tuple(
        _project_field(member, found.parts, mode, place=f"{place}.{member.name}")
        for member in kind.fields
    )
    # With no member in the file, any other tells which structs are null.
    leaves = _joined(member.leaves for _, member in members) or found.leaves[:1]
    return _Struct(type=arrow_type(kind), members=members, leaves=leaves)


def _project_variant(found: FileColumn, type_: pa.DataType, *, place: str) -> Projection:
    if found.type.get_field_index(TYPED_VALUE) >= 0:
        return _project_shredded(found, type_, place=place)
    parts = [named(name, found.parts) for name in _VARIANT_PARTS]
    if any(part is None for part in parts):
        raise SchemaMismatchError(f"the file holds {place!r} without both parts of a variant")
    members = tuple(
        (part.name, _Value(type=pa.binary(), leaves=part.leaves)) for part in parts if part
    )
    return _Struct(type=type_, members=members, leaves=found.leaves)


def _project_shredded(found: FileColumn, type_: pa.DataType, *, place: str) -> Projection:
    names = {part.name: part for part in found.parts}
    if METADATA not in names or not names.keys() <= {METADATA, VALUE, TYPED_VALUE}:
        raise SchemaMismatchError(f"the file holds {place!r} in parts that no shredded variant has")
    unreadable = unreadable_type(names[TYPED_VALUE].type)
    if unreadable is not None:
        raise RefusedError(
            f"the file holds values of the variant {place!r} as {unreadable}, which lakehand"
            " cannot read",
            operation="read",
            feature="variantShredding",
        )
    return _ShreddedVariant(type=type_, leaves=found.leaves)


def _joined(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(leaf for group in groups for leaf in group)


def relabel(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` under the names, field metadata and nullability of `schema`, uncopied.

    A cast would look nested members up by name, and so make them null where names differ.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.types == schema.types and not any(map(pat.is_nested, schema.types)):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    for have, want in zip(batch.schema, schema, strict=True):
        if not _same_layout(have.type, want.type):
            message = f"column {want.name!r} is {have.type}, and must be written as {want.type}"
            raise SchemaMismatchError(message)
    return pa.record_batch(_Relabelled(batch, schema))


class _Relabelled:
    """Hands out the data of a batch with another schema, by Arrow's own exchange protocol."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, data = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), data


def _same_layout(have: pa.DataType, want: pa.DataType) -> bool:
    """Say whether two types differ by nothing but names, metadata and nullability."""
    if not pat.is_nested(want):
        return bool(have == want)
    if have.id != want.id or have.num_fields != want.num_fields:
        return False
    pairs = ((have.field(i).type, want.field(i).type) for i in range(want.num_fields))
    return all(_same_layout(left, right) for left, right in pairs)
