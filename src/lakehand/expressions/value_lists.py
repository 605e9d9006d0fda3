"""Long value lists, `id IN (1, 2, …)`: taken out of the SQL, and evaluated by Arrow.

A parser creates an object for each value, and DuckDB plans each of them: tens of thousands would
take minutes. Here a list is one array of values, and a hash set for evaluation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from sqlglot import exp

from lakehand.errors import PredicateError
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.spark_types import (
    BIGINT,
    DATE,
    INTEGER,
    TEXT,
    Typed,
    Unsupported,
    cast,
    common_type,
    decimal_type,
    sql_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Lists of up to this many values stay in the SQL.
FEW_VALUES = 50
_MAX_VALUES = 1_000_000
_PLACEHOLDER = "__lakehand_values__"
_PLACEHOLDERS = re.compile(rf"{_PLACEHOLDER}\((\d+)\)", re.IGNORECASE)

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?![0-9A-Za-z_.])"
_STRING = r"'(?:[^'\\]|'')*+'"
_VALUE = rf"(?:{_NUMBER}|{_STRING}|DATE\s*{_STRING}|NULL\b)"
#: Other tokens, which may contain anything; then a long list.
_SCANNED = re.compile(
    r"'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*+`|--[^\n]*+|/\*.*?\*/"
    rf"|(?<![\w.`])IN\s*+\(\s*+(?P<list>{_VALUE}(?:\s*+,\s*+{_VALUE}){{{FEW_VALUES},}}+)\s*+\)",
    re.IGNORECASE | re.DOTALL,
)
_PARTS = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<date>DATE\s*)?(?P<string>{_STRING})|(?P<null>NULL)", re.IGNORECASE
)


@dataclass(kw_only=True, slots=True)
class Written:
    """The literals of one list."""

    #: The list as SQL, without its parentheses.
    text: str
    integers: list[str] = field(default_factory=list)
    decimals: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    has_null: bool = False

    def placeholder(self, number: int) -> exp.Expr:
        """Return the placeholder of the list in a tree."""
        return exp.Anonymous(this=_PLACEHOLDER, expressions=[exp.Literal.number(number)])


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueList:
    """An IN test for a long list, which is a column in the SQL of a predicate."""

    #: The name of the column.
    name: str
    #: The value to look up, in the type of the list.
    operand: Typed
    values: pa.Array
    has_null: bool

    def found_in(self, operands: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Return for each operand whether it is in the list, as in SQL: null if unknown."""
        given = _comparable(operands.cast(self.values.type))
        found = pc.is_in(given, value_set=self._searched)
        unknown = pc.is_null(given)
        if self.has_null:
            unknown = pc.or_(unknown, pc.invert(found))
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)

    @cached_property
    def _searched(self) -> pa.Array:
        return _comparable(self.values)


def _comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    # Hash sets distinguish -0.0 from 0.0, which SQL does not.
    return pc.add(values, pa.scalar(0, values.type)) if pat.is_floating(values.type) else values


def extract_lists(text: str) -> tuple[str, list[Written]]:
    """Return `text` with placeholders for long lists of literals, and those lists."""
    if _PLACEHOLDER in text.lower():
        raise PredicateError(f"{_PLACEHOLDER} is a reserved name of lakehand")
    lists: list[Written] = []

    def take(match: re.Match[str]) -> str:
        if match["list"] is None:
            return match[0]
        lists.append(_read(match["list"]))
        return f"IN ({_PLACEHOLDER}({len(lists) - 1}))"

    return _SCANNED.sub(take, text), lists


def restore_lists(text: str, lists: Sequence[Written]) -> str:
    """Return `text` with placeholders replaced by their lists."""
    return _PLACEHOLDERS.sub(lambda match: lists[int(match[1])].text, text)


def _read(text: str) -> Written:
    written = Written(text=text)
    for match in _PARTS.finditer(text):
        _add(written, match)
    return _bounded(written)


def _add(written: Written, match: re.Match[str]) -> None:
    number = match["number"]
    if number is not None:
        (written.decimals if "." in number else written.integers).append(number)
    elif match["string"] is not None:
        string = match["string"][1:-1].replace("''", "'")
        (written.strings if match["date"] is None else written.dates).append(string)
    else:
        written.has_null = True


def written_list(*, numbers: Iterable[str] = (), strings: Iterable[str] = ()) -> Written:
    """Return a list of integer or string literals."""
    integers, literals = list(numbers), list(strings)
    quoted = (string.replace("\\", "\\\\").replace("'", "''") for string in literals)
    text = ", ".join([*integers, *(f"'{string}'" for string in quoted)])
    return _bounded(Written(text=text, integers=integers, strings=literals))


def _bounded(written: Written) -> Written:
    kinds = (written.integers, written.decimals, written.strings, written.dates)
    count = sum(map(len, kinds))
    if count > _MAX_VALUES:
        raise PredicateError(
            f"a list has {count:,} values; the maximum is {_MAX_VALUES:,}",
            hint="put the values into a table, and upsert or delete by key",
        )
    return written


def listed_values(node: exp.Expr) -> int | None:
    """Return the list of an IN test; None: the values are in the tree."""
    [only] = node.expressions if len(node.expressions) == 1 else [None]
    if isinstance(only, exp.Anonymous) and only.name.lower() == _PLACEHOLDER:
        return int(only.expressions[0].name)
    return None


def compile_list(name: str, operand: Typed, written: Written) -> ValueList:
    """Cast the values of a list and the operand to one type; Unsupported if there is none.

    The rules are those of shorter lists: `typed.coerce`.
    """
    wanted = operand.type
    types = list(_types(written))
    for type_ in types:
        wanted = common_type(wanted, type_)
    for type_ in types:
        cast(Typed("", type_, "0"), wanted)
    if wanted != TEXT:
        for string in written.strings:
            cast(Typed("", TEXT, string), wanted)
    literals = [*written.integers, *written.decimals, *written.strings, *written.dates]
    return ValueList(
        name=name,
        operand=cast(operand, wanted),
        values=_converted(literals, wanted),
        has_null=written.has_null,
    )


def _types(written: Written) -> Iterable[pa.DataType]:
    """Yield each distinct type that the literals of a list have by themselves."""
    if written.integers:
        bits = max(abs(number) for number in map(int, written.integers)).bit_length()
        if bits >= BIGINT.bit_width:
            raise Unsupported("a number that is too large for a BIGINT")
        yield INTEGER if bits < INTEGER.bit_width else BIGINT
    yield from dict.fromkeys(decimal_type(text.lstrip("-")) for text in written.decimals)
    if written.dates:
        for text in written.dates:
            cast(Typed("", TEXT, text), DATE)
        yield DATE


def _converted(literals: list[str], type_: pa.DataType) -> pa.Array:
    given = pa.table({"written": pa.array(literals, pa.string())})
    answer = compute(f"CAST(written AS {sql_type(type_)})", given)
    return answer.column(0).combine_chunks()


def with_lists(values: pa.Table, lists: Sequence[ValueList]) -> pa.Table:
    """Return `values` with a column for each list, whether its operand is in it."""
    if not lists:
        return values
    plain = [one.operand.sql in values.column_names for one in lists]
    computed = [one.operand.sql for one, is_plain in zip(lists, plain, strict=True) if not is_plain]
    answers = iter(compute(", ".join(computed), values).columns if computed else ())
    for one, is_plain in zip(lists, plain, strict=True):
        operands = values[one.operand.sql] if is_plain else next(answers)
        values = values.append_column(one.name, one.found_in(operands))
    return values
