"""Logical columns made from the columns of one file.

A file was written under a schema of its time: columns are missing, dropped, renamed, of narrower
types, nested in another order. A projection is worked out once a file and then applied to batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakehand.errors import RefusedError, SchemaMismatchError
from lakehand.formats.delta.files.casts import can_cast, cast_values
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructType,
    field_id,
    is_void,
    physical_name,
)
from lakehand.parquet.columns import is_any_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField
    from lakehand.parquet.columns import FileColumn

__all__ = ["RowProjection", "find_column", "named", "project_rows"]

_VARIANT_PARTS = ("metadata", "value")


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
        """Return one array a column."""
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
    if mode is MappingMode.ID:
        identifier = field_id(column)
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
    if named("typed_value", found.parts) is not None:
        message = f"the file holds the variant {place!r} shredded, which lakehand cannot read"
        raise RefusedError(message, operation="read", feature="variantShredding")
    parts = [named(name, found.parts) for name in _VARIANT_PARTS]
    if any(part is None for part in parts):
        raise SchemaMismatchError(f"the file holds {place!r} without both parts of a variant")
    members = tuple(
        (part.name, _Value(type=pa.binary(), leaves=part.leaves)) for part in parts if part
    )
    return _Struct(type=type_, members=members, leaves=found.leaves)


def _joined(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(leaf for group in groups for leaf in group)
