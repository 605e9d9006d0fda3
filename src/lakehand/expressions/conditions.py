"""Predicates as conditions on statistics: whether no row, or every row, of a file matches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from lakehand.errors import PredicateError
from lakehand.expressions.column_facts import VALUE, Column, Family, Knowledge, family_of
from lakehand.expressions.duckdb_session import compute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Prefix:
    """The fixed prefix of a LIKE pattern."""

    text: str
    #: Whether the pattern requires nothing but the prefix.
    is_whole: bool


def fixed_prefix(pattern: str, *, escape: str = "\\") -> Prefix:
    r"""Return the fixed prefix of `pattern`.

    >>> fixed_prefix(r"100\%-a%")
    Prefix(text='100%-a', is_whole=True)
    >>> fixed_prefix("a_c%")
    Prefix(text='a', is_whole=False)
    """
    text: list[str] = []
    characters = iter(enumerate(pattern))
    for position, character in characters:
        if character == escape:
            text.append(next(characters, (0, ""))[1])
        elif character in "%_":
            return Prefix("".join(text), pattern[position:] == "%")
        else:
            text.append(character)
    return Prefix("".join(text), is_whole=False)


if TYPE_CHECKING:
    Columns = Mapping[str, Column]

#: Longer value lists are evaluated by their minimum and maximum.
_MANY_VALUES = 50
#: Some writers truncate the maximum of longer strings without marking it.
CUT_TEXT_BYTES = 32

_NUMBERS = {Family.NUMBER, Family.FLOAT}
_FAMILIES: Mapping[exp.DType, Family] = {
    **dict.fromkeys(
        (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT), Family.NUMBER
    ),
    exp.DType.DECIMAL: Family.NUMBER,
    exp.DType.DOUBLE: Family.FLOAT,
    exp.DType.DATE: Family.TIME,
}
_MIRRORED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


class Conditions(NamedTuple):
    """SQL that returns for each file whether a leaf may be true, false or null for a row."""

    true: str
    false: str
    null: str


UNKNOWN = Conditions("true", "true", "true")


def conditions_of(leaf: exp.Expr, columns: Columns) -> Conditions:
    """Return the conditions of a leaf by the facts of `columns`; without facts, all may hold."""
    used = {column.name for column in leaf.find_all(exp.Column)}
    if not used <= columns.keys():
        return UNKNOWN  # A value list in a larger expression.
    if all(columns[name].knowledge is Knowledge.VALUE for name in used):
        return _computed(leaf)
    judge = _JUDGES.get(type(leaf))
    return UNKNOWN if judge is None else judge(leaf, columns)


def _computed(leaf: exp.Expr) -> Conditions:
    value = f"({leaf.sql('duckdb')})"
    return Conditions(f"{value} IS TRUE", f"{value} IS FALSE", f"{value} IS NULL")


class _Bounds:
    """What the bounds of one column allow its values to be. Every method returns SQL."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.is_float = column.family is Family.FLOAT

    def below(self, value: str) -> str:
        return f"{self.column.min} < {value}"

    def at_or_below(self, value: str) -> str:
        return f"{self.column.min} <= {value}"

    def above(self, value: str) -> str:
        return "true" if self.is_float else f"({self.column.max} > {value}{self._or_cut(value)})"

    def at_or_above(self, value: str) -> str:
        return "true" if self.is_float else self._reaches(value)

    def within(self, low: str, high: str) -> str:
        inside = f"({self.at_or_below(high)} AND {self._reaches(low)})"
        return f"({inside} OR isnan(CAST({high} AS DOUBLE)))" if self.is_float else inside

    def outside(self, low: str, high: str) -> str:
        return f"({self.below(low)} OR {self.above(high)})"

    def _reaches(self, value: str) -> str:
        return f"({self.column.max} >= {value}{self._or_cut(value)})"

    def _or_cut(self, value: str) -> str:
        if self.column.family is not Family.TEXT:
            return ""
        high = self.column.max
        return f" OR strlen({high}) >= {CUT_TEXT_BYTES} AND starts_with({value}, {high})"

    def conclude(self, true: str, false: str, *values: str) -> Conditions:
        """Add what applies to all leaves: nulls give null, and all rows may be null."""
        null = " OR ".join([self.column.may_be_null, *(f"{value} IS NULL" for value in values)])
        is_set = self.column.may_be_set
        return Conditions(
            f"{is_set} AND coalesce({true}, true)",
            f"{is_set} AND coalesce({false}, true)",
            f"({null})",
        )


