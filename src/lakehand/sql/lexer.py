"""Tokens of a statement, read one after the other, and errors that show where they are.

Strings, quoted names and comments end where Spark ends them, so that a condition is cut out of a
statement exactly where the parser of conditions ends it. The lexer reads on demand: where the
grammar expects a table, it accepts a path without quotes, which is no sequence of tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakehand.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["word", "string", "name", "number", "parameter", "symbol", "end"]

MAX_CHARACTERS = 1_000_000
_SHOWN_CHARACTERS = 120
_COMMENT = re.compile(r"--[^\n]*|/\*(?:(?!\*/|/\*).)*\*/", re.DOTALL)
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STRING = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)
_RAW_STRING = re.compile(r"[rR](?:'[^']*'|\"[^\"]*\")")
_NAME = re.compile(r"`(?:[^`]|``)*`")
_PARAMETER = re.compile(r"\?|:[^\W\d]\w*")
#: A path or URL without quotes: it has a slash in it, as in `/a`, `./a`, `~/a`, `a/b`, `s3://a`.
_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/|~/|[\w.-]*/(?!\*))[^\s;,()'\"`]*")
#: After these a colon begins no parameter: `a:b`, `a::int`.
_BEFORE_COLON = re.compile(r"[\w:)\]`'\"]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a statement: `text` as written, `value` as meant."""

    kind: Kind
    text: str
    value: Any
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


class Lexer:
    """Reads tokens from `text`; `parameters` are the values of `?` and `:name`."""

    def __init__(
        self, text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> None:
        self.text = text
        self.at = 0
        self._parameters = Parameters(parameters)
        if len(text) > MAX_CHARACTERS:
            raise SqlError(f"a statement has at most {MAX_CHARACTERS:,} characters")
        if "\0" in text:
            raise syntax_error("the statement has a NUL character", text, text.index("\0"))

    def peek(self) -> Token:
        """Return the next token without reading it. A `?` has no value yet."""
        start = self._after_space()
        return _token_at(self.text, start)

    def read(self) -> Token:
        """Return the next token and go on after it."""
        token = self.peek()
        if token.kind == "parameter":
            token = Token("parameter", token.text, self._value_of(token), token.start)
        self.at = token.end
        return token

    def read_path(self) -> Token | None:
        """Read a path or URL without quotes; None if there is none."""
        start = self._after_space()
        found = _PATH.match(self.text, start)
        if found is None:
            return None
        self.at = found.end()
        return Token("string", found[0], found[0], start)

    def finish(self) -> None:
        """Refuse parameters that the statement does not use."""
        self._parameters.finish()

    def _value_of(self, token: Token) -> Any:
        try:
            return self._parameters.take(token.text)
        except LookupError as error:
            raise syntax_error(str(error.args[0]), self.text, token.start) from None

    def _after_space(self) -> int:
        at = self.at
        while True:
            found = _SPACE.match(self.text, at) or _COMMENT.match(self.text, at)
            if found is None:
                break
            at = found.end()
        if self.text.startswith("/*", at):
            raise syntax_error("this comment has no end, or has another one in it", self.text, at)
        return at


class Parameters:
    """Values for `?`, one after the other, or for `:name`."""

    def __init__(self, given: Sequence[Any] | Mapping[str, Any] | None) -> None:
        self._given = {} if given is None else given
        self._used: set[Any] = set()

    def take(self, placeholder: str) -> Any:
        """Return the value of a placeholder; LookupError if there is none."""
        if placeholder != "?":
            name = placeholder[1:]
            if not hasattr(self._given, "keys") or name not in self._given:
                raise LookupError(f"there is no parameter named {name!r}")
            self._used.add(name)
            return self._given[name]  # type: ignore[call-overload]
        number = len(self._used)
        if hasattr(self._given, "keys") or number >= len(self._given):
            raise LookupError(f"there is no parameter {number + 1}: pass a list of parameters")
        self._used.add(number)
        return self._given[number]

    def finish(self) -> None:
        known = self._given if hasattr(self._given, "keys") else range(len(self._given))
        unused = [str(name) for name in known if name not in self._used]
        if unused:
            raise SqlError(f"the statement does not use the parameters {', '.join(unused)}")


def _token_at(text: str, at: int) -> Token:
    if at >= len(text):
        return Token("end", "", None, at)
    for kind, pattern, value_of in _KINDS:
        found = pattern.match(text, at)
        if found is not None and not (kind == "parameter" and _is_no_parameter(text, at)):
            return Token(kind, found[0], value_of(found[0]), at)
    if text[at] in "'\"`":
        raise syntax_error(f"the {text[at]} has no matching {text[at]}", text, at)
    return Token("symbol", text[at], text[at], at)


def _is_no_parameter(text: str, at: int) -> bool:
    return text[at] == ":" and at > 0 and _BEFORE_COLON.match(text[at - 1]) is not None


def _string_value(text: str) -> str:
    quote = text[0]
    return _ESCAPED.sub(_unescape, text[1:-1].replace(quote * 2, quote))


def _unescape(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2] in "%_":  # Patterns of LIKE keep their escapes.
        return found[0]
    return _ESCAPES.get(found[2], found[2])


def _number_value(text: str) -> int | float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:  # More digits than Python reads.
        return float("inf")


_KINDS: tuple[tuple[Kind, re.Pattern[str], Any], ...] = (
    ("string", _RAW_STRING, lambda text: text[2:-1]),
    ("string", _STRING, _string_value),
    ("name", _NAME, lambda text: text[1:-1].replace("``", "`")),
    ("word", _WORD, lambda text: text),
    ("number", _NUMBER, _number_value),
    ("parameter", _PARAMETER, lambda _: None),
)


def syntax_error(message: str, text: str, at: int, *, hint: str | None = None) -> SqlError:
    """Return an error that shows the line of the statement with a caret below the place."""
    at = min(at, len(text))
    first = text.rfind("\n", 0, at) + 1
    line, column = text.count("\n", 0, at) + 1, at - first + 1
    last = text.find("\n", at)
    shown = text[first : len(text) if last < 0 else last]
    cut = max(0, column - _SHOWN_CHARACTERS // 2)
    part = shown[cut : cut + _SHOWN_CHARACTERS].replace("\t", " ").rstrip()
    caret = " " * (column - 1 - cut) + "^"
    where = f"line {line}, column {column}"
    return SqlError(f"{where}: {message}\n  {part}\n  {caret}", hint=hint, line=line, column=column)


def split_statements(text: str, *, with_rest: bool = False) -> list[str]:
    r"""Return the statements of a text, without their semicolons.

    With `with_rest` the last one is what follows the last semicolon, possibly nothing.

    >>> split_statements("SHOW JOBS; -- all of them;\n SHOW TABLES")
    ['SHOW JOBS', '-- all of them;\n SHOW TABLES']
    """
    lexer, found, begin = Lexer(text), list[str](), 0
    while (token := lexer.peek()).kind != "end":
        lexer.at = token.end
        if token.is_symbol(";"):
            found.append(text[begin : token.start].strip())
            begin = token.end
    rest = text[begin:].strip()
    is_empty = Lexer(rest).peek().kind == "end"
    found = [statement for statement in found if statement]
    if with_rest:
        return [*found, "" if is_empty else rest]
    return found if is_empty else [*found, rest]
