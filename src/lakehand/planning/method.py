"""How a group is rewritten: its row groups moved byte for byte, or its rows written anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.surveyed import sum_by_owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.planning.candidates import Files
    from lakehand.planning.surveyed import Flags, Integers, RowGroups

__all__ = ["CopyRule", "GroupFacts", "MethodChoice", "choose_method", "copy_affinity", "read_facts"]

_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRule:
    """When row groups are good enough to be moved as they are."""

    #: The median row group has at least these bytes or these rows.
    min_median_bytes: int = 4 * _MIB
    min_median_rows: int = 100_000
    #: At most this part of the rows lies in crumbs.
    max_crumb_row_ratio: float = 0.1
    #: Row groups in an output, by its size and in all.
    max_row_groups_per_128_mib: int = 64
    max_row_groups: int = 1000
    #: Crumbs may be recoded into the copy if at least this part of the bytes is copied.
    min_copied_ratio: float = 0.5

    def is_healthy(self, *, median_bytes: float, median_rows: float) -> bool:
        return median_bytes >= self.min_median_bytes or median_rows >= self.min_median_rows

    def row_group_limit(self, data_bytes: int) -> int:
        by_size = self.max_row_groups_per_128_mib * max(1.0, data_bytes / (128 * _MIB))
        return min(self.max_row_groups, int(by_size))


DEFAULT_RULE = CopyRule()


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupFacts:
    """What the footers of a group's files say together."""

    #: Footers that were read, of all files of the group.
    is_surveyed: bool
    has_deleted_rows: bool = False
    #: Why one of the files must not be copied.
    refusal: str | None = None
    copy_class_count: int = 1
    expected_files: int = 1
    row_group_count: int = 0
    median_row_group_bytes: float = 0.0
    median_row_group_rows: float = 0.0
    rows: int = 0
    data_bytes: int = 0
    #: What of it lies in row groups far below a healthy size.
    crumb_rows: int = 0
    crumb_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodChoice:
    """The method, and why."""

    method: Literal["copy", "recode"]
    #: Shown to users.
    reason: str
    #: Recoding a few crumbs would do: the other row groups are worth copying.
    could_mix: bool = False


@lru_cache(maxsize=1024)
def choose_method(facts: GroupFacts, rule: CopyRule = DEFAULT_RULE) -> MethodChoice:
    """Choose `copy` where the bytes mean the same in the new file and are worth keeping."""
    obstacle = next(_obstacles(facts), None)
    if obstacle is not None:
        return MethodChoice(method="recode", reason=obstacle)
    flaw = next(_flaws(facts, rule), None)
    if flaw is not None:
        copied = 1 - facts.crumb_bytes / max(1, facts.data_bytes)
        could_mix = copied >= rule.min_copied_ratio and facts.crumb_bytes > 0
        return MethodChoice(method="recode", reason=flaw, could_mix=could_mix)
    return MethodChoice(method="copy", reason="healthy row groups of one kind")


def _obstacles(facts: GroupFacts) -> Iterator[str]:
    """Yield what makes a copy impossible."""
    if facts.has_deleted_rows:
        yield "deleted rows are dropped"
    if not facts.is_surveyed:
        yield "not all footers were read"
    if facts.refusal is not None:
        yield facts.refusal
    if facts.copy_class_count > 1:
        yield "the files differ in schema, codec or calendar"
    if facts.expected_files != 1:
        yield f"the rows go into {format_count(facts.expected_files, 'file')}"


def _flaws(facts: GroupFacts, rule: CopyRule) -> Iterator[str]:
    """Yield what a copy would preserve and a rewrite would mend."""
    if not rule.is_healthy(
        median_bytes=facts.median_row_group_bytes, median_rows=facts.median_row_group_rows
    ):
        size = format_bytes(facts.median_row_group_bytes)
        yield f"row groups are small: half of them below {size}"
    if facts.crumb_rows > rule.max_crumb_row_ratio * facts.rows:
        share = facts.crumb_rows / facts.rows
        yield f"{share:.0%} of the rows are in row groups far below a healthy size"
    if facts.row_group_count > rule.row_group_limit(facts.data_bytes):
        yield f"{format_count(facts.row_group_count, 'row group')} are too many for one file"


