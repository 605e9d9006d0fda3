"""Sort orders: parsed from SQL, stored in plans and sent to tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from lakehand.errors import ValidationError
from lakehand.model.snapshot import quoted_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAME = r"(?:`(?:[^`]|``)+`|[^\s,`.]+)"
_TERM = re.compile(
    rf"\s*(?P<column>{_NAME}(?:\.{_NAME})*)"
    r"(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*(?:,|$)",
    re.IGNORECASE,
)
_PART = re.compile(_NAME)

#: `linear` sorts by one column after the other; the other curves weight all columns equally.
Curve = Literal["hilbert", "zorder", "linear"]
#: Other spellings of curves.
CURVE_SYNONYMS: Mapping[str, Curve] = {"z-order": "zorder", "z_order": "zorder"}
_ORDER = re.compile(rf"(?P<curve>{'|'.join(get_args(Curve))})\((?P<terms>.+)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One column of a sort order."""

    #: Path of the column: more than one name for a struct field.
    path: tuple[str, ...]
    descending: bool = False
    nulls_first: bool = True

    @property
    def column(self) -> str:
        return quoted_column(self.path)

    @property
    def text(self) -> str:
        """The term in SQL, without default directions.

        >>> Term(path=("a",), descending=True, nulls_first=True).text
        'a DESC NULLS FIRST'
        """
        parts = [self.column]
        if self.descending:
            parts.append("DESC")
        if self.nulls_first == self.descending:
            parts.append("NULLS FIRST" if self.nulls_first else "NULLS LAST")
        return " ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Columns to sort by, and the curve."""

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
        """The order in SQL.

        >>> order_of(["a", "b"], "hilbert").text
        'hilbert(a, b)'
        """
        return f"{self.curve}({', '.join(self.texts)})"


def parse_terms(order: str | Sequence[str]) -> tuple[Term, ...]:
    """Parse an SQL sort order: one string, or one string per column.

    By default nulls come first in ascending and last in descending order.

    >>> [term.text for term in parse_terms("a DESC, `b.c`.d NULLS LAST")]
    ['a DESC', '`b.c`.d NULLS LAST']
    """
    strings = [order] if isinstance(order, str) else list(order)
    return tuple(term for string in strings for term in _terms(string))


def column_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a comma-separated string or of a sequence.

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
                f"not a valid sort order: {text!r}",
                field="order",
                value=text,
                hint="separate columns by commas, as in: a DESC NULLS LAST, point.x; quote names "
                "with spaces, commas or dots by backticks: `unit price`",
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
    """Parse an order that was validated before it was stored."""
    return Order(terms=parse_terms(texts), curve=curve)


def parse_order(text: str) -> Order:
    """Parse `Order.text`; ValidationError if it is not a valid order.

    >>> parse_order("linear(a DESC, b)").texts
    ('a DESC', 'b')
    """
    match = _ORDER.fullmatch(text)
    if match is None:
        raise ValidationError(f"not a valid sort order: {text!r}", field="order", value=text)
    return order_of([match["terms"]], cast("Curve", match["curve"]))
