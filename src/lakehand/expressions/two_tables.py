"""Expressions over the rows of a target table and a source, as those of a merge.

Each of the two has a name, by which its columns are qualified: `t.id = s.id`. A column that only
one of them has needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.expressions.computed import Calculator
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.engine_types import require_engine_types, spark_type
from lakehand.expressions.evaluate import evaluable
from lakehand.expressions.logic import Junction, Logic, map_leaves, parse_logic
from lakehand.expressions.name_resolution import (
    Resolver,
    SparkDialect,
    is_name,
    reference_name,
)
from lakehand.expressions.operators import as_boolean
from lakehand.expressions.spark_types import Typed, Unsupported, cast, coerce, has_sql_type
from lakehand.expressions.value_lists import with_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime


class TwoTables(Resolver):
    """Finds columns by the name of their table, or without it where only one table has them."""

    def __init__(self, tables: Mapping[str, pa.Schema]) -> None:
        """`tables` are schemas by the names of the tables."""
        super().__init__(
            pa.schema([(name, spark_type(pa.struct(list(s)))) for name, s in tables.items()])
        )

    def _find(self, parts: list[str]) -> tuple[tuple[str, ...], pa.DataType]:
        first, *rest = parts
        if rest and self._member(first, (), self._root) is not None:
            return super()._find(parts)
        owners = [t.name for t in self.schema if self._member(first, (t.name,), t.type)]
        if not owners:
            known = [
                f"{table.name}.{column.name}" for table in self.schema for column in table.type
            ]
            raise UnknownColumnError(".".join(parts), known)
        if len(owners) > 1:
            message = f"column {first!r} is in both tables"
            qualified = " or ".join(f"{owner}.{first}" for owner in owners)
            raise PredicateError(message, field=first, hint=f"write {qualified}")
        return super()._find([owners[0], *parts])


@dataclass(frozen=True, kw_only=True, slots=True)
class Equality:
    """A part of a join condition: a column of one table equals an expression over the other."""

    column: str
    #: The expression, in the type of the column.
    value: Typed
    #: Nulls equal each other.
    is_null_safe: bool


class TwoTableCalculator(Calculator):
    """Expressions over two tables, compiled once and evaluated for many pairs of rows."""

    def __init__(self, tables: Mapping[str, pa.Schema], *, now: datetime) -> None:
        super().__init__(TwoTables(tables), now=now)
        #: How many references have a type that is known to be supported.
        self._checked = 0

    def condition(self, text: str, *, what: str) -> str:
        """Return a condition as SQL over the references; `what` names it in errors."""
        return self._typed(text, None, what=what, is_condition=True).sql

    def value(self, text: str, type_: pa.DataType, *, what: str) -> Typed:
        """Return an expression whose values are assigned to a column of a type."""
        return self._typed(text, type_, what=what)

    def _typed(
        self, text: str, type_: pa.DataType | None, *, what: str, is_condition: bool = False
    ) -> Typed:
        try:
            found, _ = self.compile_logic(parse_logic(text))
            if is_condition:
                found = as_boolean(found)
            elif type_ is not None:
                found = cast(found, type_)
            self._require_engine_types()
        except SqlglotError as error:
            reason = str(error).partition("\n")[0]
            raise PredicateError(
                f"cannot parse {what}, {text!r}: {reason}", hint="use Spark SQL", value=text
            ) from error
        except Unsupported as error:
            raise PredicateError(
                f"{what}, {text!r}, is not supported: {error}",
                value=text,
                hint="use values of the same type, or CAST; expressions whose result may differ"
                " from Spark's are not supported",
            ) from error
        return found

    def _require_engine_types(self) -> None:
        require_engine_types(self.references[self._checked :], self.types[self._checked :])
        self._checked = len(self.references)

    def plain_column(self, text: str) -> tuple[str, ...] | None:
        """Return the path of the column that `text` is nothing but the name of, or None."""
        try:
            tree = parse_logic(text).logic
        except SqlglotError:
            return None
        if not isinstance(tree, exp.Expr) or not is_name(tree):
            return None
        return self.path_of(tree)

    def path_of(self, node: exp.Expr) -> tuple[str, ...]:
        """Return the path of a column, which begins with the name of its table."""
        name = self._resolver.resolve(node).name
        return self.references[int(name.removeprefix("v"))]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the references in SQL."""
        return tuple(map(reference_name, range(len(self.references))))

    def columns_of(self, table: str) -> tuple[str, ...]:
        """Return the top-level columns of one table that the expressions read."""
        return tuple(dict.fromkeys(path[1] for path in self.references if path[0] == table))

    def values_of(self, table: str, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return what the expressions read of the rows of one table, by reference."""
        return {
            reference_name(index): _evaluated(rows, path[1:], kind)
            for index, (path, kind) in enumerate(self._resolver.paths.items())
            if path[0] == table
        }

    def compute_values(
        self, expressions: Iterable[str], values: Mapping[str, pa.Array], *, rows: int
    ) -> list[pa.Array]:
        """Return one array per expression; PredicateError if one fails on a row."""
        table = pa.table(dict(values) or {"row": pa.nulls(rows)})
        answer = compute(", ".join(expressions), with_lists(table, self.lists))
        return [column.combine_chunks() for column in answer.columns]

    def equalities(self, text: str, *, target: str) -> Iterator[Equality]:
        """Yield the parts of a join condition by which a column of `target` equals a value.

        The value is of the other table, and of the type of the column.
        """
        for leaf in _conjuncts(parse_logic(text).logic):
            if not isinstance(leaf, exp.EQ | exp.NullSafeEQ):
                continue
            sides = (leaf.this, leaf.expression), (leaf.expression, leaf.this)
            for one, other in sides:
                found = self._equality(one, other, target=target)
                if found is not None:
                    is_null_safe = isinstance(leaf, exp.NullSafeEQ)
                    yield Equality(column=found[0], value=found[1], is_null_safe=is_null_safe)

    def _equality(
        self, column: exp.Expr, value: exp.Expr, *, target: str
    ) -> tuple[str, Typed] | None:
        if not is_name(column) or any(
            self.path_of(name)[0] == target for name in value.find_all(exp.Column)
        ):
            return None
        path = self.path_of(column)
        if path[0] != target or len(path) != len((target, "column")):
            return None
        own = self.compile_tree(column)
        if not has_sql_type(own.type):
            return None
        same, converted = coerce(own, self.compile_tree(value))
        return (path[1], converted) if same == own else None


def _evaluated(rows: pa.RecordBatch, path: tuple[str, ...], kind: pa.DataType) -> pa.Array:
    values = evaluable(rows, path)
    if values.type == kind or pa.types.is_nested(kind):
        return values
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        name, reason = ".".join(path), str(error).partition("\n")[0]
        message = f"column {name!r} of type {values.type} cannot be evaluated: {reason}"
        raise PredicateError(message, field=name) from error


def _conjuncts(logic: Logic) -> Iterator[exp.Expr]:
    if isinstance(logic, Junction) and logic.word == "AND":
        for part in logic.parts:
            yield from _conjuncts(part)
    elif isinstance(logic, exp.Expr):
        yield logic.unnest()


def conjuncts_of(text: str, table: str, calculator: TwoTableCalculator) -> Iterator[str]:
    """Yield the parts of a condition that read one table alone, without the table's name."""
    for leaf in _conjuncts(parse_logic(text).logic):
        names = [node for node in leaf.find_all(exp.Column, exp.Dot) if is_name(node)]
        if names and all(calculator.path_of(name)[0] == table for name in names):
            yield _unqualified(leaf, calculator).sql(SparkDialect)


def unqualified(text: str, calculator: TwoTableCalculator) -> str:
    """Return a condition over one table without the name of the table."""
    parsed = parse_logic(text)
    logic = map_leaves(parsed.logic, lambda leaf: _unqualified(leaf, calculator))
    return type(parsed)(logic, parsed.lists).text


def _unqualified(tree: exp.Expr, calculator: TwoTableCalculator) -> exp.Expr:
    def rename(node: exp.Expr) -> exp.Expr:
        if not is_name(node):
            return node
        _, first, *rest = calculator.path_of(node)
        found: exp.Expr = exp.column(exp.to_identifier(first, quoted=True))
        for part in rest:
            found = exp.Dot(this=found, expression=exp.to_identifier(part, quoted=True))
        return found

    return tree.copy().transform(rename)
