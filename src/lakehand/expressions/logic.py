"""Conditions as trees of AND, OR and NOT, with chains of any length on one level.

A recursive-descent parser nests once for every parenthesis, NOT and OR. So these are parsed here,
from the tokens, and the parser gets what is between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from lakehand.errors import PredicateError
from lakehand.expressions.name_resolution import SparkDialect
from lakehand.expressions.value_lists import (
    FEW_VALUES,
    Written,
    extract_lists,
    restore_lists,
    written_list,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlglot.parser import Parser

#: Nesting levels of AND in OR in AND, and so on; redundant parentheses and NOTs do not count.
_MAX_LEVELS = 100
#: Operands of AND, OR and NOT, after comparisons of one column with many values are merged.
_MAX_PARTS = 20_000

_PAIRS = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
    TokenType.CASE: TokenType.END,
}
_CLOSING = frozenset(_PAIRS.values())
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_QUERIES = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES}


@dataclass(frozen=True, slots=True, eq=False)
class Junction:
    """Operands that are connected by the same keyword."""

    word: Literal["AND", "OR"]
    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """The negation of an operand, which is not a negation itself."""

    part: Logic


#: Leaves are expression trees after parsing, and SQL after compilation.
Logic = Junction | Negation | exp.Expr | str


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A condition, and the long value lists that its placeholders represent."""

    logic: Logic
    lists: list[Written]

    @property
    def leaves(self) -> Iterator[exp.Expr | str]:
        return leaves(self.logic)

    @property
    def text(self) -> str:
        """The condition in Spark SQL."""
        return restore_lists(_to_sql(self.logic), self.lists)


def leaves(logic: Logic) -> Iterator[exp.Expr | str]:
    """Yield the operands of AND, OR and NOT, from left to right."""
    if isinstance(logic, Junction):
        for part in logic.parts:
            yield from leaves(part)
    elif isinstance(logic, Negation):
        yield from leaves(logic.part)
    else:
        yield logic


def map_leaves(logic: Logic, function: Callable[[exp.Expr], exp.Expr]) -> Logic:
    """Return the same condition with other leaves."""
    if isinstance(logic, Junction):
        return Junction(logic.word, tuple([map_leaves(part, function) for part in logic.parts]))
    if isinstance(logic, Negation):
        return Negation(map_leaves(logic.part, function))
    return logic if isinstance(logic, str) else function(logic)


def _to_sql(logic: Logic) -> str:
    if isinstance(logic, Junction):
        inner = [
            f"({_to_sql(part)})" if isinstance(part, Junction) else _to_sql(part)
            for part in logic.parts
        ]
        return f" {logic.word} ".join(inner)
    if isinstance(logic, Negation):
        inside = _to_sql(logic.part)
        return f"NOT ({inside})" if isinstance(logic.part, Junction) else f"NOT {inside}"
    return logic if isinstance(logic, str) else logic.sql(SparkDialect)


def parse_logic(text: str) -> Parsed:
    """Parse an expression; SqlglotError if it is invalid, PredicateError if it is too large."""
    short, lists = extract_lists(text)
    dialect = SparkDialect()
    tokens = dialect.tokenize(short)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise ParseError("it is empty")
    reader = _Reader(_without_doubled(tokens), short, dialect.parser(), lists)
    try:
        return Parsed(reader.read_all(), lists)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> PredicateError:
    return PredicateError(
        f"the condition has more than {_MAX_LEVELS} nesting levels",
        hint="flatten it: chains of OR and AND, and lists of IN, may be long",
    )


