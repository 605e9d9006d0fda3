"""What a predicate can be for rows of which only bounds are known.

A predicate is true, false or null for each row. A Truth says of many files at once whether it *may*
be true, may be false, may be null for one of their rows. Where nothing is known, all three may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    Flags = npt.NDArray[np.bool_]

__all__ = ["Truth", "combine", "leaves"]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """One flag a file each: the predicate may be true, false, null."""

    true: Flags
    false: Flags
    null: Flags

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true, self.null)

    def __and__(self, other: Truth) -> Truth:
        return Truth(
            self.true & other.true,
            self.false | other.false,
            self.null & (other.true | other.null) | other.null & (self.true | self.null),
        )

    def __or__(self, other: Truth) -> Truth:
        return ~(~self & ~other)


def leaves(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of `condition` that AND, OR and NOT connect."""
    match condition:
        case exp.And() | exp.Or():
            yield from leaves(condition.left)
            yield from leaves(condition.right)
        case exp.Not() | exp.Paren():
            yield from leaves(condition.this)
        case _:
            yield condition


def combine(condition: exp.Expr, answers: Mapping[int, Truth]) -> Truth:
    """Return the truth of `condition` from those of its leaves, which are found by their id()."""
    match condition:
        case exp.And():
            return combine(condition.left, answers) & combine(condition.right, answers)
        case exp.Or():
            return combine(condition.left, answers) | combine(condition.right, answers)
        case exp.Not():
            return ~combine(condition.this, answers)
        case exp.Paren():
            return combine(condition.this, answers)
    return answers[id(condition)]
