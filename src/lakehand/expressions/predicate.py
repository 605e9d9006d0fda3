"""Predicates over the rows of a table, written in SQL as Spark reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import PredicateError
from lakehand.expressions.computed import Calculator
from lakehand.expressions.engine_types import engine_schema, require_engine_types
from lakehand.expressions.names import SparkDialect, parse_expression, reference_name
from lakehand.expressions.session import compute
from lakehand.expressions.typed import BOOLEAN, Typed, Unsupported
from lakehand.observe.clock import SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.observe.clock import Clock

__all__ = ["Predicate", "parse_predicate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """A condition that keeps the rows for which it is true; neither false nor null keeps a row.

    It is true for the rows for which Spark says so: what the engine that computes it sees in
    another way is spelled out for it, or refused.
    """

    #: The condition as text, with the time of parsing in place of functions that ask for it. Means
    #: the same whenever and wherever it is parsed again.
    text: str
    #: The condition for the engine, over the columns v0, v1, … which stand for `references`.
    sql: str
    #: The same as a tree, for whoever wants to know its parts.
    condition: exp.Expr
    #: Paths of the columns that are read, as spelled in the schema.
    references: tuple[tuple[str, ...], ...]
    #: Type of each reference.
    types: tuple[pa.DataType, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns that are read, each once."""
        return tuple(dict.fromkeys(path[0] for path in self.references))


def parse_predicate(text: str, schema: pa.Schema, *, clock: Clock | None = None) -> Predicate:
    """Parse `text` and check it against `schema`.

    Raises PredicateError, or UnknownColumnError which names the columns there are.
    """
    tree = _parse(text).transform(_freeze, now=(clock or SystemClock()).now())
    if tree.find(exp.Column) is None and not isinstance(tree, exp.Boolean):
        hint = "write the names of columns bare or in backticks; quotes make them text"
        raise PredicateError(f"the predicate {text!r} names no column", hint=hint)
    calculator = Calculator(engine_schema(schema))
    sql = _compile(calculator, tree, text=text).sql
    predicate = Predicate(
        text=tree.sql(SparkDialect),
        sql=sql,
        condition=sqlglot.parse_one(sql, dialect="duckdb"),
        references=calculator.references,
        types=calculator.types,
    )
    _check_meaning(predicate, text=text)
    return predicate


def _parse(text: str) -> exp.Expr:
    try:
        return parse_expression(text)
    except SqlglotError as error:
        reason = str(error).partition("\n")[0]
        raise PredicateError(
            f"cannot parse the predicate {text!r}: {reason}",
            hint="write SQL as Spark reads it; a column whose name has spaces or other signs stands"
            " in backticks: `unit price` > 5",
        ) from error


def _freeze(node: exp.Expr, *, now: datetime) -> exp.Expr:
    if isinstance(node, exp.CurrentDate):
        return exp.cast(exp.Literal.string(now.date().isoformat()), "date")
    if isinstance(node, exp.CurrentTimestamp) or _is_call_of("now", node):
        return exp.cast(exp.Literal.string(now.isoformat()), "timestamptz")
    return node


def _is_call_of(name: str, node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name and not node.expressions


def _compile(calculator: Calculator, tree: exp.Expr, *, text: str) -> Typed:
    try:
        compiled = calculator.compile_tree(tree)
    except Unsupported as error:
        require_engine_types(calculator.references, calculator.types)
        raise PredicateError(
            f"the predicate {text!r} cannot be used, because of {error}",
            hint="compare columns with values of their own types; what is computed might come out"
            " in another way than in Spark, and is refused",
        ) from error
    if compiled.type != BOOLEAN:
        raise PredicateError(f"the predicate {text!r} is neither true nor false")
    return compiled


def _check_meaning(predicate: Predicate, *, text: str) -> None:
    require_engine_types(predicate.references, predicate.types)
    nulls = {reference_name(index): pa.nulls(1, t) for index, t in enumerate(predicate.types)}
    try:
        compute(predicate.sql, pa.table(nulls or {"v": pa.nulls(1)}))
    except PredicateError as error:
        raise PredicateError(f"{error.message}: {text!r}") from error
