"""Operators of Spark SQL, translated to DuckDB SQL over values of the same types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat
from sqlglot import exp

from lakehand.expressions.literals import quote_string
from lakehand.expressions.spark_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    WALL_TIME,
    WIDEST_DECIMAL,
    Typed,
    Unsupported,
    as_string,
    cast,
    coerce,
    common_type,
    decimal_of,
    decimal_type,
    is_integer,
    is_number,
    sql_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Compile = Callable[[exp.Expr], Typed]

#: Maximum number of expressions in a value list; literals may be many more.
_MAX_EXPRESSIONS = 1000
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ARITHMETIC: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_INTERVALS_OF_DATES = {"DAY", "WEEK", "MONTH", "YEAR"}
#: More digits than 64 bits have.
_MAX_DIGITS = 40
_INTERVALS = {*_INTERVALS_OF_DATES, "HOUR", "MINUTE", "SECOND"}
#: A pattern in which every backslash escapes a character, as Spark requires.
_SOUND_PATTERN = re.compile(r"(?:[^\\]|\\[\\%_])*", re.DOTALL)


def as_boolean(value: Typed) -> Typed:
    if value.type != BOOLEAN and not pat.is_null(value.type):
        raise Unsupported(f"{value.type} where true or false is expected")
    return cast(value, BOOLEAN)


def _logical(node: exp.Expr, compile_: Compile) -> Typed:
    word = "AND" if isinstance(node, exp.And) else "OR"
    left, right = (as_boolean(compile_(side)).sql for side in (node.this, node.expression))
    return Typed(f"({left} {word} {right})", BOOLEAN)


def _not(node: exp.Expr, compile_: Compile) -> Typed:
    return Typed(f"(NOT {as_boolean(compile_(node.this)).sql})", BOOLEAN)


def _parenthesis(node: exp.Expr, compile_: Compile) -> Typed:
    return compile_(node.this)


def _comparison(node: exp.Expr, compile_: Compile) -> Typed:
    return _compare(_COMPARISONS[type(node)], compile_(node.this), compile_(node.expression))


def _compare(word: str, *values: Typed) -> Typed:
    left, right = coerce(*values)
    if pat.is_nested(left.type):
        raise Unsupported(f"a comparison of {left.type}")
    return Typed(f"({left.sql} {word} {right.sql})", BOOLEAN)


def _is(node: exp.Expr, compile_: Compile) -> Typed:
    value, what = compile_(node.this), node.expression
    if isinstance(what, exp.Null):
        return Typed(f"({value.sql} IS NULL)", BOOLEAN)
    if isinstance(what, exp.Boolean):
        word = "TRUE" if what.this else "FALSE"
        return Typed(f"({as_boolean(value).sql} IS {word})", BOOLEAN)
    raise Unsupported(f"IS {what.sql()}")


def _between(node: exp.Expr, compile_: Compile) -> Typed:
    value, low, high = (compile_(node.args[name]) for name in ("this", "low", "high"))
    above, below = _compare(">=", value, low), _compare("<=", value, high)
    (of_low, start), (of_high, end) = coerce(value, low), coerce(value, high)
    if of_low.type == of_high.type:
        return Typed(f"({of_low.sql} BETWEEN {start.sql} AND {end.sql})", BOOLEAN)
    return Typed(f"({above.sql} AND {below.sql})", BOOLEAN)


def _in(node: exp.Expr, compile_: Compile) -> Typed:
    if len(node.expressions) > _MAX_EXPRESSIONS:
        raise Unsupported(
            f"a list of {len(node.expressions):,} values that are not all number, string or date"
            f" literals; the maximum is {_MAX_EXPRESSIONS:,}"
        )
    value, *listed = coerce(*(compile_(one) for one in (node.this, *node.expressions)))
    if pat.is_nested(value.type) or not listed:
        raise Unsupported(node.sql())
    return Typed(f"({value.sql} IN ({', '.join(one.sql for one in listed)}))", BOOLEAN)


def _like(node: exp.Expr, compile_: Compile) -> Typed:
    value, pattern = as_string(compile_(node.this)), compile_(node.expression)
    if pattern.literal is None or not _SOUND_PATTERN.fullmatch(pattern.literal):
        raise Unsupported("a LIKE pattern that is not a literal, or has an invalid backslash")
    found = f"({value.sql} LIKE {quote_string(pattern.literal)} ESCAPE '\\')"
    return Typed(f"(NOT {found})" if node.args.get("negate") else found, BOOLEAN)


def _arithmetic(node: exp.Expr, compile_: Compile) -> Typed:
    word = _ARITHMETIC[type(node)]
    if isinstance(node.expression, exp.Interval) and word != "*":
        return _shifted(word, compile_(node.this), node.expression)
    left, right = compile_(node.this), compile_(node.expression)
    _require_numbers(left, right)
    if pat.is_decimal(left.type) or pat.is_decimal(right.type):
        return _decimal_arithmetic(word, left, right)
    left, right = coerce(left, right)
    return Typed(f"({left.sql} {word} {right.sql})", left.type)


def _shifted(word: str, moment: Typed, interval: exp.Interval) -> Typed:
    """Return a date or timestamp plus or minus an interval literal."""
    unit = str(interval.args.get("unit") or "").upper().removesuffix("S")
    number = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    is_date = moment.type == DATE and unit in _INTERVALS_OF_DATES
    is_time = moment.type in {TIMESTAMP, WALL_TIME} and unit in _INTERVALS
    if not number.isdigit() or not (is_date or is_time):
        raise Unsupported(f"{interval.sql()} with {moment.type}")
    shifted = f"({moment.sql} {word} INTERVAL {quote_string(number)} {unit})"
    return cast(Typed(shifted, WALL_TIME), DATE) if is_date else Typed(shifted, moment.type)


def _decimal_arithmetic(word: str, left: Typed, right: Typed) -> Typed:
    if pat.is_floating(left.type) or pat.is_floating(right.type):
        left, right = cast(left, DOUBLE), cast(right, DOUBLE)
        return Typed(f"({left.sql} {word} {right.sql})", DOUBLE)
    left, right = (as_decimal_literal(side) for side in (left, right))
    one, other = decimal_of(left.type), decimal_of(right.type)
    if word == "*":
        precision, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        precision = whole + scale + 1
    if precision > WIDEST_DECIMAL:
        raise Unsupported("decimals with this many digits")
    return Typed(
        f"CAST({cast(left, one).sql} {word} {cast(right, other).sql} AS"
        f" DECIMAL({precision},{scale}))",
        pa.decimal128(precision, scale),
    )


def as_decimal_literal(value: Typed) -> Typed:
    """Return an integer literal as the decimal with as many digits, as Spark does."""
    if value.literal is None or not is_integer(value.type):
        return value
    type_ = pa.decimal128(len(value.literal.lstrip("-")), 0)
    return Typed(f"CAST({value.sql} AS DECIMAL({type_.precision},0))", type_, value.literal)


def _division(node: exp.Expr, compile_: Compile) -> Typed:
    left, right = compile_(node.this), compile_(node.expression)
    _require_numbers(left, right)
    _require_positive(right)
    if pat.is_decimal(left.type) or pat.is_decimal(right.type):
        raise Unsupported("a division of decimals")
    if isinstance(node, exp.Div):
        return Typed(f"({cast(left, DOUBLE).sql} / {cast(right, DOUBLE).sql})", DOUBLE)
    if not (is_integer(left.type) and is_integer(right.type)):
        raise Unsupported("an integer division or modulo of other types than integers")
    if isinstance(node, exp.IntDiv):
        return Typed(f"({cast(left, BIGINT).sql} // {cast(right, BIGINT).sql})", BIGINT)
    type_ = common_type(left.type, right.type)
    return Typed(f"({cast(left, type_).sql} % {cast(right, type_).sql})", type_)


def _require_numbers(*values: Typed) -> None:
    other = next((value for value in values if not is_number(value.type)), None)
    if other is not None:
        raise Unsupported(f"arithmetic with {other.type}")


def _require_positive(value: Typed) -> None:
    """Reject a divisor that may be zero: an error in one engine, null in another."""
    if value.literal is None or float(value.literal) <= 0:
        raise Unsupported("a division by anything but a positive literal")


def _negation(node: exp.Expr, compile_: Compile) -> Typed:
    value = compile_(node.this)
    _require_numbers(value)
    literal = None if value.literal is None else f"-{value.literal}"
    return Typed(f"(-{value.sql})", value.type, literal)


def _case(node: exp.Expr, compile_: Compile) -> Typed:
    subject = node.args.get("this")
    tests, results = [], []
    for branch in node.args["ifs"]:
        test = compile_(branch.this)
        tests.append(_compare("=", compile_(subject), test) if subject else as_boolean(test))
        results.append(compile_(branch.args["true"]))
    default = node.args.get("default")
    results.append(compile_(default) if default else Typed("NULL", pa.null()))
    return _choice(tests, results)


def _if(node: exp.Expr, compile_: Compile) -> Typed:
    otherwise = node.args.get("false")
    results = [compile_(node.args["true"])]
    results.append(compile_(otherwise) if otherwise else Typed("NULL", pa.null()))
    return _choice([as_boolean(compile_(node.this))], results)


def _choice(tests: list[Typed], results: list[Typed]) -> Typed:
    *chosen, default = coerce(*results)
    branches = " ".join(
        f"WHEN {test.sql} THEN {result.sql}" for test, result in zip(tests, chosen, strict=True)
    )
    return Typed(f"(CASE {branches} ELSE {default.sql} END)", default.type)


def _coalesce(node: exp.Expr, compile_: Compile) -> Typed:
    values = coerce(*(compile_(one) for one in (node.this, *node.expressions)))
    return Typed(f"coalesce({', '.join(value.sql for value in values)})", values[0].type)


def _nullif(node: exp.Expr, compile_: Compile) -> Typed:
    value = compile_(node.this)
    is_equal = _compare("=", value, compile_(node.expression))
    return Typed(f"(CASE WHEN {is_equal.sql} THEN NULL ELSE {value.sql} END)", value.type)


def _extreme(node: exp.Expr, compile_: Compile) -> Typed:
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    values = coerce(*(compile_(one) for one in (node.this, *node.expressions)))
    if pat.is_nested(values[0].type):
        raise Unsupported(f"{name} of {values[0].type}")
    return Typed(f"{name}({', '.join(value.sql for value in values)})", values[0].type)


def _literal(node: exp.Expr, compile_: Compile) -> Typed:
    del compile_
    text = node.name
    if node.args.get("is_string"):
        return Typed(quote_string(text), TEXT, text)
    if text.isdigit():
        if len(text) > _MAX_DIGITS:  # Python does not even convert thousands of them.
            raise Unsupported(f"a number of {len(text):,} digits")
        bits = int(text).bit_length()
        type_ = INTEGER if bits < INTEGER.bit_width else BIGINT
        if bits >= BIGINT.bit_width:
            raise Unsupported(f"the number {text}")
        name = "INTEGER" if type_ == INTEGER else "BIGINT"
        return Typed(f"CAST({text} AS {name})", type_, text)
    if "e" in text.lower():
        return Typed(f"CAST({quote_string(text)} AS DOUBLE)", DOUBLE, text)
    return _decimal_literal(text)


def _decimal_literal(text: str) -> Typed:
    type_ = decimal_type(text)
    return Typed(f"CAST({quote_string(text)} AS {sql_type(type_)})", type_, text)


def _boolean(node: exp.Expr, compile_: Compile) -> Typed:
    del compile_
    return Typed("TRUE" if node.this else "FALSE", BOOLEAN)


def _null(node: exp.Expr, compile_: Compile) -> Typed:
    del node, compile_
    return Typed("NULL", pa.null())


#: Each with its supported arguments; any other one is rejected.
OPERATORS: Mapping[type[exp.Expr], tuple[Callable[[Any, Compile], Typed], set[str]]] = {
    exp.And: (_logical, {"expression"}),
    exp.Or: (_logical, {"expression"}),
    exp.Not: (_not, set()),
    exp.Paren: (_parenthesis, set()),
    **dict.fromkeys(_COMPARISONS, (_comparison, {"expression"})),
    exp.Is: (_is, {"expression"}),
    exp.Between: (_between, {"low", "high"}),
    exp.In: (_in, {"expressions"}),
    exp.Like: (_like, {"expression", "negate"}),
    **dict.fromkeys(_ARITHMETIC, (_arithmetic, {"expression"})),
    exp.Div: (_division, {"expression", "typed", "safe"}),
    exp.IntDiv: (_division, {"expression"}),
    exp.Mod: (_division, {"expression"}),
    exp.Neg: (_negation, set()),
    exp.Case: (_case, {"ifs", "default"}),
    exp.If: (_if, {"true", "false"}),
    exp.Coalesce: (_coalesce, {"expressions"}),
    exp.Nullif: (_nullif, {"expression"}),
    exp.Greatest: (_extreme, {"expressions", "ignore_nulls"}),
    exp.Least: (_extreme, {"expressions", "ignore_nulls"}),
    exp.Literal: (_literal, {"is_string"}),
    exp.Boolean: (_boolean, set()),
    exp.Null: (_null, set()),
}
