"""The order of rows, as it is asked for, stored in plans and sent to tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from lakehand.errors import ValidationError
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Curve", "Order", "Term", "column_names", "order_of", "parse_order", "parse_terms"]

_NAME = r"(?:`(?:[^`]|``)+`|[^\s,`.]+)"
_TERM = re.compile(
    rf"\s*(?P<column>{_NAME}(?:\.{_NAME})*)"
    r"(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*(?:,|$)",
    re.IGNORECASE,
)
_PART = re.compile(_NAME)

#: `linear` sorts by one column after the other; the others treat all columns alike.
Curve = Literal["hilbert", "zorder", "linear"]
_ORDER = re.compile(rf"(?P<curve>{'|'.join(get_args(Curve))})\((?P<terms>.+)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One column of an order."""

    #: Names that lead to the column: more than one for a member of a struct.
    path: tuple[str, ...]
    descending: bool = False
    nulls_first: bool = True

    @property
    def column(self) -> str:
        return column_text(self.path)

    @property
    def text(self) -> str:
        """The one spelling of the term: whatever is the default is left out.

        >>> Term(path=("a",), descending=True, nulls_first=True).text
        'a DESC NULLS FIRST'
        """
        words = [self.column]
        if self.descending:
            words.append("DESC")
        if self.nulls_first == self.descending:
            words.append("NULLS FIRST" if self.nulls_first else "NULLS LAST")
        return " ".join(words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """By which columns rows are ordered, and along which curve."""

    terms: tuple[Term, ...]
    curve: Curve = "linear"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(term.column for term in self.terms)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(term.text for term in self.terms)

    @property
    def text(self) -> str:
        """The one spelling of the order.

        >>> order_of(["a", "b"], "hilbert").text
        'hilbert(a, b)'
        """
        return f"{self.curve}({', '.join(self.texts)})"


def parse_terms(wish: str | Sequence[str]) -> tuple[Term, ...]:
    """Read an order as SQL spells it, as one text or as one a column.

    Nulls come first, and last where the order descends, unless it is said otherwise.

    >>> [term.text for term in parse_terms("a DESC, `b.c`.d NULLS LAST")]
    ['a DESC', '`b.c`.d NULLS LAST']
    """
    texts = [wish] if isinstance(wish, str) else list(wish)
    return tuple(term for text in texts for term in _terms(text))


def column_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are named with commas between them, or one by one.

    >>> column_names("a, `b,c`.d")
    ('a', '`b,c`.d')
    """
    return tuple(dict.fromkeys(term.column for term in parse_terms(by)))


def _terms(text: str) -> Iterator[Term]:
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise ValidationError(
                f"this is no order: {text!r}",
                field="order",
                value=text,
                hint="write columns with commas between them, as in: a DESC NULLS LAST, point.x; a"
                " name with spaces, commas or dots stands in backticks: `unit price`",
            )
        yield _term(match)
        position = match.end()


def _term(match: re.Match[str]) -> Term:
    descending = (match["direction"] or "").upper() == "DESC"
    nulls = (match["nulls"] or ("LAST" if descending else "FIRST")).upper()
    path = tuple(_unquoted(part) for part in _PART.findall(match["column"]))
    return Term(path=path, descending=descending, nulls_first=nulls == "FIRST")


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def order_of(texts: Sequence[str], curve: Curve) -> Order:
    """Read an order that was checked before it was written down."""
    return Order(terms=parse_terms(texts), curve=curve)


def parse_order(text: str) -> Order:
    """Read `Order.text` again; ValidationError if it is none.

    >>> parse_order("linear(a DESC, b)").texts
    ('a DESC', 'b')
    """
    match = _ORDER.fullmatch(text)
    if match is None:
        raise ValidationError(f"this is no order: {text!r}", field="order", value=text)
    return order_of([match["terms"]], cast("Curve", match["curve"]))
