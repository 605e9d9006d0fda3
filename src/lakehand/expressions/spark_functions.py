"""Functions of Spark SQL, translated to DuckDB SQL with the same results."""

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
    is_integer,
    is_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Line terminators in Java. A dot does not match them, and "$" may match before the last one.
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_SETS: Mapping[str, str] = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0B\f\r"}
_PART = re.compile(
    r"""
    (?P<set>\\[dws])
    | (?P<escaped>\\[^0-9A-Za-z])
    | (?P<class>\[\^?(?:[^\[\]\\&^]|\\[dws]|\\[^0-9A-Za-z])+\])
    | (?P<any>\.)
    | (?P<end>\$(?=$|[|)]))
    | (?P<group>\((?:\?:)?(?!\?))
    | (?P<same>[\^|)] | [*+?](?![+]) | \{\d+(?:,\d*)?\}(?![+]))
    | (?P<plain>[^\\\[\]{}().*+?$^|])
    """,
    re.VERBOSE | re.DOTALL,
)


def spelled_for_re2(pattern: str) -> str:
    """Return a pattern that matches in RE2 where `pattern` matches in Java."""
    parts, position = [], 0
    while position < len(pattern):
        found = _PART.match(pattern, position)
        if found is None:
            raise Unsupported(f"the pattern {pattern!r}, from {pattern[position:]!r} on")
        parts.append(_spell(str(found.lastgroup), found[0]))
        position = found.end()
    return "".join(parts)


def _spell(kind: str, text: str) -> str:
    match kind:
        case "set":
            return f"[{_SETS[text[1]]}]"
        case "class":
            return re.sub(r"\\([dws])", lambda found: _SETS[found[1]], text)
        case "any":
            return f"[^{_LINE_ENDS}]"
        case "end":
            return rf"(?:\r\n|[{_LINE_ENDS}])?$"
    return text


if TYPE_CHECKING:
    Compile = Callable[[exp.Expr], Typed]

_PARTS_OF_DATES: Mapping[type[exp.Expr], str] = {
    exp.Year: "year({})",
    exp.Quarter: "quarter({})",
    exp.Month: "month({})",
    exp.Day: "day({})",
    exp.DayOfMonth: "day({})",
    exp.DayOfYear: "dayofyear({})",
    exp.WeekOfYear: "weekofyear({})",
    # Sunday is 1 in Spark.
    exp.DayOfWeek: "dayofweek({}) + 1",
}
_PARTS_OF_TIMES: Mapping[type[exp.Expr], str] = {
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}
_EXTRACTED: Mapping[str, type[exp.Expr]] = {
    "YEAR": exp.Year, "QUARTER": exp.Quarter, "MONTH": exp.Month, "WEEK": exp.WeekOfYear,
    "DAY": exp.Day, "DAYOFWEEK": exp.DayOfWeek, "DOW": exp.DayOfWeek, "DOY": exp.DayOfYear,
    "HOUR": exp.Hour, "MINUTE": exp.Minute,
}  # fmt: skip
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_UNITS_OF_DATES = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month",
    "MM": "month", "MON": "month", "WEEK": "week",
}  # fmt: skip
#: Letters with one counterpart in every engine: no ß, no İ, and no Σ, whose lower case depends on
#: its position. And scripts without case.
_ALIKE = (
    r"[\x00-\x7F\x{A0}-\x{B4}\x{B6}-\x{DE}\x{E0}-\x{12F}\x{132}-\x{148}\x{14A}-\x{17E}"
    r"\x{391}-\x{3A1}\x{3A4}-\x{3A9}\x{3B1}-\x{3C1}\x{3C4}-\x{3C9}\x{400}-\x{45F}"
    r"\x{3040}-\x{30FF}\x{4E00}-\x{9FFF}\x{AC00}-\x{D7A3}]*"
)
#: Only fields that are padded to their full width, as the parser marks them.
_DATE_FORMAT = re.compile(r"(?:%Y|%[mdHMS]strict|[-/: ])+")
_CAST_TYPES: Mapping[exp.DType, pa.DataType] = {
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: INTEGER,
    exp.DType.BIGINT: BIGINT,
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.TEXT: TEXT,
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: WALL_TIME,
    exp.DType.BOOLEAN: BOOLEAN,
}


def _decimal_type(to: exp.Expr) -> pa.Decimal128Type:
    names = [parameter.this.name for parameter in to.expressions] or ["10", "0"]
    # Two digits are enough for every precision and scale that Spark knows.
    digits = [int(name) for name in names if name.isdigit() and len(name) <= 2]  # noqa: PLR2004
    precision, scale = (*digits, 0, 0)[:2]
    if len(digits) != len(names) or not 1 <= precision <= WIDEST_DECIMAL or scale > precision:
        raise Unsupported(f"a cast to {to.sql()[:40]}")
    return pa.decimal128(precision, scale)


