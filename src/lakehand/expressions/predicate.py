"""Predicates over the rows of a table, written in SQL as Spark reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.expressions.functions import FUNCTIONS, NULL_TESTS
from lakehand.expressions.session import compute
from lakehand.observe.clock import SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.observe.clock import Clock

__all__ = ["Predicate", "Resolver", "is_name", "parse_predicate", "reference_name"]

_REFUSED = (
    exp.Query,
    exp.AggFunc,
    exp.Window,
    exp.Lambda,
    exp.Placeholder,
    exp.Parameter,
    exp.Star,
    exp.Command,
    exp.Block,
)

_QUOTES_HINT = "text stands in single quotes, as in region = 'eu'"


class PredicateDialect(Spark):
    """Spark's SQL, with '' inside a string as one quote, as in Spark 4 and in the standard."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012  the base class asks for a list


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """A condition that keeps the rows for which it is true; neither false nor null keeps a row."""

    #: The condition as text, with the time of parsing in place of functions that ask for it. Means
    #: the same whenever and wherever it is parsed again.
    text: str
    #: The condition over the columns v0, v1, … which stand for `references` in this order.
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
    _check_parts(tree, text=text)
    resolver = Resolver(schema)
    condition = tree.transform(resolver.resolve).transform(_spell)
    predicate = Predicate(
        text=tree.sql(PredicateDialect),
        condition=condition,
        references=tuple(resolver.paths),
        types=tuple(resolver.paths.values()),
    )
    _check_meaning(predicate, text=text)
    return predicate


def reference_name(index: int) -> str:
    """Return the column of the computation that stands for a reference."""
    return f"v{index}"


def _parse(text: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, dialect=PredicateDialect)
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


def _check_parts(tree: exp.Expr, *, text: str) -> None:
    for node in tree.walk():
        if isinstance(node, _REFUSED):
            part = node.sql(PredicateDialect)
            raise PredicateError(f"a predicate cannot hold {part!r}: {text!r}")
        if isinstance(node, exp.Func) and not _is_known(node):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            message = f"the function {name.lower()!r} cannot be used in a predicate"
            raise PredicateError(message, hint="compare columns with values")


def _is_known(function: exp.Func) -> bool:
    if isinstance(function, exp.Anonymous):
        return function.name.lower() in NULL_TESTS and len(function.expressions) == 1
    return isinstance(function, FUNCTIONS)


class Resolver:
    """Replaces names by references and remembers what each stands for."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.paths: dict[tuple[str, ...], pa.DataType] = {}

    def resolve(self, node: exp.Expr) -> exp.Expr:
        if not is_name(node):
            return node
        path, type_ = self._find([part.name for part in node.parts])
        self.paths.setdefault(path, type_)
        return exp.column(reference_name(list(self.paths).index(path)))

    def _find(self, parts: list[str]) -> tuple[tuple[str, ...], pa.DataType]:
        path: tuple[str, ...] = ()
        type_ = pa.struct(list(self.schema))
        for part in parts:
            field = _field_named(part, type_)
            if field is None:
                names = self._names_beside(path, type_)
                raise UnknownColumnError(".".join(parts), names, hint=_QUOTES_HINT)
            path, type_ = (*path, field.name), field.type
        return path, type_

    def _names_beside(self, path: tuple[str, ...], type_: pa.DataType) -> list[str]:
        if not pa.types.is_struct(type_):
            return list(self.schema.names)
        return [".".join((*path, field.name)) for field in type_]


def is_name(node: exp.Expr) -> TypeGuard[exp.Column | exp.Dot]:
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        node = node.this
    return isinstance(node, exp.Column)


def _field_named(name: str, struct: pa.DataType) -> pa.Field | None:
    lower = name.lower()
    fields = struct if pa.types.is_struct(struct) else ()
    same = [field for field in fields if field.name.lower() == lower]
    exact = [field for field in same if field.name == name]
    return next(iter(exact or same), None)


def _spell(node: exp.Expr) -> exp.Expr:
    """Rewrite what the computing engine reads in another way than Spark."""
    if isinstance(node, exp.Anonymous):
        test = exp.Is(this=node.expressions[0], expression=exp.Null())
        return test if NULL_TESTS[node.name.lower()] else exp.Not(this=test)
    if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
        return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
    return node


def _check_meaning(predicate: Predicate, *, text: str) -> None:
    if not predicate.references and not isinstance(predicate.condition, exp.Boolean):
        hint = "write the names of columns bare or in backticks; quotes make them text"
        raise PredicateError(f"the predicate {text!r} names no column", hint=hint)
    nulls = {reference_name(index): pa.nulls(1, t) for index, t in enumerate(predicate.types)}
    try:
        result = compute(predicate.condition.sql("duckdb"), pa.table(nulls or {"v": pa.nulls(1)}))
    except PredicateError as error:
        raise PredicateError(f"{error.message}: {text!r}") from error
    if not pa.types.is_boolean(result.schema[0].type):
        raise PredicateError(f"the predicate {text!r} is neither true nor false")
