"""The order of rows, as it is asked for, stored in plans and sent to tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakehand.model.snapshot import column_text

__all__ = ["Curve", "Order", "Term"]

#: `linear` sorts by one column after the other; the others treat all columns alike.
Curve = Literal["hilbert", "zorder", "linear"]


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
