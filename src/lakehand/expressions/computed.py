"""Evaluates Spark SQL expressions on rows with Spark's semantics, or rejects them.

Table rules (constraints, generated columns, defaults) and user predicates share this code: a row
that is deleted here is one that Spark would delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.literals import quote_string
from lakehand.expressions.logic import Junction, Logic, Negation, Parsed, parse_logic
from lakehand.expressions.name_resolution import Resolver, SparkDialect, is_name, reference_name
from lakehand.expressions.operators import OPERATORS, as_boolean
from lakehand.expressions.spark_functions import FUNCTIONS, NAMED
from lakehand.expressions.spark_types import BOOLEAN, DATE, TIMESTAMP, Typed, Unsupported
from lakehand.expressions.value_lists import compile_list, listed_values, with_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lakehand.expressions.value_lists import ValueList, Written

_COMPILERS = {**OPERATORS, **FUNCTIONS}


class Calculator:
    """Expressions over the columns of one schema, compiled once and evaluated for many rows."""

    def __init__(self, names: pa.Schema | Resolver, *, now: datetime | None = None) -> None:
        """`names` are the columns. Without `now`, expressions must not use the current time."""
        self._resolver = names if isinstance(names, Resolver) else Resolver(names)
        self._now = now
        #: Value lists of the expression being compiled, and of all compiled ones.
        self._written: Sequence[Written] = ()
        self._lists: list[ValueList] = []

    @property
    def references(self) -> tuple[tuple[str, ...], ...]:
        """Paths of all columns that the expressions read so far."""
        return tuple(self._resolver.paths)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Type of each reference."""
        return tuple(self._resolver.paths.values())

    @property
    def lists(self) -> tuple[ValueList, ...]:
        """Long value lists of the expressions so far: columns of the evaluation."""
        return tuple(self._lists)

    def compile(self, text: str) -> Typed:
        """Compile `text`; Unsupported, with the unsupported part, if it cannot be evaluated."""
        try:
            return self.compile_logic(parse_logic(text))[0]
        except SqlglotError as error:
            reason = str(error).partition("\n")[0]
            raise Unsupported(f"it cannot be parsed: {reason}") from error
        except (UnknownColumnError, PredicateError) as error:
            raise Unsupported(error.message) from error

    def compile_logic(self, parsed: Parsed) -> tuple[Typed, Logic]:
        """Compile a parsed condition; also return it with SQL as its leaves.

        May raise UnknownColumnError.
        """
        self._written = parsed.lists
        try:
            return self._connected(parsed.logic)
        except RecursionError:
            raise Unsupported("an expression that nests too deeply") from None

    def _connected(self, logic: Logic) -> tuple[Typed, Logic]:
        if isinstance(logic, Negation):
            value, inner = self._connected(logic.part)
            return Typed(f"(NOT {as_boolean(value).sql})", BOOLEAN), Negation(inner)
        if isinstance(logic, Junction):
            parts = [self._connected(part) for part in logic.parts]
            joined = f" {logic.word} ".join([as_boolean(value).sql for value, _ in parts])
            inner = Junction(logic.word, tuple([part for _, part in parts]))
            return Typed(f"({joined})", BOOLEAN), inner
        if isinstance(logic, str):
            raise TypeError("this condition is compiled already")
        value = self.compile_tree(logic)
        return value, value.sql

    def compile_tree(self, node: exp.Expr) -> Typed:
        """Compile one expression tree."""
        if is_name(node):
            return self._column(node)
        if isinstance(node, exp.In) and listed_values(node) is not None:
            return self._listed(node)
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

    def _listed(self, node: exp.Expr) -> Typed:
        number = listed_values(node)
        operand = self.compile_tree(node.this)
        if number is None or number >= len(self._written) or pa.types.is_nested(operand.type):
            raise Unsupported("an IN test for a list")
        found = compile_list(f"list{len(self._lists)}", operand, self._written[number])
        self._lists.append(found)
        return Typed(found.name, BOOLEAN)

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
            return Typed(f"CAST({quote_string(self._now.date().isoformat())} AS DATE)", DATE)
        return Typed(f"CAST({quote_string(self._now.isoformat())} AS TIMESTAMPTZ)", TIMESTAMP)

    def compute(self, expressions: Iterable[str], batch: pa.RecordBatch) -> list[pa.Array]:
        """Return one array for each compiled expression; PredicateError if one fails on a row."""
        values = {
            reference_name(index): column_at(batch, path)
            for index, path in enumerate(self._resolver.paths)
        }
        table = with_lists(pa.table(values or {"row": pa.nulls(batch.num_rows)}), self._lists)
        answer = compute(", ".join(expressions), table)
        return [column.combine_chunks() for column in answer.columns]


def _named_part(node: exp.Expr) -> str:
    part = repr(node.sql(SparkDialect))
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
        return f"the function {node.sql_name().lower()} in {part}"
    return part


def column_at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return the values at a path; fields of a null struct are null."""
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