def copy_affinity(files: Files, rule: CopyRule = DEFAULT_RULE) -> Integers:
    """Return a number for each file: files of one number above 0 can be copied together.

    Packing them apart from files that must be recoded keeps most bytes from being decoded.
    """
    groups, count = files.survey.row_groups, len(files)
    median_bytes = _medians(groups.bytes, groups.owner, count)
    median_rows = _medians(groups.rows, groups.owner, count)
    healthy = (median_bytes >= rule.min_median_bytes) | (median_rows >= rule.min_median_rows)
    copyable: Flags = healthy & ~files.has_deleted_rows & (files.survey.copy_class >= 0)
    return np.where(copyable, files.survey.copy_class + 1, 0)


def read_facts(
    files: Files, group_of_file: Integers, expected_files: Integers, *, crumb_bytes: float
) -> list[GroupFacts]:
    """Return the facts of every group; `group_of_file` is -1 for files in none."""
    count = len(expected_files)
    if not files.survey.is_surveyed.any():
        return [GroupFacts(is_surveyed=False)] * count
    inside = np.flatnonzero(group_of_file >= 0)
    group, survey = group_of_file[inside], files.survey
    missing = sum_by_owner((~survey.is_surveyed[inside]).astype(np.int64), group, count)
    deleted = sum_by_owner(files.has_deleted_rows[inside].astype(np.int64), group, count)
    class_counts = _count_classes(group, survey.copy_class[inside], count)
    refused = inside[(survey.copy_class[inside] < 0) & survey.is_surveyed[inside]]
    refusals = dict(
        zip(group_of_file[refused].tolist(), survey.refusal.take(refused).to_pylist(), strict=True)
    )
    sums = _RowGroupSums.of(survey.row_groups, group_of_file, count, crumb_bytes=crumb_bytes)
    return [
        GroupFacts(
            is_surveyed=True,
            has_deleted_rows=bool(deleted[number]),
            refusal=_words(refusals[number]) if number in refusals else None,
            copy_class_count=int(class_counts[number]),
            expected_files=int(expected_files[number]),
            **sums.of_group(number),
        )
        if not missing[number]
        else GroupFacts(is_surveyed=False, has_deleted_rows=bool(deleted[number]))
        for number in range(count)
    ]


def _count_classes(group: Integers, copy_class: Integers, count: int) -> Integers:
    class_limit = int(copy_class.max(initial=0)) + 2
    pairs = np.unique(group * class_limit + copy_class + 1)
    return np.bincount(pairs // class_limit, minlength=count)


def _words(refusal: str | None) -> str:
    return refusal or "a file must not be copied"


@dataclass(frozen=True, slots=True, eq=False)
class _RowGroupSums:
    """Figures over the row groups of each group of files."""

    columns: dict[str, np.typing.NDArray[np.float64] | Integers]

    @classmethod
    def of(
        cls, groups: RowGroups, group_of_file: Integers, count: int, *, crumb_bytes: float
    ) -> _RowGroupSums:
        owner = group_of_file[groups.owner]
        kept = owner >= 0
        owner, sizes, rows = owner[kept], groups.bytes[kept], groups.rows[kept]
        is_crumb = groups.are_crumbs(crumb_bytes)[kept]
        return cls(
            {
                "row_group_count": np.bincount(owner, minlength=count),
                "median_row_group_bytes": _medians(sizes, owner, count),
                "median_row_group_rows": _medians(rows, owner, count),
                "rows": sum_by_owner(rows, owner, count),
                "data_bytes": sum_by_owner(sizes, owner, count),
                "crumb_rows": sum_by_owner(rows * is_crumb, owner, count),
                "crumb_bytes": sum_by_owner(sizes * is_crumb, owner, count),
            }
        )

    def of_group(self, number: int) -> dict[str, int]:
        return {name: int(column[number]) for name, column in self.columns.items()}


def _medians(values: Integers, owner: Integers, count: int) -> Integers:
    """Return the lower median of the values of each owner; 0 where it has none."""
    order = np.lexsort((values, owner))
    counts = np.bincount(owner, minlength=count)
    middle = np.cumsum(counts) - counts + np.maximum(counts - 1, 0) // 2
    medians = np.zeros(count, np.int64)
    some = counts > 0
    medians[some] = values[order][middle[some]]
    return medians