def _cast(node: exp.Expr, compile_: Compile) -> Typed:
    to = node.args["to"]
    value = compile_(node.this)
    if to.this is exp.DType.DECIMAL:
        wanted_type = _decimal_type(to)
        if value.type == TEXT and value.literal and _is_plain_number(value.literal):
            value = Typed(value.sql, pa.null())
        return cast(value, wanted_type)
    wanted = _CAST_TYPES.get(to.this)
    if wanted is None or to.expressions:
        raise Unsupported(f"a cast to {to.sql()}")
    return cast(value, wanted)


def _is_plain_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _to_date(node: exp.Expr, compile_: Compile) -> Typed:
    return cast(compile_(node.this), DATE)


def _part_of_date(node: exp.Expr, compile_: Compile) -> Typed:
    date = cast(compile_(node.this), DATE)
    return Typed(f"CAST({_PARTS_OF_DATES[type(node)].format(date.sql)} AS INTEGER)", INTEGER)


def _extract(node: exp.Expr, compile_: Compile) -> Typed:
    unit = node.this.name.upper()
    if unit not in _EXTRACTED:
        raise Unsupported(f"the unit {unit}")
    return compile_(_EXTRACTED[unit](this=node.expression))


def _part_of_time(node: exp.Expr, compile_: Compile) -> Typed:
    value = _moment(compile_(node.this))
    return Typed(f"CAST({_PARTS_OF_TIMES[type(node)]}({value.sql}) AS INTEGER)", INTEGER)


def _moment(value: Typed) -> Typed:
    if value.type in {TIMESTAMP, WALL_TIME}:
        return value
    return cast(value, TIMESTAMP)


def _add_days(node: exp.Expr, compile_: Compile) -> Typed:
    date, days = cast(compile_(node.this), DATE), compile_(node.expression)
    if node.args["unit"].name.upper() != "DAY" or not is_integer(days.type):
        raise Unsupported(node.sql())
    return Typed(f"({date.sql} + {cast(days, INTEGER).sql})", DATE)


def _days_between(node: exp.Expr, compile_: Compile) -> Typed:
    end, start = (cast(compile_(side), DATE) for side in (node.this, node.expression))
    return Typed(f"CAST({end.sql} - {start.sql} AS INTEGER)", INTEGER)


def _start_of_time(node: exp.Expr, compile_: Compile) -> Typed:
    unit, value = node.args["unit"].name.upper(), cast(compile_(node.this), TIMESTAMP)
    if unit not in _UNITS:
        raise Unsupported(f"the unit {unit}")
    return Typed(f"date_trunc('{unit.lower()}', {value.sql})", TIMESTAMP)


def _start_of_date(node: exp.Expr, compile_: Compile) -> Typed:
    unit, value = node.args["unit"].name.upper(), cast(compile_(node.this), DATE)
    if unit not in _UNITS_OF_DATES:
        raise Unsupported(f"the unit {unit}")
    return Typed(f"CAST(date_trunc('{_UNITS_OF_DATES[unit]}', {value.sql}) AS DATE)", DATE)


def _format_time(node: exp.Expr, compile_: Compile) -> Typed:
    inner, pattern = node.this, node.args["format"].name
    value = _moment(compile_(inner.this if isinstance(inner, exp.TimeStrToTime) else inner))
    if not _DATE_FORMAT.fullmatch(pattern):
        raise Unsupported("this pattern of date_format")
    spelled = quote_string(pattern.replace("strict", ""))
    return Typed(f"strftime({value.sql}, {spelled})", TEXT)


def _length(node: exp.Expr, compile_: Compile) -> Typed:
    return Typed(f"CAST(length({as_string(compile_(node.this)).sql}) AS INTEGER)", INTEGER)


def _change_case(node: exp.Expr, compile_: Compile) -> Typed:
    name = "upper" if isinstance(node, exp.Upper) else "lower"
    return _in_case(name, as_string(compile_(node.this)))


def _in_case(name: str, value: Typed) -> Typed:
    """Change the case of letters with one counterpart; for others engines differ."""
    text = value.sql
    complaint = quote_string(f"{name} of a letter like ß or İ has a different result in Spark")
    is_alike = (
        f"strlen({text}) = length({text}) OR regexp_full_match({text}, {quote_string(_ALIKE)})"
    )
    return Typed(
        f"(CASE WHEN {text} IS NULL OR {is_alike} THEN {name}({text}) ELSE error({complaint}) END)",
        TEXT,
    )