def _judge_comparison(leaf: exp.Expr, columns: Columns) -> Conditions:
    kind, left, right = type(leaf), leaf.this, leaf.expression
    if left.find(exp.Column) is None:
        kind, left, right = _MIRRORED.get(kind, kind), right, left
    bounds, value = _bounds(left, columns, right), right.sql("duckdb")
    return UNKNOWN if bounds is None else _compare(kind, bounds, value)


def _compare(kind: type[exp.Expr], bounds: _Bounds, value: str) -> Conditions:
    equal, unequal = bounds.within(value, value), bounds.outside(value, value)
    answers: dict[type[exp.Expr], tuple[str, str]] = {
        exp.EQ: (equal, unequal),
        exp.NEQ: (unequal, equal),
        exp.LT: (bounds.below(value), bounds.at_or_above(value)),
        exp.LTE: (bounds.at_or_below(value), bounds.above(value)),
        exp.GT: (bounds.above(value), bounds.at_or_below(value)),
        exp.GTE: (bounds.at_or_above(value), bounds.below(value)),
    }
    return bounds.conclude(*answers[kind], value)


def _judge_column(leaf: exp.Expr, columns: Columns) -> Conditions:
    return _judge_comparison(exp.EQ(this=leaf, expression=exp.true()), columns)


def _judge_null(leaf: exp.Expr, columns: Columns) -> Conditions:
    column = known_column(leaf.this, columns)
    if column is None or not isinstance(leaf.expression, exp.Null):
        return UNKNOWN
    return Conditions(column.may_be_null, column.may_be_set, "false")


def _judge_between(leaf: exp.Expr, columns: Columns) -> Conditions:
    low, high = leaf.args["low"], leaf.args["high"]
    bounds = _bounds(leaf.this, columns, low, high)
    if bounds is None:
        return UNKNOWN
    ends = low.sql("duckdb"), high.sql("duckdb")
    return bounds.conclude(bounds.within(*ends), bounds.outside(*ends), *ends)


def _judge_list(leaf: exp.Expr, columns: Columns) -> Conditions:
    bounds = _bounds(leaf.this, columns, *leaf.expressions)
    if bounds is None or not leaf.expressions:
        return UNKNOWN
    values = [value.sql("duckdb") for value in leaf.expressions]
    if len(values) <= _MANY_VALUES:
        true = " OR ".join(bounds.within(value, value) for value in values)
        false = " AND ".join(bounds.outside(value, value) for value in values)
        return bounds.conclude(f"({true})", f"({false})", *values)
    if bounds.column.family is not Family.TEXT and any(map(_is_string, leaf.expressions)):
        return UNKNOWN  # The minimum of strings is not the minimum of the values they represent.
    listed = ", ".join(values)
    least, greatest = f"least({listed})", f"greatest({listed})"
    true = bounds.within(least, greatest)
    return bounds.conclude(true, "true", "NULL")


def _judge_like(leaf: exp.Expr, columns: Columns) -> Conditions:
    like, escape = leaf.this, leaf.expression
    if not isinstance(like, exp.Like) or not _is_string(like.expression) or not _is_string(escape):
        return UNKNOWN
    prefix = fixed_prefix(like.expression.name, escape=escape.name)
    found = _begins(like.this, columns, prefix.text, is_whole=prefix.is_whole)
    is_negated = like.args.get("negate")
    return Conditions(found.false, found.true, found.null) if is_negated else found


