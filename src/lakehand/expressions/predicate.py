"""Predicates over the rows of a table, in Spark SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import PredicateError
from lakehand.expressions.computed import Calculator
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.engine_types import engine_schema, require_engine_types
from lakehand.expressions.logic import Logic, Parsed, map_leaves, parse_logic
from lakehand.expressions.name_resolution import reference_name
from lakehand.expressions.spark_types import BOOLEAN, Typed, Unsupported
from lakehand.expressions.value_lists import ValueList, with_lists
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from datetime import datetime


_ASKS_FOR_THE_TIME = re.compile(r"now|current_", re.IGNORECASE)
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """A condition that selects the rows for which it is true, and not those for false or null.

    It has Spark's semantics: where DuckDB differs, the difference is spelled out in SQL, or the
    predicate is rejected.
    """

    #: The condition as a string, with functions of the current time replaced by the time of
    #: parsing. Parsing it again always gives the same meaning.
    text: str
    #: The condition for DuckDB, over the columns v0, v1, … which represent `references`.
    sql: str
    #: The same as a tree of AND, OR and NOT.
    condition: Logic
    #: Paths of the columns that are read, as in the schema.
    references: tuple[tuple[str, ...], ...]
    #: Type of each reference.
    types: tuple[pa.DataType, ...]
    #: Long value lists; each is a column of the evaluation.
    lists: tuple[ValueList, ...] = ()

    @property
    def shown(self) -> str:
        """The condition as shown in errors."""
        return _shortened(self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns that are read, without duplicates."""
        return tuple(dict.fromkeys(path[0] for path in self.references))


def parse_predicate(text: str, schema: pa.Schema, *, clock: Clock | None = None) -> Predicate:
    """Parse `text` and check it against `schema`.

    Raises PredicateError, or UnknownColumnError with the available columns.
    """
    shown = _shortened(text)
    parsed = _parse(text, shown)
    if _ASKS_FOR_THE_TIME.search(text):
        parsed = _frozen(parsed, now=(clock or SystemClock()).now())
    if not isinstance(parsed.logic, exp.Boolean) and not any(map(_names_column, parsed.leaves)):
        hint = "write column names without quotes or in backticks; quotes make them strings"
        raise PredicateError(f"the predicate {shown!r} has no column", hint=hint)
    calculator = Calculator(engine_schema(schema))
    compiled, condition = _compile(calculator, parsed, text=shown)
    predicate = Predicate(
        text=parsed.text,
        sql=compiled.sql,
        condition=condition,
        references=calculator.references,
        types=calculator.types,
        lists=calculator.lists,
    )
    _check_meaning(predicate, text=shown)
    return predicate


def _shortened(text: str) -> str:
    """Return a condition as shown in an error, truncated if it is long.

    >>> _shortened("x" * 1000)[-12:], _shortened("id = 1")
    ('xxxxxxxxxx …', 'id = 1')
    """
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"


def _parse(text: str, shown: str) -> Parsed:
    try:
        return parse_logic(text)
    except SqlglotError as error:
        reason = _shortened(str(error).partition("\n")[0])
        raise PredicateError(
            f"cannot parse the predicate {shown!r}: {reason}",
            hint="use Spark SQL; quote column names with spaces or special characters by backticks:"
            " `unit price` > 5",
        ) from error


def _frozen(parsed: Parsed, *, now: datetime) -> Parsed:
    frozen = map_leaves(parsed.logic, lambda leaf: leaf.transform(_freeze, now=now))
    return replace(parsed, logic=frozen)


def _names_column(leaf: exp.Expr | str) -> bool:
    return isinstance(leaf, exp.Expr) and leaf.find(exp.Column) is not None


def _freeze(node: exp.Expr, *, now: datetime) -> exp.Expr:
    if isinstance(node, exp.CurrentDate):
        return exp.cast(exp.Literal.string(now.date().isoformat()), "date")
    if isinstance(node, exp.CurrentTimestamp) or _is_call_of("now", node):
        return exp.cast(exp.Literal.string(now.isoformat()), "timestamptz")
    return node


def _is_call_of(name: str, node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name and not node.expressions


def _compile(calculator: Calculator, parsed: Parsed, *, text: str) -> tuple[Typed, Logic]:
    try:
        compiled, condition = calculator.compile_logic(parsed)
    except Unsupported as error:
        require_engine_types(calculator.references, calculator.types)
        raise PredicateError(
            f"the predicate {text!r} is not supported: {error}",
            hint="compare columns with values of the same type; expressions whose result may differ"
            " from Spark's are not supported",
        ) from error
    if compiled.type != BOOLEAN:
        raise PredicateError(f"the predicate {text!r} is not boolean")
    return compiled, condition


def _check_meaning(predicate: Predicate, *, text: str) -> None:
    require_engine_types(predicate.references, predicate.types)
    nulls = {reference_name(index): pa.nulls(1, t) for index, t in enumerate(predicate.types)}
    try:
        values = with_lists(pa.table(nulls or {"v": pa.nulls(1)}), predicate.lists)
        compute(predicate.sql, values)
    except PredicateError as error:
        raise PredicateError(f"{error.message}: {text!r}") from error
