"""What is known of the files of a group together, before its method is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.planning.copy_rule import are_tiny, copy_affinity
from lakehand.planning.surveyed import medians_by_owner, sum_by_owner

if TYPE_CHECKING:
    from lakehand.planning.candidates import Files
    from lakehand.planning.surveyed import Flags, Integers

__all__ = ["GroupFacts", "find_moved", "read_facts"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupFacts:
    """What the table and the footers say of the files of a group."""

    #: Whether the footers of all files were read that could be copied.
    is_surveyed: bool
    has_deleted_rows: bool = False
    #: Why one of the files must not be copied.
    refusal: str | None = None
    copy_class_count: int = 1
    #: Files that a copy would leave.
    expected_files: int = 1
    row_group_count: int = 0
    median_row_group_bytes: int = 0
    median_row_group_rows: int = 0
    largest_row_group_bytes: int = 0
    rows: int = 0
    data_bytes: int = 0
    #: Rows in row groups far below a healthy size.
    crumb_rows: int = 0

    file_count: int = 0
    live_bytes: int = 0
    #: Files whose footers are not worth a look.
    tiny_files: int = 0
    #: What may be moved if all else is recoded first: files of one kind, with healthy row groups.
    moved_files: int = 0
    moved_bytes: int = 0
    moved_row_group_count: int = 0
    #: Whether rows that are written anew could be row groups of the same file.
    joins_recoded: bool = False


def find_moved(files: Files, group_of_file: Integers) -> Flags:
    """Say which files of each group to move, if some are recoded: those of the kind of most bytes.

    `group_of_file` is -1 for files in no group.
    """
    affinity = copy_affinity(files)
    able = np.flatnonzero((group_of_file >= 0) & (affinity > 0))
    pairs = np.stack([group_of_file[able], affinity[able]], axis=1)
    kinds, kind_of_file = np.unique(pairs, axis=0, return_inverse=True)
    sizes = sum_by_owner(files.live_bytes[able], kind_of_file.ravel(), len(kinds))
    # The last kind of each group is the one that is kept.
    order = np.lexsort((-kinds[:, 1], sizes, kinds[:, 0]))
    largest = np.zeros(int(group_of_file.max(initial=-1)) + 1, np.int64)
    largest[kinds[order, 0]] = kinds[order, 1]
    moved = np.zeros(len(files), np.bool_)
    moved[able] = affinity[able] == largest[group_of_file[able]]
    return moved


def read_facts(
    files: Files,
    group_of_file: Integers,
    moved: Flags,
    expected_files: Integers,
    *,
    crumb_bytes: float,
) -> list[GroupFacts]:
    """Return the facts of every group; `group_of_file` is -1 for files in none."""
    count = len(expected_files)
    inside = np.flatnonzero(group_of_file >= 0)
    figures = _file_figures(files, group_of_file[inside], inside, moved, count)
    figures |= _row_group_figures(files, group_of_file, moved, count, crumb_bytes=crumb_bytes)
    figures["expected_files"] = expected_files
    names, columns = list(figures), [column.tolist() for column in figures.values()]
    refusals = _refusals(files, group_of_file, inside)
    return [
        GroupFacts(**dict(zip(names, row, strict=True)), refusal=refusals.get(number))
        for number, row in enumerate(zip(*columns, strict=True))
    ]


def _file_figures(
    files: Files, group: Integers, inside: Integers, moved: Flags, count: int
) -> dict[str, Integers | Flags]:
    survey, moves = files.survey, moved[inside]
    is_tiny = are_tiny(files)[inside] & ~survey.is_surveyed[inside]
    is_missing = ~survey.is_surveyed[inside] & ~is_tiny

    def add_up(values: Integers | Flags) -> Integers:
        return sum_by_owner(values.astype(np.int64), group, count)

    return {
        "is_surveyed": add_up(is_missing) == 0,
        "has_deleted_rows": add_up(files.has_deleted_rows[inside]) > 0,
        "copy_class_count": _count_classes(group, survey.copy_class[inside], count),
        "file_count": np.bincount(group, minlength=count),
        "live_bytes": add_up(files.live_bytes[inside]),
        "tiny_files": add_up(is_tiny),
        "moved_files": add_up(moves),
        "moved_bytes": add_up(files.live_bytes[inside] * moves),
        "joins_recoded": add_up(survey.joins_recoded[inside] & moves) > 0,
    }


def _row_group_figures(
    files: Files, group_of_file: Integers, moved: Flags, count: int, *, crumb_bytes: float
) -> dict[str, Integers]:
    groups = files.survey.row_groups
    owner = group_of_file[groups.owner]
    kept = owner >= 0
    owner, sizes, rows = owner[kept], groups.bytes[kept], groups.rows[kept]
    is_crumb = groups.are_crumbs(crumb_bytes)[kept]
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, owner, sizes)
    moves = moved[groups.owner[kept]].astype(np.int64)
    return {
        "row_group_count": np.bincount(owner, minlength=count),
        "median_row_group_bytes": medians_by_owner(sizes, owner, count),
        "median_row_group_rows": medians_by_owner(rows, owner, count),
        "largest_row_group_bytes": largest,
        "rows": sum_by_owner(rows, owner, count),
        "data_bytes": sum_by_owner(sizes, owner, count),
        "crumb_rows": sum_by_owner(rows * is_crumb, owner, count),
        "moved_row_group_count": sum_by_owner(moves, owner, count),
    }


def _count_classes(group: Integers, copy_class: Integers, count: int) -> Integers:
    class_limit = int(copy_class.max(initial=0)) + 2
    pairs = np.unique(group * class_limit + copy_class + 1)
    return np.bincount(pairs // class_limit, minlength=count)


def _refusals(files: Files, group_of_file: Integers, inside: Integers) -> dict[int, str]:
    """Return why a file of a group must not be copied, for groups that have such a file."""
    survey = files.survey
    refused = inside[(survey.copy_class[inside] < 0) & survey.is_surveyed[inside]]
    words = survey.refusal.take(refused).to_pylist()
    return {
        group: word or "a file must not be copied"
        for group, word in zip(group_of_file[refused].tolist(), words, strict=True)
    }
