"""Applies table rules to batches: defaults, generated columns, constraints.

Everything is compiled before the first row, so that a table with rules that cannot be evaluated
like Spark does is rejected, with the name of the rule, before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import ConstraintError, PredicateError, RefusedError
from lakehand.expressions.computed import Calculator, column_at
from lakehand.expressions.operators import as_boolean
from lakehand.expressions.spark_types import Typed, Unsupported, cast
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakehand.model.table_head import RowRules

#: Maximum number of violating rows in a message, and of characters of each value.
_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 80


class RowChecker:
    """The rules of one table. Not thread-safe.

    `complete` fills columns that rows lack; `check` raises if a row violates a rule. Both take
    batches with exactly the columns of the table.
    """

    def __init__(
        self, rules: RowRules, schema: pa.Schema, *, table: str, clock: Clock | None = None
    ) -> None:
        """Compile `rules`; RefusedError, with the name of the rule, if one cannot be evaluated."""
        self._table = table
        self._schema = schema
        self._clock = clock or SystemClock()
        self._calculator = Calculator(schema)
        self._defaults = dict(rules.defaults)
        self._generated = {
            name: self._compile(f"generated column {name}", text, self._as_column(name))
            for name, text in rules.generated.items()
        }
        self._expressions = {**rules.constraints, **rules.generated}
        self._conditions = {
            name: f"{self._compile(f'constraint {name}', text, as_boolean).sql} IS TRUE"
            for name, text in rules.constraints.items()
        }
        self._check_defaults()

    @property
    def filled(self) -> frozenset[str]:
        """Columns that rows may lack, because the table fills them."""
        return frozenset(self._defaults) | frozenset(self._generated)

    @property
    def depended_on(self) -> frozenset[str]:
        """Columns used by rules: with another type the rules might have another meaning."""
        read = (path[0] for path in self._calculator.references)
        return frozenset(read) | frozenset(self._generated)

    def complete(self, batch: pa.RecordBatch, missing: Collection[str]) -> pa.RecordBatch:
        """Fill those of the columns `missing` that have a default or are generated."""
        for name in missing:
            if name in self._defaults and name not in self._generated:
                batch = _with_column(batch, name, self._default(name, batch.num_rows))
        for name in missing:
            if name in self._generated:
                batch = _with_column(batch, name, self._compute(name, batch))
        return batch

    def check(self, batch: pa.RecordBatch, *, computed: Collection[str] = ()) -> None:
        """Raise ConstraintError if a row violates a rule; `computed` columns are not checked."""
        if not batch.num_rows:
            return
        for name in self._generated:
            if name not in computed:
                self._require(name, _equal(batch.column(name), self._compute(name, batch)), batch)
        if self._conditions:
            for name, truth in zip(self._conditions, self._truths(batch), strict=True):
                self._require(name, truth, batch)

    def _truths(self, batch: pa.RecordBatch) -> list[pa.Array]:
        try:
            return self._calculator.compute(self._conditions.values(), batch)
        except PredicateError:
            # Evaluate the rules one by one, to find the one that failed.
            return [
                self._computed(name, condition, batch)
                for name, condition in self._conditions.items()
            ]

    def _compute(self, name: str, batch: pa.RecordBatch) -> pa.Array:
        values = self._computed(name, self._generated[name].sql, batch)
        return values.cast(self._schema.field(name).type)

    def _computed(self, name: str, sql: str, batch: pa.RecordBatch) -> pa.Array:
        try:
            return self._calculator.compute([sql], batch)[0]
        except PredicateError as error:
            raise ConstraintError(
                f"the rule {name!r} of {self._table} cannot be evaluated for these rows:"
                f" {error.message}",
                table=self._table,
                constraint=name,
                condition=self._expressions[name],
                difference=(f"rule {name!r} cannot be evaluated",),
                hint="nothing of this batch was accepted",
            ) from error

    def _require(self, name: str, truth: pa.Array, batch: pa.RecordBatch) -> None:
        broken = pc.invert(truth)
        count = pc.sum(broken).as_py() or 0
        if not count:
            return
        text = self._expressions[name]
        rows = self._shown(name, batch.filter(broken).slice(0, _SHOWN_ROWS))
        shown = "; ".join(
            ", ".join(f"{column} = {value}" for column, value in row.items()) for row in rows
        )
        kind = f"generated column {name!r}" if name in self._generated else f"constraint {name!r}"
        raise ConstraintError(
            f"{count:,} of {batch.num_rows:,} rows violate the {kind} of {self._table}, ({text}):"
            f" {shown}{'; …' if count > len(rows) else ''}",
            table=self._table,
            constraint=name,
            condition=text,
            rows=rows,
            difference=(f"rows violate the {kind}",),
            hint="nothing of this batch was accepted",
        )

    def _shown(self, name: str, batch: pa.RecordBatch) -> list[dict[str, str]]:
        """Return the values that a rule reads of some rows, as strings of limited length."""
        calculator = Calculator(self._schema)
        calculator.compile(self._expressions[name])
        paths = [*calculator.references, *([(name,)] if name in self._generated else [])]
        columns = {".".join(path): column_at(batch, path).to_pylist() for path in paths}
        return [
            {column: repr(values[row])[:_SHOWN_CHARACTERS] for column, values in columns.items()}
            for row in range(batch.num_rows)
        ]

    def _as_column(self, name: str) -> Callable[[Typed], Typed]:
        return lambda value: cast(value, self._schema.field(name).type)

    def _compile(self, what: str, text: str, convert: Callable[[Typed], Typed]) -> Typed:
        try:
            return convert(self._calculator.compile(text))
        except Unsupported as error:
            raise self._refusal(what, text, str(error)) from error

    def _check_defaults(self) -> None:
        for name in self._defaults:
            self._default(name, 1)

    def _default(self, name: str, rows: int) -> pa.Array:
        text, type_ = self._defaults[name], self._schema.field(name).type
        calculator = Calculator(pa.schema([]), now=self._clock.now())
        try:
            value = calculator.compile(text)
            one = calculator.compute([value.sql], pa.record_batch({"row": [0]}))[0]
            _require_storable(value, type_)
            return pa.repeat(one[0].cast(type_), rows)
        except (Unsupported, PredicateError, pa.ArrowException) as error:
            raise self._refusal(f"default of column {name}", text, str(error)) from error

    def _refusal(self, what: str, text: str, reason: str) -> RefusedError:
        first = reason.partition("\n")[0]
        return RefusedError(
            f"no rows can be added to {self._table}: its {what}, ({text}), is not supported:"
            f" {first}",
            table=self._table,
            operation="append",
            feature=what,
            hint="nothing was written; write with Spark, or simplify the rule",
        )


def _require_storable(value: Typed, type_: pa.DataType) -> None:
    """Reject a literal whose type differs from the column's; Arrow's cast checks its range."""
    if not _is_storable(value, type_):
        raise Unsupported(f"{value.type} as {type_}")


def _is_storable(value: Typed, type_: pa.DataType) -> bool:
    if value.type == type_ or pat.is_null(value.type):
        return True
    numbers = pat.is_signed_integer, pat.is_decimal, pat.is_floating
    if any(is_kind(value.type) for is_kind in numbers[:2]):
        return any(is_kind(type_) for is_kind in numbers)
    if pat.is_floating(value.type):
        return bool(pat.is_floating(type_))
    return bool(pat.is_date(value.type) and pat.is_timestamp(type_))


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return where values are equal, with null equal to null and NaN to NaN."""
    same = pc.fill_null(pc.equal(left, right), False)  # noqa: FBT003  Arrow's own
    same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pat.is_floating(left.type):
        nans = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(same, pc.fill_null(nans, False))  # noqa: FBT003
    return same


def _with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    return batch.set_column(index, batch.schema.field(index), values)
