"""Computes an integer sort key per row: close keys, close rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.sorting.curves import MAX_RANK_BITS, bits_per_column, curve_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakehand.model.order import Order, Term
    from lakehand.sorting.curves import Keys, Ranks

if TYPE_CHECKING:
    Numbers = NDArray[Any]


if TYPE_CHECKING:
    Side = Literal["left", "right"]

#: Cells of the lookup table: far more than boundaries, so that few cells contain one.
_CELL_BITS = 16
#: For fewer numbers the lookup table does not pay off.
_MIN_NUMBERS = 2**14


def search_numbers(boundaries: Numbers, numbers: Numbers, *, side: Side) -> NDArray[np.int64]:
    """Equivalent to `np.searchsorted`, in a fraction of its time for many numbers.

    The range of the boundaries is divided into cells of equal width. In most cells all numbers have
    the same position; only those in the others are searched.
    """
    if len(numbers) < _MIN_NUMBERS or not len(boundaries):
        return np.searchsorted(boundaries, numbers, side=side)
    return _table(boundaries.dtype.str, boundaries.tobytes(), side).find(numbers)


@lru_cache(maxsize=16)
def _table(kind: str, boundaries: bytes, side: Side) -> _Table:
    """Return the lookup table for boundaries, cached because every chunk of rows uses it."""
    return _Table(np.frombuffer(boundaries, kind), side)


class _Table:
    """The positions of all numbers in each cell, if they are equal."""

    def __init__(self, boundaries: Numbers, side: Side) -> None:
        self._boundaries, self._side = boundaries, side
        limits = np.iinfo(boundaries.dtype)
        # Numbers outside the boundaries have the positions of the outermost cells.
        self._low = max(int(limits.min), int(boundaries[0]) - 1)
        self._high = min(int(limits.max), int(boundaries[-1]) + 1)
        span = self._high - self._low
        self._base = np.uint64(self._low % 2**64)
        self._shift = np.uint64(max(0, span.bit_length() - _CELL_BITS))
        starts = np.arange((span >> int(self._shift)) + 1, dtype=np.uint64) << self._shift
        ends = np.minimum(starts + np.uint64((1 << int(self._shift)) - 1), np.uint64(span))
        self._places, last = (
            np.searchsorted(boundaries, (edges + self._base).astype(boundaries.dtype), side=side)
            for edges in (starts, ends)
        )
        self._is_unsure = self._places != last
        self._is_sure = not self._is_unsure.any()

    def find(self, numbers: Numbers) -> NDArray[np.int64]:
        cells = np.clip(numbers, self._low, self._high).astype(np.uint64)
        cells -= self._base
        cells >>= self._shift
        found: NDArray[np.int64] = self._places.take(cells.view(np.int64))
        if not self._is_sure:
            unsure = np.flatnonzero(self._is_unsure.take(cells.view(np.int64)))
            found[unsure] = np.searchsorted(self._boundaries, numbers[unsure], side=self._side)
        return found


#: Digits of a decimal that fit into 64 bits.
_LONG_DIGITS = 18
_SIGN = np.uint64(1 << 63)
_ALL_BUT_SIGN = np.int64(2**63 - 1)


def comparable_column(rows: pa.RecordBatch | pa.Table, path: Sequence[str]) -> pa.Array:
    """Return the values of a column or struct field in comparable form, with nulls.

    Values are ordered by SQL rules: strings by characters, decimals by number, -0.0 equal to 0.0,
    and NaN above all other numbers.
    """
    column = rows.column(path[0])
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(path) > 1:
        column = pc.struct_field(column, list(path[1:]))
    return _comparable(column)


def _comparable(column: pa.Array) -> pa.Array:
    if pat.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pat.is_floating(kind):
        return _ordered_floats(column)
    if pat.is_decimal(kind):
        return _ordered_decimals(column)
    if pat.is_date32(kind):
        return column.cast(pa.int32())
    if pat.is_temporal(kind):
        return column.cast(pa.int64())
    return column.cast(pa.uint8()) if pat.is_boolean(kind) else column


def _ordered_floats(column: pa.Array) -> pa.Array:
    values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy() + 0.0
    bits: NDArray[np.int64] = values.view(np.int64)
    # The bits of positive floats ascend with them, those of negative floats descend.
    ordered = bits ^ ((bits >> 63) & _ALL_BUT_SIGN)
    ordered[np.isnan(values)] = _ALL_BUT_SIGN
    return pa.array(ordered, mask=_nulls(column))


def _ordered_decimals(column: pa.Array) -> pa.Array:
    exact = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if not len(exact):
        return pa.array([], pa.int64())
    words = np.frombuffer(exact.buffers()[1], np.uint64).reshape(-1, 2)
    words = words[exact.offset : exact.offset + len(exact)]
    if exact.type.precision <= _LONG_DIGITS:
        return pa.array(words[:, 0].astype(np.int64), mask=_nulls(column))
    # Most significant byte first, negative numbers below the others.
    flipped = np.stack([words[:, 1] ^ _SIGN, words[:, 0]], axis=1).astype(">u8")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(exact), [None, pa.py_buffer(flipped.tobytes())]
    )
    return pc.if_else(column.is_valid(), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _nulls(column: pa.Array) -> NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    mask: NDArray[np.bool_] = np.from_dlpack(column.is_null().cast(pa.uint8())).astype(np.bool_)
    return mask


#: Number of ranks per column: one for nulls, and one between any two quantiles.
_MAX_RANK = 2**MAX_RANK_BITS - 1
#: A linear order uses as many columns as fit into a number with this many bits each.
_CLASS_BITS, _CLASSED_TERMS = 16, 4
#: Numbers that are further apart leave no room for nulls at either end.
_MAX_OFFSET = 2**63


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SortKeys:
    """Computes the sort keys of rows. Picklable, and deterministic in every process."""

    order: Order
    #: Quantiles of the values of each term, ascending.
    boundaries: tuple[pa.Array, ...]

    @classmethod
    def of_sample(cls, order: Order, sample: pa.Table) -> Self:
        """Compute the quantiles of `sample`, which has the columns of the order."""
        values = [comparable_column(sample, term.path) for term in order.terms]
        return cls(order=order, boundaries=tuple(_quantiles(column) for column in values))

    def keys(self, rows: pa.RecordBatch | pa.Table) -> Keys:
        """Return the sort key of each row."""
        if self.order.curve == "linear":
            return self._linear_keys(rows)
        bits = bits_per_column(len(self.order.terms))
        ranks = [_fitted(column, bits) for column in self.ranks(rows)]
        return curve_keys(self.order.curve, ranks)

    def ranks(self, rows: pa.RecordBatch | pa.Table) -> list[Ranks]:
        """Return for each column how many quantiles are below its values."""
        return [
            _rank(comparable_column(rows, term.path), boundaries, term)
            for term, boundaries in zip(self.order.terms, self.boundaries, strict=True)
        ]

    def _linear_keys(self, rows: pa.RecordBatch | pa.Table) -> Keys:
        """Concatenate the classes of the first columns, as long as values are equal.

        Values between two quantiles share a class without being equal: there the following columns
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
        """Return whether rows with this key still have to be sorted among themselves."""
        if self.order.curve != "linear":
            return False
        terms = len(self.order.terms)
        if terms > _CLASSED_TERMS:
            return True
        shifts = (_CLASS_BITS * (_CLASSED_TERMS - 1 - position) for position in range(terms))
        return not all((key >> shift) & 1 for shift in shifts)

    def permutation(self, rows: pa.Table, keys: Keys) -> pa.Array:
        """Return the permutation that sorts `rows`, stable."""
        if self.order.curve != "linear":
            return pa.array(ascending_order(keys))
        columns = [comparable_column(rows, term.path) for term in self.order.terms]
        numbers = [_offsets(*item) for item in zip(columns, self.order.terms, strict=True)]
        found = [column for column in numbers if column is not None]
        if len(found) < len(numbers):
            return _value_order(columns, self.order.terms)
        permutation = ascending_order(found.pop())
        for column in reversed(found):
            permutation = permutation[ascending_order(column[permutation])]
        return pa.array(permutation)