def _pairs(tokens: Sequence[Token]) -> dict[int, int] | None:
    """Return where each parenthesis, bracket and CASE ends; None if they do not match."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        kind = token.token_type
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue  # A name, whatever it is.
        if kind in _PAIRS:
            opened.append(index)
        elif kind in _CLOSING:
            if opened and _PAIRS[tokens[opened[-1]].token_type] is kind:
                ends[opened.pop()] = index
            elif kind is not TokenType.END:
                return None
    return None if opened else ends


def _without_doubled(tokens: list[Token]) -> list[Token]:
    """Remove redundant nested parentheses, unless they contain a list or a query."""
    ends = _pairs(tokens) or {}
    doubled: set[int] = set()
    for start, end in ends.items():
        inner = start + 1
        if ends.get(inner) != end - 1 or tokens[start].token_type is not TokenType.L_PAREN:
            continue
        if tokens[inner].token_type is TokenType.L_PAREN and _is_grouped(tokens, ends, inner):
            doubled |= {inner, end - 1}
    return [token for index, token in enumerate(tokens) if index not in doubled]


def _is_grouped(tokens: Sequence[Token], ends: dict[int, int], start: int) -> bool:
    """Return whether a pair of parentheses contains one expression, and so only groups."""
    first, end = start + 1, ends[start]
    if first == end or tokens[first].token_type in _QUERIES:
        return False
    while first < end:
        if tokens[first].token_type is TokenType.COMMA:
            return False
        first = ends.get(first, first) + 1
    return True


class _Reader:
    """The tokens of one condition, parsed span by span."""

    def __init__(
        self, tokens: list[Token], text: str, parser: Parser, lists: list[Written]
    ) -> None:
        self.tokens = tokens
        self._text = text
        self._parser = parser
        self._lists = lists
        self._ends = _pairs(tokens)
        self._parts = 0

    def read_all(self) -> Logic:
        try:
            return self.read(0, len(self.tokens))
        except ParseError:
            # A name may look like a keyword. The parser decides, as far as it gets.
            return self._leaf(0, len(self.tokens))

    def read(self, start: int, end: int, level: int = 0) -> Logic:
        """Return the condition of the tokens from `start` to `end`."""
        start, end, is_negated = self._bared(start, end)
        word, spans = self._split(start, end)
        if word is None:
            found: Logic = self._leaf(start, end)
        elif level >= _MAX_LEVELS:
            raise _too_deep()
        else:
            found = self._junction(word, spans, level + 1)
        if not is_negated:
            return found
        return found.part if isinstance(found, Negation) else Negation(found)

    def _bared(self, start: int, end: int) -> tuple[int, int, bool]:
        """Strip NOTs and parentheses from a span, and return whether the number of NOTs is odd."""
        is_negated = False
        while end - start > 1:
            kind = self.tokens[start].token_type
            if kind is TokenType.NOT and self._split(start, end)[0] is None:
                while self.tokens[start].token_type is TokenType.NOT and end - start > 1:
                    start, is_negated = start + 1, not is_negated
            elif self._is_wrapped(start, end):
                start, end = start + 1, end - 1
            else:
                break
        return start, end, is_negated

    def _is_wrapped(self, start: int, end: int) -> bool:
        ends = self._ends or {}
        return (
            self.tokens[start].token_type is TokenType.L_PAREN
            and ends.get(start) == end - 1
            and _is_grouped(self.tokens, ends, start)
        )

    def _split(self, start: int, end: int) -> tuple[str | None, list[tuple[int, int]]]:
        """Return the keyword between the parts of a span, and the parts; None if it has one."""
        if self._ends is None:
            return None, []
        cuts: dict[TokenType, list[int]] = {TokenType.OR: [], TokenType.AND: []}
        betweens, index = 0, start
        while index < end:
            kind = self.tokens[index].token_type
            is_name = index > start and self.tokens[index - 1].token_type is TokenType.DOT
            if kind is TokenType.BETWEEN and not is_name:
                betweens += 1
            elif kind is TokenType.AND and betweens:
                betweens -= 1
            elif kind in cuts and not is_name:
                cuts[kind].append(index)
            index = self._ends.get(index, index) + 1
        for kind, positions in cuts.items():
            if positions:
                edges = [start - 1, *positions, end]
                return kind.name, [(a + 1, b) for a, b in pairwise(edges)]
        return None, []

    def _junction(self, word: str, spans: list[tuple[int, int]], level: int) -> Logic:
        parts: list[Logic] = []
        for part in self._folded(word, spans, level):
            is_same = isinstance(part, Junction) and part.word == word
            parts.extend(part.parts if isinstance(part, Junction) and is_same else [part])
        if len(parts) == 1:
            return parts[0]
        return Junction("AND" if word == "AND" else "OR", tuple(parts))

    def _folded(self, word: str, spans: list[tuple[int, int]], level: int) -> Iterator[Logic]:
        """Yield the parts of a chain; `a = 1 OR a = 2 OR …` becomes one test for a value list."""
        kinds = [self._comparison(word, *span) for span in spans]
        tested: dict[tuple[str, TokenType], list[str]] = {}
        for kind in kinds:
            if kind is not None:
                tested.setdefault(kind[:2], []).append(kind[2])
        seen = set()
        for span, kind in zip(spans, kinds, strict=True):
            if kind is None or len(tested[kind[:2]]) <= FEW_VALUES:
                yield self.read(*span, level)
            elif kind[:2] not in seen:
                seen.add(kind[:2])
                yield self._listed(word, span, kind[1], tested[kind[:2]])

    def _comparison(self, word: str, start: int, end: int) -> tuple[str, TokenType, str] | None:
        """Return column, kind of value and value of `a = 1` in a chain of OR, `a <> 1` in AND."""
        start, end, is_negated = self._bared(start, end)
        wanted = TokenType.EQ if word == "OR" else TokenType.NEQ
        middle = start
        while middle < end and self.tokens[middle].token_type in {*_NAMES, TokenType.DOT}:
            middle += 1
        rest = [token.token_type for token in self.tokens[middle:end]]
        if is_negated or middle == start or rest[:1] != [wanted]:
            return None
        column = self._text[self.tokens[start].start : self.tokens[middle - 1].end + 1]
        value = self.tokens[end - 1].text
        if rest[1:] == [TokenType.STRING]:
            return column, TokenType.STRING, value
        if value.isdigit() and rest[1:] in ([TokenType.NUMBER], [TokenType.DASH, TokenType.NUMBER]):
            return column, TokenType.NUMBER, value if len(rest) < 3 else f"-{value}"  # noqa: PLR2004
        return None

    def _listed(
        self, word: str, span: tuple[int, int], kind: TokenType, values: list[str]
    ) -> Logic:
        start, end, _ = self._bared(*span)
        comparison = self._leaf(start, end)
        is_string = kind is TokenType.STRING
        written = written_list(**{"strings" if is_string else "numbers": values})
        number = len(self._lists)
        self._lists.append(written)
        found = exp.In(this=comparison.this, expressions=[written.placeholder(number)])
        return found if word == "OR" else Negation(found)

    def _leaf(self, start: int, end: int) -> exp.Expr:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise PredicateError(
                f"the condition has more than {_MAX_PARTS:,} parts",
                hint="use IN for many values of a column, or upsert and delete by key",
            )
        found = self._parser.parse_into(exp.Condition, self.tokens[start:end], self._text)
        if len(found) != 1 or found[0] is None:
            raise ParseError("it is not one expression")
        tree: exp.Expr = found[0]
        return tree
