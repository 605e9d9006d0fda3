"""A number for each row that says where it belongs: near numbers, near rows.

The numbers come from ranks among quantiles of a sample, so values may be spread over their range in
whatever way. On a curve the number is all that counts. In a linear order it is coarse, but never
wrong: of two rows, the one with the lower number is not behind the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.rewrite.comparable import comparable_column
from lakehand.rewrite.curves import MOST_BITS, bits_per_column, curve_keys
from lakehand.rewrite.number_search import search_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.order import Order, Term
    from lakehand.rewrite.curves import Keys, Ranks

__all__ = ["SortKeys", "ascending_places"]

#: A column is told apart by so many ranks: one for nulls, and one between any two quantiles.
_MOST_RANK = 2**MOST_BITS - 1
#: Of a linear order, as many columns as fit into a number with so many bits each are looked at.
_CLASS_BITS, _CLASSED_TERMS = 16, 4
#: Numbers that lie further apart leave no room for nulls at either end.
_MOST_OFFSET = 2**63


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SortKeys:
    """Makes the numbers of rows. Picklable, and the same wherever it travels."""

    order: Order
    #: For each term some quantiles of its values, ascending.
    boundaries: tuple[pa.Array, ...]

    @classmethod
    def of_sample(cls, order: Order, sample: pa.Table) -> Self:
        """Take the quantiles of `sample`, which has the columns of the order."""
        values = [comparable_column(sample, term.path) for term in order.terms]
        return cls(order=order, boundaries=tuple(_quantiles(column) for column in values))

    def keys(self, rows: pa.RecordBatch | pa.Table) -> Keys:
        """Return the number of each row."""
        if self.order.curve == "linear":
            return self._linear_keys(rows)
        bits = bits_per_column(len(self.order.terms))
        ranks = [_fitted(column, bits) for column in self.ranks(rows)]
        return curve_keys(self.order.curve, ranks)

    def ranks(self, rows: pa.RecordBatch | pa.Table) -> list[Ranks]:
        """Return for each column how many of the quantiles lie below its values."""
        return [
            _rank(comparable_column(rows, term.path), boundaries, term)
            for term, boundaries in zip(self.order.terms, self.boundaries, strict=True)
        ]

    def _linear_keys(self, rows: pa.RecordBatch | pa.Table) -> Keys:
        """Put the classes of the first columns behind one another, as long as values are equal.

        Values between two quantiles share a class without being equal: there the columns behind
        must not decide.
        """
        keys = np.zeros(rows.num_rows, np.uint64)
        is_tied = np.ones(rows.num_rows, np.bool_)
        for position in range(_CLASSED_TERMS):
            keys <<= np.uint64(_CLASS_BITS)
            if position < len(self.order.terms):
                term = self.order.terms[position]
                column = comparable_column(rows, term.path)
                classes = _classes(column, self.boundaries[position], term)
                keys |= np.where(is_tied, classes, 0).astype(np.uint64)
                is_tied &= (classes & 1).astype(np.bool_)
        return keys

    def sorts_within(self, key: int) -> bool:
        """Say whether rows of this number still have an order among themselves."""
        if self.order.curve != "linear":
            return False
        terms = len(self.order.terms)
        if terms > _CLASSED_TERMS:
            return True
        shifts = (_CLASS_BITS * (_CLASSED_TERMS - 1 - position) for position in range(terms))
        return not all((key >> shift) & 1 for shift in shifts)

    def permutation(self, rows: pa.Table, keys: Keys) -> pa.Array:
        """Return in which order to take `rows`; those that are equal stay as they are."""
        if self.order.curve != "linear":
            return pa.array(ascending_places(keys))
        columns = [comparable_column(rows, term.path) for term in self.order.terms]
        numbers = [_offsets(*item) for item in zip(columns, self.order.terms, strict=True)]
        found = [column for column in numbers if column is not None]
        if len(found) < len(numbers):
            return _value_places(columns, self.order.terms)
        places = ascending_places(found.pop())
        for column in reversed(found):
            places = places[ascending_places(column[places])]
        return pa.array(places)


def ascending_places(keys: Keys) -> np.ndarray:
    """Return in which order keys ascend, equal ones as they are.

    NumPy sorts numbers of 16 bits by counting them, ten times as fast as others: so keys, which
    are close to each other where rows were divided before, are sorted by as many of their bits as
    differ, the last ones first.
    """
    offsets = keys - keys.min(initial=np.iinfo(np.uint64).max)
    places = np.argsort(offsets.astype(np.uint16), kind="stable")
    differing = int(offsets.max(initial=0)).bit_length()
    for shift in range(16, differing, 16):
        digits = (offsets[places] >> np.uint64(shift)).astype(np.uint16)
        places = places[np.argsort(digits, kind="stable")]
    return places


def _offsets(values: pa.Array, term: Term) -> Keys | None:
    """Return numbers that ascend as `term` wants its values, nulls at their end; None: no way."""
    if not pat.is_integer(values.type):
        return None
    low, high = (found.as_py() or 0 for found in pc.min_max(values).values())
    if high - low > _MOST_OFFSET:
        return None
    known = pc.fill_null(values, low) if values.null_count else values
    # What is below zero wraps around, and so do the differences, back again.
    numbers = np.from_dlpack(known).astype(np.uint64)
    first = np.uint64((high if term.descending else low) % 2**64)
    offsets = first - numbers if term.descending else numbers - first
    last = high - low + 1
    return _with_nulls(values, offsets, term, last=last, step=1).astype(np.uint64)


def _value_places(columns: Sequence[pa.Array], terms: Sequence[Term]) -> pa.Array:
    """Return the order of values of any type, by comparing them."""
    wishes = [
        (
            str(position),
            "descending" if term.descending else "ascending",
            "at_start" if term.nulls_first else "at_end",
        )
        for position, term in enumerate(terms)
    ]
    named = {str(position): column for position, column in enumerate(columns)}
    return pc.sort_indices(pa.table(named), sort_keys=wishes)


def _quantiles(values: pa.Array) -> pa.Array:
    """Return up to a thousand values that divide the others evenly; one that is frequent, often."""
    known = values.drop_null()
    ascending = known.take(pc.sort_indices(known))
    count = min(_MOST_RANK - 1, len(known))
    places = (np.arange(count) * 2 + 1) * len(known) // (2 * max(count, 1))
    return ascending.take(pa.array(places, pa.int64()))


def _rank(values: pa.Array, boundaries: pa.Array, term: Term) -> Ranks:
    """Return between which quantiles each value lies; nulls have the first rank, or the last."""
    found = _search(boundaries, values, side="left")
    return _with_nulls(values, found, term, last=_MOST_RANK, step=1).astype(np.uint32)


def _fitted(ranks: Ranks, bits: int) -> Ranks:
    """Shorten ranks to so many bits."""
    return ranks >> np.uint32(MOST_BITS - bits) if bits < MOST_BITS else ranks


def _classes(values: pa.Array, boundaries: pa.Array, term: Term) -> Ranks:
    """Return the numbers of quantiles, which are odd, or of the gaps between, in term order."""
    distinct = pc.unique(boundaries)
    found = _search(distinct, values, side="left") + _search(distinct, values, side="right")
    if term.descending:
        found = 2 * len(distinct) - found
    last = 2 * len(distinct) + 1
    return _with_nulls(values, found, term, last=last, step=2).astype(np.uint32)


def _search(
    boundaries: pa.Array, values: pa.Array, *, side: Literal["left", "right"]
) -> np.ndarray:
    if not len(boundaries) or not len(values):
        return np.zeros(len(values), np.int64)
    needles = values if values.type == boundaries.type else values.cast(boundaries.type)
    if pat.is_integer(boundaries.type):
        numbers = pc.fill_null(needles, 0) if needles.null_count else needles
        return search_numbers(np.from_dlpack(boundaries), np.from_dlpack(numbers), side=side)
    found = pc.search_sorted(boundaries, needles, side=side)
    return np.from_dlpack(pc.fill_null(found, 0)).astype(np.int64)


def _with_nulls(
    values: pa.Array, found: np.ndarray, term: Term, *, last: int, step: int
) -> np.ndarray:
    """Put nulls at their end: below what is found, which moves up, or above it."""
    if term.nulls_first:
        found = found + step
    if not values.null_count:
        return found
    nulls = np.from_dlpack(values.is_null().cast(pa.uint8())).astype(np.bool_)
    return np.where(nulls, step - 1 if term.nulls_first else last, found)