def ascending_order(keys: Keys) -> np.ndarray:
    """Return the permutation that sorts keys, stable.

    NumPy sorts 16-bit integers by counting, ten times as fast as others: so keys, which are close
    to each other within a range, are sorted by as many of their bits as differ, the last ones first
    (radix sort).
    """
    offsets = keys - keys.min(initial=np.iinfo(np.uint64).max)
    permutation = np.argsort(offsets.astype(np.uint16), kind="stable")
    differing = int(offsets.max(initial=0)).bit_length()
    for shift in range(16, differing, 16):
        digits = (offsets[permutation] >> np.uint64(shift)).astype(np.uint16)
        permutation = permutation[np.argsort(digits, kind="stable")]
    return permutation


def _offsets(values: pa.Array, term: Term) -> Keys | None:
    """Return integers that ascend in the order of `term`, including nulls; None if not possible."""
    if not pat.is_integer(values.type):
        return None
    low, high = (found.as_py() or 0 for found in pc.min_max(values).values())
    if high - low > _MAX_OFFSET:
        return None
    known = pc.fill_null(values, low) if values.null_count else values
    # Negative numbers wrap around, and so do the differences.
    numbers = np.from_dlpack(known).astype(np.uint64)
    first = np.uint64((high if term.descending else low) % 2**64)
    offsets = first - numbers if term.descending else numbers - first
    last = high - low + 1
    return _with_nulls(values, offsets, term, last=last, step=1).astype(np.uint64)


