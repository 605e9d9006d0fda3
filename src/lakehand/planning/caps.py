"""Groups that no run may rewrite as a whole are cut into some that it may.

A cap on the bytes or the files of a run that is below the size of every group would otherwise keep
the table from ever being compacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.planning.packing import first_fit_decreasing, next_fit
from lakehand.planning.surveyed import sum_by_owner

if TYPE_CHECKING:
    from lakehand.planning.candidates import Files
    from lakehand.planning.policy import CompactionPolicy
    from lakehand.planning.surveyed import Flags, Integers

__all__ = ["CutGroups", "cut_to_caps"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CutGroups:
    """Groups of which each fits into a run."""

    #: The group of every file; -1 for files in none.
    group_of_file: Integers
    #: Files that were in a group, and that no run within the caps would rewrite.
    is_above: Flags


def cut_to_caps(
    files: Files,
    group_of_file: Integers,
    policy: CompactionPolicy,
    *,
    must: Flags,
    only_whole: Flags | None = None,
    ranks: Integers | None = None,
) -> CutGroups:
    """Cut groups that exceed a cap of `policy`.

    `must` marks files that are worth rewriting alone, `only_whole` those that are not worth it in a
    part of their group. With `ranks` neighbours stay together.
    """
    bytes_cap = policy.max_bytes_per_run or np.iinfo(np.int64).max
    files_cap = policy.max_files_per_run or len(files) + 1
    inside = np.flatnonzero(group_of_file >= 0)
    group = group_of_file[inside]
    count = int(group.max(initial=-1)) + 1
    too_large = sum_by_owner(files.bytes[inside], group, count) > bytes_cap
    too_large |= np.bincount(group, minlength=count) > files_cap
    cut = inside[too_large[group]]
    fitting = cut[files.bytes[cut] <= bytes_cap]
    if only_whole is not None:
        fitting = fitting[~only_whole[fitting]]
    if ranks is not None:
        fitting = fitting[np.argsort(ranks[fitting], kind="stable")]
    fitting = fitting[np.argsort(group_of_file[fitting], kind="stable")]
    fit = first_fit_decreasing if ranks is None else next_fit
    pieces = fit(files.bytes[fitting], group_of_file[fitting], capacity=bytes_cap)
    pieces = _at_most(pieces, files_cap)
    kept = _worthwhile(pieces, must[fitting])
    found = group_of_file.copy()
    found[cut] = -1
    found[fitting[kept]] = count + pieces[kept]
    is_above = np.zeros(len(files), np.bool_)
    is_above[cut] = found[cut] < 0
    return CutGroups(group_of_file=_renumbered(found), is_above=is_above)


def _at_most(pieces: Integers, most: int) -> Integers:
    """Divide pieces of more than `most` files."""
    order = np.argsort(pieces, kind="stable")
    ordered = pieces[order]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    divided = np.empty(len(pieces), np.int64)
    divided[order] = ordered * (len(pieces) + 1) + place // most
    return divided


def _worthwhile(pieces: Integers, must: Flags) -> Flags:
    """Say of each file whether its piece is more than one file that is well alone."""
    if not len(pieces):
        return np.zeros(0, np.bool_)
    _, numbers = np.unique(pieces, return_inverse=True)
    counts = np.bincount(numbers)
    has_must = np.bincount(numbers, weights=must) > 0
    worthwhile: Flags = ((counts > 1) | has_must)[numbers]
    return worthwhile


def _renumbered(groups: Integers) -> Integers:
    """Return the same groups with numbers without gaps, in their order."""
    numbers = np.full(len(groups), -1, np.int64)
    inside = groups >= 0
    numbers[inside] = np.unique(groups[inside], return_inverse=True)[1]
    return numbers
