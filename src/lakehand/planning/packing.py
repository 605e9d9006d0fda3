"""Puts files together that become one file: nothing here knows more than sizes and keys.

Every strategy ends with the same promise: of the bins of a partition that stay small, no two would
fit into one. A second plan over what the first one made therefore finds nothing to merge.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lakehand.planning.surveyed import sum_by_owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.planning.policy import Strategy
    from lakehand.planning.surveyed import Integers

__all__ = ["Items", "Limits", "first_fit_decreasing", "next_fit", "pack"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Items:
    """What is to be packed: one entry an item."""

    sizes: Integers
    #: What will be left of the items: it decides whether a bin is worth being one.
    expected: Integers
    #: Items of different partitions never share a bin.
    partition: Integers
    #: Items of different affinity share a bin only if it would stay small otherwise.
    affinity: Integers
    #: Place in the order in which neighbours should stay together.
    rank: Integers


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much goes into a bin."""

    capacity: int
    #: A bin below this is not worth being one: it is put together with others ...
    small_bytes: float
    #: ... and may then be filled up to this.
    fullest: int


def pack(items: Items, strategy: Strategy, limits: Limits) -> Integers:
    """Return the number of each item's bin; only an item that is too large itself exceeds one."""
    bins = _number_by_strategy(items, strategy, limits.capacity)
    sizes = sum_by_owner(items.expected, bins, len(bins))
    is_used = np.bincount(bins, minlength=len(bins)) > 0
    small = np.flatnonzero(is_used & (sizes < limits.small_bytes))
    partition = np.zeros(len(bins), np.int64)
    partition[bins] = items.partition
    merged = first_fit_decreasing(sizes[small], partition[small], capacity=limits.fullest)
    numbers = np.arange(len(bins))
    numbers[small] = small[_first_of_each(merged)]
    return numbers[bins]


def _first_of_each(numbers: Integers) -> Integers:
    """Replace every number by the place where it is first met."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse]


def _number_by_strategy(items: Items, strategy: Strategy, capacity: int) -> Integers:
    segment = items.partition * (items.affinity.max(initial=0) + 1) + items.affinity
    if strategy == "bin-packing":
        return first_fit_decreasing(items.sizes, segment, capacity=capacity)
    within = items.sizes if strategy == "sort-by-size" else items.rank
    order = np.lexsort((items.rank, within, segment))
    bins = np.empty(len(order), np.int64)
    bins[order] = next_fit(items.sizes[order], segment[order], capacity=capacity)
    return bins


def next_fit(sizes: Integers, segments: Integers, *, capacity: int) -> Integers:
    """Fill one bin after the other in the given order; a bin ends with its segment at the latest.

    >>> next_fit(np.array([40, 40, 40, 10]), np.array([0, 0, 0, 0]), capacity=100)
    array([0, 0, 1, 1])
    """
    count = len(sizes)
    before = np.concatenate(([0], np.cumsum(sizes)))
    last_of_segment = np.searchsorted(segments, segments, side="right")
    fitting = np.searchsorted(before, before[:-1] + capacity, side="right") - 1
    # An item beyond the capacity fills a bin of its own.
    ends = np.maximum(np.minimum(fitting, last_of_segment), np.arange(count) + 1)
    starts = np.zeros(count, np.int64)
    starts[_chain(ends.tolist())] = 1
    bins: Integers = np.cumsum(starts) - 1
    return bins


def _chain(ends: list[int]) -> list[int]:
    """Return where bins begin: each at the end of the one before."""
    starts, position = [], 0
    while position < len(ends):
        starts.append(position)
        position = ends[position]
    return starts


def first_fit_decreasing(sizes: Integers, segments: Integers, *, capacity: int) -> Integers:
    """Put each item, the largest first, into the first bin of its segment that has room.

    >>> first_fit_decreasing(np.array([30, 80, 70, 15]), np.zeros(4, np.int64), capacity=100)
    array([1, 0, 1, 0])
    """
    count = len(sizes)
    order = np.lexsort((np.arange(count), -sizes, segments))
    first = np.flatnonzero(np.diff(segments[order], prepend=-1))
    bounds = [*first.tolist(), count]
    bins = np.empty(count, np.int64)
    bins[order] = _fill_bins((-sizes[order]).tolist(), bounds, capacity)
    return bins


def _fill_bins(negated: list[int], bounds: Sequence[int], capacity: int) -> list[int]:
    """Fill whole bins one at a time, which is what first-fit comes to, without looking at others.

    `negated` ascends within the segments that `bounds` delimit. Every item is taken once; what is
    taken is skipped by pointers that shorten themselves, so the work is O(n log n).
    """
    bins = [0] * len(negated)
    following = list(range(len(negated) + 1))
    number = 0
    for first, end in pairwise(bounds):
        while (item := _next_free(following, first)) < end:
            room = capacity
            while item < end:
                # The head of a bin is taken whatever its size.
                if -negated[item] <= room or room == capacity:
                    room += negated[item]
                    bins[item] = number
                    following[item] = item + 1
                    item = _next_free(following, item + 1)
                else:
                    item = _next_free(following, bisect_left(negated, -room, item, end))
            number += 1
    return bins


def _next_free(following: list[int], item: int) -> int:
    while following[item] != item:
        following[item] = following[following[item]]
        item = following[item]
    return item
