"""The parts that statements share: tables, columns, options, conditions and values."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from lakehand.expressions.literals import literal, quote_string
from lakehand.model.snapshot import quoted_column
from lakehand.sql.lexer import Lexer, Token, syntax_error
from lakehand.sql.statements import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: Formats that a table's name may begin with, as in delta.`s3://lake/events`.
_FORMATS = ("delta", "lance")
_OPTION_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
#: Words after which a condition goes on, whatever follows.
_OPERATORS = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "ESCAPE", "CASE", "WHEN"}
    | {"THEN", "ELSE", "DIV", "INTERVAL", "DATE", "TIMESTAMP", "REGEXP", "DISTINCT", "FROM"}
)
_CLOSED_BY = {"(": ")", "[": "]"}
_MAX_NAME_PARTS = 3


class Parser:
    """Reads one statement; every error says where it is, and what was expected."""

    def __init__(
        self, text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> None:
        self.lexer = Lexer(text, parameters)

    # -- words --------------------------------------------------------------------------------

    def fail(self, message: str, token: Token, *, hint: str | None = None) -> NoReturn:
        raise syntax_error(message, self.lexer.text, token.start, hint=hint)

    def fail_expected(self, expected: Iterable[str], token: Token) -> NoReturn:
        """Say what was expected, and which of it was probably meant."""
        words = list(dict.fromkeys(expected))
        found = "the end of the statement" if token.kind == "end" else repr(token.text[:60])
        near = difflib.get_close_matches(token.text.upper(), words, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near and token.kind == "word" else None
        self.fail(f"expected {_either(words)}, found {found}", token, hint=hint)

    def take(self, *words: str) -> bool:
        """Read these words if all of them follow."""
        before = self.lexer.at
        for word in words:
            if not self.lexer.peek().is_word(word):
                self.lexer.at = before
                return False
            self.lexer.read()
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            token = self.lexer.peek()
            if not token.is_word(word):
                self.fail_expected([word], token)
            self.lexer.read()

    def choose(self, *words: str) -> str:
        """Read one of these words."""
        token = self.lexer.peek()
        if not token.is_word(*words):
            self.fail_expected(words, token)
        return self.lexer.read().text.upper()

    def take_symbol(self, symbol: str) -> bool:
        if self.lexer.peek().is_symbol(symbol):
            self.lexer.read()
            return True
        return False

    def expect_symbol(self, symbol: str) -> None:
        if not self.take_symbol(symbol):
            self.fail_expected([symbol], self.lexer.peek())

    def finish(self, expected: Iterable[str] = ()) -> None:
        """Expect the end: a statement is one, and an optional semicolon."""
        token = self.lexer.peek()
        if token.is_symbol(";"):
            self.lexer.read()
            after = self.lexer.peek()
            if after.kind != "end":
                message = "there is another statement after the semicolon"
                self.fail(message, after, hint="run one statement at a time")
        elif token.kind != "end":
            self.fail_expected([*expected, "the end of the statement"], token)
        self.lexer.finish()

    # -- tables and columns -------------------------------------------------------------------

    def table(self) -> TableName:
        """Read a table: a path, a string, delta.`url`, or a name with up to three parts."""
        path = self.lexer.read_path()
        if path is not None:
            return TableName(text=path.value, is_path=True)
        token = self.lexer.peek()
        if token.kind in {"string", "parameter"}:
            token = self.lexer.read()
            return _as_table(self._string(token, "a table"))
        parts = self.name_parts("a table")
        if len(parts) > 1 and parts[0].lower() in _FORMATS:
            text = parts[1] if len(parts) == 2 else self._too_long(token)  # noqa: PLR2004
            return TableName(text=text, format=parts[0].lower(), is_path=True)
        if len(parts) > _MAX_NAME_PARTS:
            self._too_long(token)
        if len(parts) == 1:
            return _as_table(parts[0])
        return TableName(text=".".join(parts))

    def _too_long(self, token: Token) -> NoReturn:
        self.fail("the name of the table has too many parts", token)

    def name_parts(self, what: str) -> list[str]:
        """Read a name, and further ones after dots."""
        parts = [self.name(what)]
        while self.lexer.text[self.lexer.at : self.lexer.at + 1] == ".":
            self.lexer.read()
            parts.append(self.name(what))
        return parts

    def name(self, what: str) -> str:
        """Read one name, with or without backticks."""
        token = self.lexer.peek()
        if token.kind not in {"word", "name"}:
            self.fail_expected([what], token)
        if not token.value:
            self.fail(f"the name of {what} is empty", token)
        return str(self.lexer.read().value)

    def _string(self, token: Token, what: str) -> str:
        if not isinstance(token.value, str) or not token.value:
            self.fail(f"{what} is a string that is not empty", token)
        return token.value

    def column(self) -> str:
        return quoted_column(self.name_parts("a column"))

    def columns(self) -> tuple[str, ...]:
        """Read columns, with or without parentheses around them."""
        return tuple(self._list(self.column))

    def sort_terms(self) -> str:
        """Read columns with directions, as `sort_by` accepts them."""
        return ", ".join(self._list(self._sort_term))

    def _sort_term(self) -> str:
        term = self.column()
        if self.lexer.peek().is_word("ASC", "DESC"):
            term += f" {self.choose('ASC', 'DESC')}"
        if self.take("NULLS"):
            term += f" NULLS {self.choose('FIRST', 'LAST')}"
        return term

    def _list(self, read: Callable[[], str]) -> list[str]:
        is_closed = self.take_symbol("(")
        found = [read()]
        while self.take_symbol(","):
            found.append(read())
        if is_closed:
            self.expect_symbol(")")
        return found

    # -- values -------------------------------------------------------------------------------

    def whole_number(self, what: str) -> int:
        token = self.lexer.read()
        value = token.value
        is_number = token.kind in {"number", "parameter"} and type(value) is int
        if not is_number or not 0 <= value < 2**63:
            self.fail(f"{what} is a whole number", token)
        return int(value)

    def string(self, what: str) -> str:
        token = self.lexer.read()
        if token.kind not in {"string", "parameter"}:
            self.fail(f"{what} is a string in quotes", token)
        return self._string(token, what)

    def options(self) -> dict[str, Any]:
        """Read `(name = value, ...)`; names may be dotted, dashed or quoted."""
        found: dict[str, Any] = {}
        self.expect_symbol("(")
        while not (self.take_symbol(")") and not found):
            token = self.lexer.peek()
            name = self.option_name()
            if name.lower() in {known.lower() for known in found}:
                self.fail(f"{name} is given twice", token)
            self.expect_symbol("=")
            found[name] = self.value()
            if not self.take_symbol(","):
                self.expect_symbol(")")
                break
        return found

    def option_names(self) -> tuple[str, ...]:
        self.expect_symbol("(")
        names = [self.option_name()]
        while self.take_symbol(","):
            names.append(self.option_name())
        self.expect_symbol(")")
        return tuple(names)

    def option_name(self) -> str:
        token = self.lexer.peek()
        if token.kind in {"string", "name"}:
            return self._string(self.lexer.read(), "the name of an option")
        found = _OPTION_NAME.match(self.lexer.text, token.start)
        if found is None:
            self.fail_expected(["the name of an option"], token)
        self.lexer.at = found.end()
        return found[0]

    def value(self) -> Any:
        """Read a value: a string, number, boolean, word, parameter, or a list of them."""
        token = self.lexer.read()
        if token.text in _CLOSED_BY and token.kind == "symbol":
            return self._values(_CLOSED_BY[token.text])
        if token.kind == "word":
            known = {"TRUE": True, "FALSE": False, "NULL": None}
            return known.get(token.text.upper(), token.text)
        if token.is_symbol("-") and self.lexer.peek().kind == "number":
            return -self.lexer.read().value
        if token.kind == "number":
            return self._quantity(token)
        if token.kind not in {"string", "parameter"}:
            self.fail_expected(["a value"], token)
        return token.value

    def _quantity(self, token: Token) -> Any:
        """Return a number, or with a unit right after it a string: `128MB`, `5min`."""
        unit = self.lexer.peek()
        if unit.kind == "word" and unit.start == token.end:
            return f"{token.text}{self.lexer.read().text}"
        return token.value

    def _values(self, closed_by: str) -> list[Any]:
        found: list[Any] = []
        while not self.take_symbol(closed_by):
            if found:
                self.expect_symbol(",")
            token = self.lexer.peek()
            if token.is_symbol("(") or token.is_symbol("["):
                self.fail_expected(["a value"], token)
            found.append(self.value())
        return found

    # -- conditions ---------------------------------------------------------------------------

    def condition(
        self,
        clauses: Iterable[tuple[str, ...]],
        *,
        spell: Callable[[Any], str] | None = None,
        stops: tuple[str, ...] = (),
    ) -> str:
        """Read a condition up to the next clause, and return it with parameters as literals.

        It is over at one of the symbols `stops`, too, except inside of brackets.
        """
        spell = spell or spark_literal
        text, opened = self.lexer.text, list[Token]()
        parts, begin, last = list[str](), self.lexer.peek().start, None
        while not (
            self._is_over(clauses, last, is_inside=bool(opened))
            or (not opened and self.lexer.peek().is_symbol(*stops))
        ):
            last = self._part_of_condition(opened)
            if last.kind == "parameter":
                parts += [text[begin : last.start], self._spelled(last, spell)]
                begin = last.end
        if last is None:
            self.fail_expected(["a condition"], self.lexer.peek())
        if opened:
            self.fail(f"the {opened[-1].text} has no matching bracket", opened[-1])
        return "".join([*parts, text[begin : last.end]]).strip()

    def _part_of_condition(self, opened: list[Token]) -> Token:
        token = self.lexer.read()
        if token.kind == "symbol" and token.text in _CLOSED_BY:
            opened.append(token)
        elif token.kind == "symbol" and token.text in _CLOSED_BY.values():
            if not opened or _CLOSED_BY[opened[-1].text] != token.text:
                self.fail(f"the {token.text} has no matching bracket", token)
            opened.pop()
        return token

    def _spelled(self, token: Token, spell: Callable[[Any], str]) -> str:
        try:
            return spell(token.value)
        except (KeyError, ValueError):
            kind = type(token.value).__name__
            self.fail(f"a parameter of a condition cannot be of type {kind}", token)

    def _is_over(
        self, clauses: Iterable[tuple[str, ...]], last: Token | None, *, is_inside: bool
    ) -> bool:
        token = self.lexer.peek()
        if token.kind == "end" or (token.is_symbol(";") and not is_inside):
            return True
        if is_inside or last is None or not _is_operand(last) or token.kind != "word":
            return False
        before = self.lexer.at
        is_clause = any(self.take(*words) for words in clauses)
        self.lexer.at = before
        return is_clause


def _as_table(text: str) -> TableName:
    return TableName(text=text, is_path="/" in text or "\\" in text or text in {".", ".."})


def _is_operand(token: Token) -> bool:
    """Whether a condition may end after a token."""
    if token.kind == "symbol":
        return token.text in {")", "]"}
    return token.kind != "word" or token.text.upper() not in _OPERATORS


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def spark_literal(value: Any) -> str:
    r"""Return a value as a literal of Spark SQL; KeyError for types that have none.

    >>> spark_literal("it's"), spark_literal(-1)
    ("'it\\'s'", '(-1)')
    """
    if type(value) is str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return _number_or_time(value)


def duckdb_literal(value: Any) -> str:
    """Return a value as a literal of DuckDB; KeyError for types that have none."""
    return quote_string(value) if type(value) is str else _number_or_time(value)


def _number_or_time(value: Any) -> str:
    if type(value) in {int, float, Decimal}:
        if not Decimal(value).is_finite():
            raise ValueError("not a finite number")
        return f"({literal(value)})"
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return literal(value)