def _value_order(columns: Sequence[pa.Array], terms: Sequence[Term]) -> pa.Array:
    """Return the permutation that sorts values of any type, by comparison."""
    sort_keys_by_name = [
        (
            str(position),
            "descending" if term.descending else "ascending",
            "at_start" if term.nulls_first else "at_end",
        )
        for position, term in enumerate(terms)
    ]
    named = {str(position): column for position, column in enumerate(columns)}
    return pc.sort_indices(pa.table(named), sort_keys=sort_keys_by_name)


def _quantiles(values: pa.Array) -> pa.Array:
    """Return up to a thousand quantiles; a frequent value occurs several times."""
    known = values.drop_null()
    ascending = known.take(pc.sort_indices(known))
    count = min(_MAX_RANK - 1, len(known))
    positions = (np.arange(count) * 2 + 1) * len(known) // (2 * max(count, 1))
    return ascending.take(pa.array(positions, pa.int64()))


def _rank(values: pa.Array, boundaries: pa.Array, term: Term) -> Ranks:
    """Return between which quantiles each value is; nulls have the first rank, or the last."""
    found = _search(boundaries, values, side="left")
    return _with_nulls(values, found, term, last=_MAX_RANK, step=1).astype(np.uint32)


def _fitted(ranks: Ranks, bits: int) -> Ranks:
    """Reduce ranks to this many bits."""
    return ranks >> np.uint32(MAX_RANK_BITS - bits) if bits < MAX_RANK_BITS else ranks


def _classes(values: pa.Array, boundaries: pa.Array, term: Term) -> Ranks:
    """Return the indexes of quantiles (odd) or of the gaps between them (even), in term order."""
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
    """Put nulls at their end: below the ranks, which move up by one, or above them."""
    if term.nulls_first:
        found = found + step
    if not values.null_count:
        return found
    nulls = np.from_dlpack(values.is_null().cast(pa.uint8())).astype(np.bool_)
    return np.where(nulls, step - 1 if term.nulls_first else last, found)