def _like_in_any_case(node: exp.Expr, compile_: Compile) -> Typed:
    lowered = exp.Like(this=exp.Lower(this=node.this), expression=node.expression)
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and pattern.name.isascii()):
        raise Unsupported("an ILIKE pattern that is not an ASCII literal")
    lowered.set("expression", exp.Literal.string(pattern.name.lower()))
    lowered.set("negate", node.args.get("negate"))
    return compile_(lowered)


def _matches(node: exp.Expr, compile_: Compile) -> Typed:
    pattern = compile_(node.expression)
    if pattern.literal is None or pattern.type != TEXT:
        raise Unsupported("an RLIKE pattern that is not a literal")
    text = as_string(compile_(node.this))
    return Typed(
        f"regexp_matches({text.sql}, {quote_string(spelled_for_re2(pattern.literal))})", BOOLEAN
    )


def _position(node: exp.Expr, compile_: Compile) -> Typed:
    part = compile_(node.args["substr"])
    if not part.literal or part.type != TEXT:
        raise Unsupported("the position of anything but a string literal")
    text = as_string(compile_(node.this))
    return Typed(f"CAST(instr({text.sql}, {part.sql}) AS INTEGER)", INTEGER)


def _whole(node: exp.Expr, compile_: Compile) -> Typed:
    """Round down or up to an integer; NaN, infinity and overflow are errors here."""
    name = "ceil" if isinstance(node, exp.Ceil) else "floor"
    value = compile_(node.this)
    if is_integer(value.type):
        return cast(value, BIGINT)
    if not pat.is_floating(value.type):
        raise Unsupported(f"{name} of {value.type}")
    return Typed(f"CAST({name}({cast(value, DOUBLE).sql}) AS BIGINT)", BIGINT)


def _trim(node: exp.Expr, compile_: Compile) -> Typed:
    sides = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
    name = sides[str(node.args.get("position") or "").upper()]
    return Typed(f"{name}({as_string(compile_(node.this)).sql}, ' ')", TEXT)


def _substring(node: exp.Expr, compile_: Compile) -> Typed:
    numbers = [compile_(node.args["start"])]
    if node.args.get("length"):
        numbers.append(compile_(node.args["length"]))
    if not all(_is_at_least(number, least) for number, least in zip(numbers, (1, 0), strict=False)):
        raise Unsupported("substring with anything but positive literals")
    arguments = ", ".join(number.sql for number in numbers)
    return Typed(f"substring({as_string(compile_(node.this)).sql}, {arguments})", TEXT)


def _left(node: exp.Expr, compile_: Compile) -> Typed:
    number = compile_(node.expression)
    if not _is_at_least(number, 0):
        raise Unsupported("left with anything but a positive literal")
    return Typed(f"left({as_string(compile_(node.this)).sql}, {number.sql})", TEXT)


def _is_at_least(number: Typed, least: int) -> bool:
    is_written = number.literal is not None and number.type == INTEGER
    return is_written and int(number.literal or 0) >= least


def _concatenate(node: exp.Expr, compile_: Compile) -> Typed:
    parts = node.expressions or (node.this, node.expression)
    strings = (_spelled_out(compile_(part)).sql for part in parts)
    return Typed(f"({' || '.join(strings)})", TEXT)


def _spelled_out(value: Typed) -> Typed:
    return cast(value, TEXT) if is_integer(value.type) or value.type == DATE else as_string(value)


def _test_of_text(name: str) -> Callable[[exp.Expr, Compile], Typed]:
    def compile_test(node: exp.Expr, compile_: Compile) -> Typed:
        text, part = (as_string(compile_(side)).sql for side in (node.this, node.expression))
        return Typed(f"{name}({text}, {part})", BOOLEAN)

    return compile_test


def _element(node: exp.Expr, compile_: Compile) -> Typed:
    """Return one element of a list; an index beyond its end is an error, as in Spark."""
    values, (element_index, *others) = _list(compile_(node.this)), node.expressions
    number = compile_(element_index)
    if others or not _is_at_least(number, 0):
        raise Unsupported("a list element by anything but an integer literal")
    end = quote_string(f"a list has no element {number.literal}")
    found = f"list_extract({values.sql}, {number.sql} + 1)"
    return Typed(
        f"(CASE WHEN {values.sql} IS NULL THEN NULL WHEN len({values.sql}) > {number.sql}"
        f" THEN {found} ELSE error({end}) END)",
        values.type.value_type,
    )


