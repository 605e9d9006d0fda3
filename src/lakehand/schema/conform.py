"""Rows fitted to a table: its columns in its order and types, or a clear refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import ConstraintError, SchemaMismatchError
from lakehand.expressions.constraints import RowChecker
from lakehand.model.table_head import RowRules, TableHead
from lakehand.schema.column_types import (
    forbidden_null,
    holds_maps,
    is_text,
    may_forbid_nulls,
    repeated_key,
    without_empty_texts,
)
from lakehand.schema.evolution import SchemaDiff, diff_schemas

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable


_EVOLUTION_HINT = (
    "nothing of this batch was accepted; cast or rename its columns, or let the table take on new"
    " columns (schema_evolution) and wider types (type_widening)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitting:
    """How batches of one schema become batches of the table's."""

    #: Position of each column of the table in the batch; None: it is missing.
    positions: tuple[int | None, ...]
    #: Columns that are missing.
    missing: tuple[str, ...]
    #: Whether a batch is as the table wants it already.
    is_identity: bool


class Conformer:
    """Makes batches fit one table. What it computes for a schema is cached.

    All rows that are written into a table pass through here: `conform` for rows as users bring
    them, `check` for rows that have the table's columns and types already, as those of an upsert
    that were merged from old rows and new ones. Both raise before anything is written.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        table: str,
        rules: RowRules | None = None,
        partition_columns: Collection[str] = (),
    ) -> None:
        """RefusedError, which names the rule, if one of `rules` cannot be computed.

        `partition_columns` never get another type, nor do those that rules are about.
        """
        self.schema = schema
        #: The same columns, all of which may be null: what is forbidden is looked at by itself.
        self._target = pa.schema([_optional(column) for column in schema])
        self._table = table
        self._checker = RowChecker(rules or RowRules(), schema, table=table)
        self._fixed = self._checker.depended_on | frozenset(partition_columns)
        divided_by = {name.lower() for name in partition_columns}
        self._partition_texts = [
            index
            for index, column in enumerate(schema)
            if column.name.lower() in divided_by and is_text(column)
        ]
        self._diffs: dict[Hashable, SchemaDiff] = {}
        self._fittings: dict[Hashable, _Fitting] = {}
        self._latest: tuple[pa.Schema, _Fitting] | None = None
        self._maps = [index for index, column in enumerate(schema) if holds_maps(column.type)]
        self._guarded = [index for index, column in enumerate(schema) if may_forbid_nulls(column)]

    @classmethod
    def of(cls, head: TableHead) -> Self:
        """Return what makes rows fit a table, and holds them against all that it asks of rows."""
        return cls(
            head.schema,
            table=head.table,
            rules=head.row_rules,
            partition_columns=head.partition_columns,
        )

    @classmethod
    def of_keys(cls, schema: pa.Schema, head: TableHead) -> Self:
        """Return what makes keys of rows fit a table, where nothing else of the rows is known."""
        return cls(schema, table=head.table, partition_columns=head.partition_columns)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `batch` under the table's columns and types.

        SchemaMismatchError, which says all that differs, if they do not fit; ConstraintError, which
        names the rule and shows some rows, if they break one.
        """
        fitting = self._fitting(batch.schema)
        self._check_values(batch)
        fitted = batch if fitting.is_identity else self._fit(batch, fitting)
        self._check_maps(fitted)
        completed = self._checker.complete(self._settle(fitted), fitting.missing)
        settled = self._settle(completed)
        # What was computed is what the table says, unless it could not stay as it was.
        self.check(settled, computed=fitting.missing if settled is completed else ())
        return settled

    def check(self, batch: pa.RecordBatch, *, computed: Collection[str] = ()) -> None:
        """Raise ConstraintError if rows with the table's columns break one of its rules.

        Nulls at any depth, constraints, and generated columns but those just `computed`.
        """
        for index in self._guarded:
            path = forbidden_null(batch.column(index), self.schema.field(index))
            if path is not None:
                raise self._null(path)
        self._checker.check(batch, computed=computed)

    def diff(self, schema: pa.Schema) -> SchemaDiff:
        """Return how rows of `schema` differ from the table."""
        key = _key_of(schema)
        if key not in self._diffs:
            self._diffs[key] = diff_schemas(
                schema, self.schema, filled=self._checker.filled, fixed=self._fixed
            )
        return self._diffs[key]

    def is_made(self, schema: pa.Schema) -> bool:
        """Say whether batches of `schema` are what `conform` returns."""
        return bool(schema.equals(self._target))

    def require(self, schema: pa.Schema) -> None:
        """Raise SchemaMismatchError if no batch of `schema` could fit."""
        self._fitting(schema)

    def _check_values(self, batch: pa.RecordBatch) -> None:
        """Refuse invalid Arrow data, such as strings that are not UTF-8."""
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._mismatch([str(error).partition("\n")[0]]) from error

    def _check_maps(self, batch: pa.RecordBatch) -> None:
        for index in self._maps:
            path = repeated_key(batch.column(index), self.schema.field(index))
            if path is not None:
                raise self._mismatch([f"column {path!r} holds a map that has a key twice"])

    def _fitting(self, schema: pa.Schema) -> _Fitting:
        # Batches of one schema follow each other, and comparing it is cheaper than its hash.
        if self._latest is not None:
            latest, fitting = self._latest
            if schema.equals(latest, check_metadata=True):
                return fitting
        key = _key_of(schema)
        if key not in self._fittings:
            self._fittings[key] = self._compare(schema)
        self._latest = schema, self._fittings[key]
        return self._fittings[key]

    def _compare(self, schema: pa.Schema) -> _Fitting:
        diff = self.diff(schema)
        if diff.columns:
            raise SchemaMismatchError(
                f"these rows do not fit {self._table}:\n{diff.render()}",
                table=self._table,
                difference=tuple(str(column) for column in diff.columns),
                kind=str(diff.kind),
                hint=_EVOLUTION_HINT,
            )
        found = {name.lower(): index for index, name in enumerate(schema.names)}
        positions = tuple(found.get(name.lower()) for name in self.schema.names)
        named = zip(self.schema.names, positions, strict=True)
        return _Fitting(
            positions=positions,
            missing=tuple(name for name, position in named if position is None),
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

    def _settle(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as a partitioned table keeps them; the same batch if nothing differs."""
        for index in self._partition_texts:
            values = batch.column(index)
            self._require_text(values, self._target.field(index))
            kept = without_empty_texts(values)
            if kept is not values:
                batch = batch.set_column(index, self._target.field(index), kept)
        return batch

    def _require_text(self, values: pa.Array, column: pa.Field) -> None:
        """Refuse bytes that are not UTF-8: logs keep partition values as strings."""
        if pat.is_binary(values.type):
            try:
                values.cast(pa.string())
            except pa.ArrowInvalid as error:
                message = f"column {column.name!r} divides the table, and holds bytes that no UTF-8"
                raise self._mismatch([f"{message} can be read from"]) from error

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
            hint="nothing of this batch was accepted; cast or rename its columns",
        )

    def _null(self, path: str) -> ConstraintError:
        difference = f"column {path!r} holds a null, which the table forbids"
        return ConstraintError(
            f"these rows do not fit {self._table}: {difference}",
            table=self._table,
            constraint=f"NOT NULL of {path}",
            condition=f"{path} IS NOT NULL",
            difference=(difference,),
            hint="nothing of this batch was accepted",
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


def _key_of(schema: pa.Schema) -> Hashable:
    """Return what a schema is looked up by; some types that others define have no hash."""
    key: Hashable = schema
    try:
        hash(key)
    except TypeError:
        return str(schema)
    return key