def _judge_start(leaf: exp.Expr, columns: Columns) -> Conditions:
    if not _is_string(leaf.expression):
        return UNKNOWN
    return _begins(leaf.this, columns, leaf.expression.name, is_whole=True)


def _begins(operand: exp.Expr, columns: Columns, prefix: str, *, is_whole: bool) -> Conditions:
    value = exp.Literal.string(prefix)
    bounds = _bounds(operand, columns, value)
    if bounds is None or bounds.column.family is not Family.TEXT:
        return UNKNOWN
    text, low, high = value.sql("duckdb"), bounds.column.min, bounds.column.max
    true = f"({low} <= {text} OR starts_with({low}, {text})) AND {bounds.at_or_above(text)}"
    all_begin = f"starts_with({low}, {text}) AND starts_with({high}, {text})"
    return bounds.conclude(true, f"NOT ({all_begin})" if is_whole else "true")


_JUDGES: Mapping[type[exp.Expr], Callable[[Any, Columns], Conditions]] = {
    exp.EQ: _judge_comparison,
    exp.NEQ: _judge_comparison,
    exp.LT: _judge_comparison,
    exp.LTE: _judge_comparison,
    exp.GT: _judge_comparison,
    exp.GTE: _judge_comparison,
    exp.Column: _judge_column,
    exp.Is: _judge_null,
    exp.Between: _judge_between,
    exp.In: _judge_list,
    exp.Escape: _judge_like,
    exp.StartsWith: _judge_start,
}


def known_column(operand: exp.Expr, columns: Columns) -> Column | None:
    """Return a column with known bounds, unchanged or converted by a monotonic function."""
    inner = operand
    while isinstance(inner, exp.Cast | exp.Paren):
        inner = inner.this
    column = columns[inner.name] if isinstance(inner, exp.Column) else None
    if column is None or column.knowledge is not Knowledge.BOUNDS:
        return None
    return column if inner is operand else _converted(column, operand)


def _converted(column: Column, operand: exp.Expr) -> Column | None:
    families = {column.family, _family_of_constant(operand.transform(_as_null).sql("duckdb"))}
    if not (families <= _NUMBERS or families == {Family.TIME}):
        return None
    return replace(column, conversion=operand.transform(_as_placeholder).sql("duckdb"))


def _as_null(node: exp.Expr) -> exp.Expr:
    return exp.null() if isinstance(node, exp.Column) else node


def _as_placeholder(node: exp.Expr) -> exp.Expr:
    return exp.column(VALUE) if isinstance(node, exp.Column) else node


def _bounds(operand: exp.Expr, columns: Columns, *values: exp.Expr) -> _Bounds | None:
    """Return the bounds of a column if they are comparable with all of `values`."""
    column = known_column(operand, columns)
    if column is None or not all(_compares(column, value) for value in values):
        return None
    return _Bounds(column)


def _compares(column: Column, value: exp.Expr) -> bool:
    if value.find(exp.Column):
        return False
    if _is_string(value):
        return True  # An untyped string takes the type of the other operand.
    family = _family(value)
    return family is column.family or {family, column.family} <= _NUMBERS


def _is_string(value: exp.Expr) -> bool:
    return isinstance(value, exp.Literal) and bool(value.is_string)


def _family(value: exp.Expr) -> Family | None:
    if isinstance(value, exp.Literal):
        return Family.NUMBER
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal):
        # The type of a literal need not be computed.
        return _FAMILIES.get(value.to.this) or _family_of_constant(value.sql("duckdb"))
    return _family_of_constant(value.sql("duckdb"))


@lru_cache(maxsize=1024)
def _family_of_constant(value: str) -> Family | None:
    try:
        result = compute(value, pa.table({"none": pa.nulls(1)}))
    except PredicateError:
        return None
    return family_of(result.schema[0].type)
