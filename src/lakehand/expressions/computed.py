"""Expressions in Spark's SQL over rows of a table, computed as Spark computes them, or refused.

What a table asks of its rows (constraints, generated columns, defaults) and what users ask of it
(predicates) go this way alike: a row that is deleted here is one that Spark would have deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import UnknownColumnError
from lakehand.expressions.names import (
    Resolver,
    SparkDialect,
    is_name,
    parse_expression,
    reference_name,
)
from lakehand.expressions.operators import OPERATORS
from lakehand.expressions.session import compute
from lakehand.expressions.spark_functions import FUNCTIONS, NAMED
from lakehand.expressions.typed import DATE, TIMESTAMP, Typed, Unsupported, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

__all__ = ["Calculator", "column_at"]

_COMPILERS = {**OPERATORS, **FUNCTIONS}


class Calculator:
    """Expressions over the columns of one schema, each compiled once and computed for many rows."""

    def __init__(self, schema: pa.Schema, *, now: datetime | None = None) -> None:
        """Without `now` an expression must not ask for the time."""
        self._resolver = Resolver(schema)
        self._now = now

    @property
    def references(self) -> tuple[tuple[str, ...], ...]:
        """Paths of all columns that expressions read so far."""
        return tuple(self._resolver.paths)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Type of each reference."""
        return tuple(self._resolver.paths.values())

    def compile(self, text: str) -> Typed:
        """Return how `text` is computed; Unsupported, which names the part, if it is not."""
        try:
            return self.compile_tree(parse_expression(text))
        except SqlglotError as error:
            reason = str(error).partition("\n")[0]
            raise Unsupported(f"it cannot be parsed: {reason}") from error
        except UnknownColumnError as error:
            raise Unsupported(error.message) from error

    def compile_tree(self, node: exp.Expr) -> Typed:
        """Do the same for what is parsed already; UnknownColumnError may come of it."""
        if is_name(node):
            return self._column(node)
        if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate):
            return self._time(node)
        if isinstance(node, exp.Anonymous):
            return self._named(node)
        if type(node) not in _COMPILERS:
            raise Unsupported(_named_part(node))
        compiler, arguments = _COMPILERS[type(node)]
        given = {name for name, value in node.args.items() if value not in (None, False, [])}
        if given - arguments - {"this"}:
            raise Unsupported(_named_part(node))
        return compiler(node, self.compile_tree)

    def _column(self, node: exp.Column | exp.Dot) -> Typed:
        name = self._resolver.resolve(node).name
        index = int(name.removeprefix("v"))
        return Typed(name, self.types[index])

    def _named(self, node: exp.Anonymous) -> Typed:
        name = node.name.lower()
        if name == "now" and not node.expressions:
            return self._time(exp.CurrentTimestamp())
        if name not in NAMED or len(node.expressions) != 1:
            raise Unsupported(f"the function {name}")
        return NAMED[name](self.compile_tree(node.expressions[0]))

    def _time(self, node: exp.Expr) -> Typed:
        if self._now is None or node.args.get("this"):
            raise Unsupported("the current time")
        if isinstance(node, exp.CurrentDate):
            return Typed(f"CAST({quoted(self._now.date().isoformat())} AS DATE)", DATE)
        return Typed(f"CAST({quoted(self._now.isoformat())} AS TIMESTAMPTZ)", TIMESTAMP)

    def compute(self, expressions: Iterable[str], batch: pa.RecordBatch) -> list[pa.Array]:
        """Return one array for each compiled expression; PredicateError if one fails on a row."""
        values = {
            reference_name(index): column_at(batch, path)
            for index, path in enumerate(self._resolver.paths)
        }
        table = pa.table(values or {"row": pa.nulls(batch.num_rows)})
        answer = compute(", ".join(expressions), table)
        return [column.combine_chunks() for column in answer.columns]


def _named_part(node: exp.Expr) -> str:
    part = repr(node.sql(SparkDialect))
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
        return f"the function {node.sql_name().lower()} in {part}"
    return part


def column_at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return the values at a path; what is inside a null struct is null."""
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
