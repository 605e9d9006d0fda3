"""Typed SQL expressions with Spark's types, translated to DuckDB SQL.

Spark (in ANSI mode, its default) and DuckDB agree on most operators if both operands have the same
type, and differ in implicit casts. So every cast is made explicit here by Spark's rules, and what
the two do differently is Unsupported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from lakehand.expressions.literals import quote_string

BOOLEAN, TEXT, DATE = pa.bool_(), pa.string(), pa.date32()
INTEGER, BIGINT, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
TIMESTAMP, WALL_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")

_NAMES = {
    BOOLEAN: "BOOLEAN",
    TEXT: "VARCHAR",
    DATE: "DATE",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    INTEGER: "INTEGER",
    BIGINT: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    TIMESTAMP: "TIMESTAMPTZ",
    WALL_TIME: "TIMESTAMP",
    pa.binary(): "BLOB",
}
#: Maximum digits of integers of each width.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
WIDEST_DECIMAL = 38
_DATE_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME_TEXT = re.compile(
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?"
)
#: Integers only: the meaning of other strings depends on the context.
_NUMBER_TEXT = re.compile(r"-?\d{1,18}")
_TEXTS = {
    DATE: _DATE_TEXT,
    TIMESTAMP: _TIME_TEXT,
    WALL_TIME: _TIME_TEXT,
    DOUBLE: re.compile(r"-?\d{1,15}(\.\d{1,15})?|(?i:nan|-?inf(inity)?)"),
    BOOLEAN: re.compile(r"true|false"),
}


class Unsupported(Exception):  # noqa: N818  internal to the package
    """Part of an expression that is not supported, because its result might differ from Spark's."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A part of an expression: its DuckDB SQL, and its Spark type."""

    sql: str
    type: pa.DataType
    #: The source of a numeric or string literal.
    literal: str | None = None


def decimal_type(text: str) -> pa.DataType:
    """Return the type of a decimal literal.

    >>> decimal_type("12.50")
    Decimal128Type(decimal128(4, 2))
    """
    whole, _, fraction = text.partition(".")
    digits = len((whole + fraction).lstrip("0"))
    precision = max(digits, len(fraction), 1)
    if precision > WIDEST_DECIMAL:
        raise Unsupported(f"the number {text}")
    return pa.decimal128(precision, len(fraction))


def is_integer(type_: pa.DataType) -> bool:
    return bool(pat.is_signed_integer(type_))


def is_number(type_: pa.DataType) -> bool:
    return is_integer(type_) or bool(pat.is_floating(type_) or pat.is_decimal(type_))


def decimal_of(type_: pa.DataType) -> pa.DataType:
    """Return the decimal type that represents every value of a decimal or an integer type."""
    return type_ if pat.is_decimal(type_) else pa.decimal128(_DIGITS[type_.bit_width], 0)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type to which Spark casts both operands."""
    if left == right or pat.is_null(right):
        return left
    if pat.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if {left, right} in ({DATE, TIMESTAMP}, {DATE, WALL_TIME}):
        return left if right == DATE else right
    raise Unsupported(f"{left} with {right}")


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pat.is_floating(left) or pat.is_floating(right):
        return DOUBLE
    if is_integer(left) and is_integer(right):
        return left if left.bit_width >= right.bit_width else right
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    if whole + scale > WIDEST_DECIMAL:
        raise Unsupported(f"{left} with {right}")
    return pa.decimal128(whole + scale, scale)


def coerce(*values: Typed) -> tuple[Typed, ...]:
    """Return all values in their common type."""
    known = [value.type for value in values if not _is_untyped_string(value)] or [TEXT]
    wanted = known[0]
    for type_ in known[1:]:
        wanted = common_type(wanted, type_)
    return tuple(cast(value, wanted) for value in values)


def _is_untyped_string(value: Typed) -> bool:
    return value.literal is not None and value.type == TEXT


def cast(value: Typed, wanted: pa.DataType) -> Typed:
    """Cast a value to another type, if the result is the same in both engines."""
    if value.type == wanted:
        return value
    name = sql_type(wanted)
    if not (_is_cast_of_literal(value, wanted) or _is_sure_cast(value.type, wanted)):
        what = f"a value of type {value.type}" if value.literal is None else repr(value.literal)
        raise Unsupported(f"{what} where one of type {wanted} is expected")
    if value.literal is not None and value.type != TEXT and pat.is_floating(wanted):
        # From its source: a decimal would be rounded twice.
        return Typed(f"CAST({quote_string(value.literal)} AS {name})", wanted, value.literal)
    literal = value.literal if is_number(value.type) and is_number(wanted) else None
    return Typed(f"CAST({value.sql} AS {name})", wanted, literal)


def _is_cast_of_literal(value: Typed, wanted: pa.DataType) -> bool:
    if value.literal is None:
        return False
    if value.type == TEXT:
        pattern = _NUMBER_TEXT if is_integer(wanted) else _TEXTS.get(wanted)
        is_zoned = value.literal.endswith("Z") or value.literal[-6:-5] in {"+", "-"}
        return bool(
            pattern and pattern.fullmatch(value.literal) and not (is_zoned and wanted == WALL_TIME)
        )
    return pat.is_decimal(value.type) and bool(pat.is_floating(wanted))


def _is_sure_cast(have: pa.DataType, want: pa.DataType) -> bool:
    if pat.is_null(have):
        return want in _NAMES or bool(pat.is_decimal(want))
    if is_integer(have):
        # An overflow is an error in both.
        return is_number(want) or want == TEXT
    if pat.is_decimal(have):
        return bool(pat.is_decimal(want)) and _holds(want, have)
    pairs = {
        (FLOAT, DOUBLE),
        (DATE, TEXT),
        (DATE, TIMESTAMP),
        (DATE, WALL_TIME),
        (TIMESTAMP, DATE),
        (WALL_TIME, DATE),
    }
    return (have, want) in pairs


def _holds(want: pa.DataType, have: pa.DataType) -> bool:
    whole = want.precision - want.scale >= have.precision - have.scale
    return bool(whole and want.scale >= have.scale)


def as_string(value: Typed) -> Typed:
    """Return a value that must be a string."""
    if value.type != TEXT and not pat.is_null(value.type):
        raise Unsupported(f"{value.type} where a string is expected")
    return cast(value, TEXT)


def has_sql_type(type_: pa.DataType) -> bool:
    """Say whether Spark SQL has the type, and DuckDB a name for it."""
    return type_ in _NAMES or bool(pat.is_decimal(type_))


def sql_type(type_: pa.DataType) -> str:
    """Return DuckDB's name of a type."""
    if pat.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if type_ not in _NAMES:
        raise Unsupported(f"a value of type {type_}")
    return _NAMES[type_]
