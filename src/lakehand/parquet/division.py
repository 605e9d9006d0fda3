"""Row groups of several files divided among new files, in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Slice", "divide"]

#: A cut is moved to the border of a file if that changes an output by at most this part.
_BORDER_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Row groups of one file that follow each other."""

    file: int
    first: int
    end: int


def divide(files: Sequence[Sequence[int]], *, target_bytes: int) -> list[list[Slice]]:
    """Return the slices of each output: even in size, near the target, none without row groups.

    `files` holds the bytes of every row group of each file. A cut falls on the border of a file
    where one is near, because more is known of whole files; else on that of a row group.

    >>> [len(slices) for slices in divide([[4, 4], [4, 4, 4, 4]], target_bytes=12)]
    [2, 1]
    """
    owners = [(file, group) for file, groups in enumerate(files) for group in range(len(groups))]
    ends = [0, *accumulate(size for groups in files for size in groups)]
    starts_file = [group == 0 for _, group in owners]
    count = max(1, round(ends[-1] / target_bytes))
    even = ends[-1] / count
    cuts = {_cut(ends, starts_file, number * even, even) for number in range(1, count)}
    bounds = sorted({0, *cuts, len(owners)})
    return [_slices(owners[first:end]) for first, end in pairwise(bounds)]


def _cut(ends: Sequence[int], starts_file: Sequence[bool], ideal: float, even: float) -> int:
    """Return the number of the row group before which to cut."""

    def distance(number: int) -> float:
        return abs(ends[number] - ideal)

    borders = [number for number in range(1, len(starts_file)) if starts_file[number]]
    nearest = min(borders, key=distance, default=0)
    if nearest and distance(nearest) <= _BORDER_TOLERANCE * even:
        return nearest
    return min(range(1, len(starts_file)), key=distance, default=0)


def _slices(owners: Sequence[tuple[int, int]]) -> list[Slice]:
    found: list[Slice] = []
    for file, group in owners:
        if found and found[-1].file == file:
            found[-1] = Slice(file=file, first=found[-1].first, end=group + 1)
        else:
            found.append(Slice(file=file, first=group, end=group + 1))
    return found
