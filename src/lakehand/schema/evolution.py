"""How the schema of rows differs from a table's, and the schema that holds both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as pat

from lakehand.schema.column_types import is_list, is_lossless, widened_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class DiffKind(StrEnum):
    """What would have to happen before rows fit a table."""

    IDENTICAL = "identical"
    NEW_COLUMNS = "new columns"
    TYPE_WIDENING = "type widening"
    MIXED = "mixed"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnDiff:
    """One column in which rows and table differ."""

    #: Names from the outside in; `element`, `key` and `value` for what lists and maps hold.
    path: str
    change: Literal["new", "wider", "incompatible"]
    #: Type that the rows have; None: they lack the column.
    rows: pa.DataType | None = None
    #: Type that the table has; None: it lacks the column.
    table: pa.DataType | None = None
    #: What is wrong, where the types alone do not tell.
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is not None:
            return f"column {self.path!r} {self.problem}"
        if self.change == "new":
            return f"column {self.path!r} is not in the table: {self.rows}"
        return f"column {self.path!r} is {self.rows}, and the table has {self.table}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaDiff:
    """All columns in which rows and table differ."""

    columns: tuple[ColumnDiff, ...]
    #: The table's columns, with new ones at the end and wider types; as they are where
    #: incompatible.
    evolved: pa.Schema

    @property
    def kind(self) -> DiffKind:
        changes = {column.change for column in self.columns}
        if "incompatible" in changes:
            return DiffKind.INCOMPATIBLE
        if changes == {"new", "wider"}:
            return DiffKind.MIXED
        if changes:
            return DiffKind.NEW_COLUMNS if "new" in changes else DiffKind.TYPE_WIDENING
        return DiffKind.IDENTICAL

    def render(self) -> str:
        """Return the difference as a string, one line per column.

        >>> rows, table = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int32())])
        >>> print(diff_schemas(rows, table).render())
          ~ column 'a' is int64, and the table has int32
        """
        signs = {"new": "+", "wider": "~", "incompatible": "!"}
        return "\n".join(f"  {signs[column.change]} {column}" for column in self.columns)


def diff_schemas(
    rows: pa.Schema, table: pa.Schema, *, filled: Collection[str] = (), fixed: Collection[str] = ()
) -> SchemaDiff:
    """Compare the columns of rows with those of a table.

    Columns are found by name, without regard to case; members of structs by their exact names.
    `filled` columns may be missing even if they may not be null: the table itself fills them. The
    type of `fixed` columns cannot change.
    """
    comparison = _Comparison(frozenset(fixed))
    columns = comparison.compare_columns(rows, table, filled)
    return SchemaDiff(columns=tuple(comparison.found), evolved=pa.schema(columns))


class _Comparison:
    """Walks both schemas at once, notes differences, and returns what both become."""

    def __init__(self, fixed: frozenset[str]) -> None:
        self.found: list[ColumnDiff] = []
        self._fixed = fixed
        #: Whether the column that is looked at is one of those.
        self._is_fixed = False

    def compare_columns(
        self, rows: pa.Schema, table: pa.Schema, filled: Collection[str]
    ) -> list[pa.Field]:
        offered: dict[str, pa.Field] = {}
        for column in rows:
            if column.name.lower() in offered:
                self._note(column.name, "incompatible", problem="is duplicated")
            offered[column.name.lower()] = column
        known = {column.name.lower() for column in table}
        columns = []
        for column in table:
            found = offered.get(column.name.lower())
            if found is None and column.name not in filled:
                self._check_missing(column, column.name)
            self._is_fixed = column.name in self._fixed
            columns.append(self._merge(found, column, column.name))
        new = (column for name, column in offered.items() if name not in known)
        return [*columns, *self._new_columns(new, "")]

    def _check_missing(self, column: pa.Field, path: str) -> None:
        if not column.nullable:
            problem = "is missing, and may not be null"
            self._note(path, "incompatible", table=column.type, problem=problem)

    def _merge(self, found: pa.Field | None, column: pa.Field, path: str) -> pa.Field:
        if found is None:
            return column
        return column.with_type(self._merge_types(found.type, column.type, path))

    def _new_columns(self, columns: Iterable[pa.Field], prefix: str) -> list[pa.Field]:
        new = []
        for column in columns:
            path = f"{prefix}{column.name}"
            self._note_repeated(column.type, path)
            if _holds_nulls_only(column.type):
                problem = "is not in the table, and has no type: it is all null"
                self._note(path, "incompatible", rows=column.type, problem=problem)
            else:
                self._note(path, "new", rows=column.type)
                new.append(_optional(column))
        return new

    def _merge_types(self, rows: pa.DataType, table: pa.DataType, path: str) -> pa.DataType:
        if rows == table or pat.is_null(rows):
            return table
        if isinstance(rows, pa.DictionaryType):
            return self._merge_types(rows.value_type, table, path)
        if pat.is_struct(rows) and pat.is_struct(table):
            return self._merge_structs(rows, table, path)
        if is_list(rows) and pat.is_list(table):
            inner = self._merge_types(rows.value_type, table.value_type, f"{path}.element")
            return pa.list_(table.value_field.with_type(inner))
        if pat.is_map(rows) and pat.is_map(table):
            return self._merge_maps(rows, table, path)
        return self._merge_plain(rows, table, path)

    def _merge_structs(self, rows: pa.StructType, table: pa.StructType, path: str) -> pa.DataType:
        offered = {member.name: member for member in rows}
        self._note_repeated_members(rows, path)
        members = []
        for member in table:
            inner, found = f"{path}.{member.name}", offered.pop(member.name, None)
            if found is None:
                self._check_missing(member, inner)
            members.append(self._merge(found, member, inner))
        return pa.struct([*members, *self._new_columns(offered.values(), f"{path}.")])

    def _note_repeated(self, type_: pa.DataType, path: str) -> None:
        """Note duplicate members of structs, at any depth: one would be lost."""
        if isinstance(type_, pa.DictionaryType):
            self._note_repeated(type_.value_type, path)
        elif pat.is_struct(type_):
            self._note_repeated_members(type_, path)
            for member in type_:
                self._note_repeated(member.type, f"{path}.{member.name}")
        elif is_list(type_):
            self._note_repeated(type_.value_type, f"{path}.element")
        elif pat.is_map(type_):
            self._note_repeated(type_.key_type, f"{path}.key")
            self._note_repeated(type_.item_type, f"{path}.value")

    def _note_repeated_members(self, struct: pa.StructType, path: str) -> None:
        for name, count in Counter(member.name for member in struct).items():
            if count > 1:
                self._note(f"{path}.{name}", "incompatible", problem="is duplicated")

    def _merge_maps(self, rows: pa.MapType, table: pa.MapType, path: str) -> pa.DataType:
        key = self._merge_types(rows.key_type, table.key_type, f"{path}.key")
        item = self._merge_types(rows.item_type, table.item_type, f"{path}.value")
        return pa.map_(table.key_field.with_type(key), table.item_field.with_type(item))

    def _merge_plain(self, rows: pa.DataType, table: pa.DataType, path: str) -> pa.DataType:
        if is_lossless(rows, table):
            return table
        wider = widened_type(rows, table)
        if wider is None:
            self._note(path, "incompatible", rows=rows, table=table)
            return table
        if self._is_fixed:
            problem = f"is {rows}, and the table has {table}, on which others of its parts depend"
            self._note(path, "incompatible", rows=rows, table=table, problem=problem)
            return table
        self._note(path, "wider", rows=rows, table=table)
        return wider

    def _note(
        self,
        path: str,
        change: Literal["new", "wider", "incompatible"],
        *,
        rows: pa.DataType | None = None,
        table: pa.DataType | None = None,
        problem: str | None = None,
    ) -> None:
        self.found.append(
            ColumnDiff(path=path, change=change, rows=rows, table=table, problem=problem)
        )


def _holds_nulls_only(type_: pa.DataType) -> bool:
    """Say whether a type has a part whose type is unknown, because it is all null."""
    if isinstance(type_, pa.DictionaryType):
        return _holds_nulls_only(type_.value_type)
    if pat.is_struct(type_):
        return type_.num_fields == 0 or any(_holds_nulls_only(member.type) for member in type_)
    if is_list(type_):
        return _holds_nulls_only(type_.value_type)
    if pat.is_map(type_):
        return _holds_nulls_only(type_.key_type) or _holds_nulls_only(type_.item_type)
    return bool(pat.is_null(type_))


def _optional(column: pa.Field) -> pa.Field:
    """Return a new column, which older rows lack, and so may be null at any depth."""
    return pa.field(column.name, _optional_type(column.type))


def _optional_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.DictionaryType):
        return _optional_type(type_.value_type)
    if pat.is_struct(type_):
        return pa.struct([_optional(member) for member in type_])
    if is_list(type_):
        return pa.list_(pa.field("element", _optional_type(type_.value_type)))
    if pat.is_map(type_):
        return pa.map_(_optional_type(type_.key_type), _optional_type(type_.item_type))
    return type_
