"""What a predicate can be for rows of which only bounds are known.

A predicate is true, false or null for each row. A Truth says of many files at once whether it *may*
be true, may be false, may be null for one of their rows. Where nothing is known, all three may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from lakehand.expressions.logic import Junction, Negation

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    from sqlglot import exp

    from lakehand.expressions.logic import Logic

    Flags = npt.NDArray[np.bool_]

__all__ = ["Truth", "combine"]


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


def combine(condition: Logic, truth_of: Callable[[exp.Expr | str], Truth]) -> Truth:
    """Return the truth of `condition` from those of its leaves."""
    if isinstance(condition, Negation):
        return ~combine(condition.part, truth_of)
    if isinstance(condition, Junction):
        parts = (combine(part, truth_of) for part in condition.parts)
        return reduce(and_ if condition.word == "AND" else or_, parts)
    return truth_of(condition)