def _size(node: exp.Expr, compile_: Compile) -> Typed:
    return Typed(f"CAST(len({_list(compile_(node.this)).sql}) AS INTEGER)", INTEGER)


def _holds(node: exp.Expr, compile_: Compile) -> Typed:
    """Return whether a list contains a value; null if it may be one of its nulls."""
    values = _list(compile_(node.this))
    wanted, _ = coerce(compile_(node.expression), Typed("NULL", values.type.value_type))
    if wanted.type != values.type.value_type or pat.is_nested(wanted.type):
        raise Unsupported(f"a list of {values.type.value_type} that contains a {wanted.type}")
    return Typed(
        f"(CASE WHEN {values.sql} IS NULL OR {wanted.sql} IS NULL THEN NULL"
        f" WHEN list_contains({values.sql}, {wanted.sql}) THEN TRUE"
        f" WHEN list_aggregate({values.sql}, 'count') < len({values.sql}) THEN NULL"
        " ELSE FALSE END)",
        BOOLEAN,
    )


def _list(value: Typed) -> Typed:
    if not pat.is_list(value.type):
        raise Unsupported(f"{value.type} where a list is expected")
    return value


def _absolute(node: exp.Expr, compile_: Compile) -> Typed:
    value = compile_(node.this)
    if not is_number(value.type):
        raise Unsupported(f"abs of {value.type}")
    return Typed(f"abs({value.sql})", value.type)


def _is_nan(node: exp.Expr, compile_: Compile) -> Typed:
    value = compile_(node.this)
    if not pat.is_floating(value.type):
        raise Unsupported(f"isnan of {value.type}")
    # For null it is false.
    return Typed(f"coalesce(isnan({value.sql}), FALSE)", BOOLEAN)


def _null_test(word: str) -> Callable[[Typed], Typed]:
    return lambda value: Typed(f"({value.sql} {word})", BOOLEAN)


def _conversion(type_: pa.DataType) -> Callable[[Typed], Typed]:
    return lambda value: cast(value, type_)


#: Each with its supported arguments; any other one is rejected.
FUNCTIONS: Mapping[type[exp.Expr], tuple[Callable[[Any, Compile], Typed], set[str]]] = {
    exp.Cast: (_cast, {"to", "_type"}),
    exp.TryCast: (_cast, {"to", "_type"}),
    exp.TsOrDsToDate: (_to_date, {"safe"}),
    **dict.fromkeys(_PARTS_OF_DATES, (_part_of_date, set[str]())),
    **dict.fromkeys(_PARTS_OF_TIMES, (_part_of_time, set[str]())),
    exp.TsOrDsAdd: (_add_days, {"expression", "unit"}),
    exp.DateDiff: (_days_between, {"expression"}),
    exp.TimestampTrunc: (_start_of_time, {"unit"}),
    exp.DateTrunc: (_start_of_date, {"unit"}),
    exp.TimeToStr: (_format_time, {"format"}),
    exp.Extract: (_extract, {"expression"}),
    exp.Length: (_length, set()),
    exp.Upper: (_change_case, set()),
    exp.Lower: (_change_case, set()),
    exp.ILike: (_like_in_any_case, {"expression", "negate"}),
    exp.RegexpLike: (_matches, {"expression"}),
    exp.StrPosition: (_position, {"substr"}),
    exp.Ceil: (_whole, set()),
    exp.Floor: (_whole, set()),
    exp.Trim: (_trim, {"position"}),
    exp.Substring: (_substring, {"start", "length"}),
    exp.Left: (_left, {"expression"}),
    exp.Concat: (_concatenate, {"expressions", "safe", "coalesce"}),
    exp.DPipe: (_concatenate, {"expression", "safe"}),
    exp.StartsWith: (_test_of_text("starts_with"), {"expression"}),
    exp.EndsWith: (_test_of_text("ends_with"), {"expression"}),
    exp.Contains: (_test_of_text("contains"), {"expression"}),
    exp.Bracket: (_element, {"expressions"}),
    exp.ArraySize: (_size, set()),
    exp.ArrayContains: (_holds, {"expression"}),
    exp.Abs: (_absolute, set()),
    exp.IsNan: (_is_nan, set()),
}
#: Functions of one argument for which the parser has no class.
NAMED: Mapping[str, Callable[[Typed], Typed]] = {
    "isnull": _null_test("IS NULL"),
    "isnotnull": _null_test("IS NOT NULL"),
    "tinyint": _conversion(pa.int8()),
    "smallint": _conversion(pa.int16()),
    "bigint": _conversion(BIGINT),
}
