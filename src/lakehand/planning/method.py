"""Chooses the rewrite method of a group: copy row groups byte for byte, or re-encode rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.footer_survey import medians_by_owner, sum_by_owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.planning.compaction_candidates import Files
    from lakehand.planning.drafts import GroupFacts
    from lakehand.planning.footer_survey import Flags, Integers

_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRule:
    """Conditions for copying row groups."""

    #: The median row group has at least these bytes or these rows.
    min_median_bytes: int = 4 * _MIB
    min_median_rows: int = 100_000
    #: At most this fraction of the rows is in tiny row groups.
    max_tiny_group_row_ratio: float = 0.1
    #: Maximum number of row groups in an output, by its size and in total.
    max_row_groups_per_128_mib: int = 64
    max_row_groups: int = 1000
    #: With several outputs, no row group is larger than this fraction of one.
    max_row_group_ratio: float = 0.2
    #: Other files may be re-encoded into the copy if at least this fraction of the bytes is copied.
    min_copied_ratio: float = 0.5

    def is_healthy(self, *, median_bytes: float, median_rows: float) -> bool:
        return median_bytes >= self.min_median_bytes or median_rows >= self.min_median_rows

    def row_group_limit(self, data_bytes: int, files: int) -> int:
        """Return how many row groups this many files may have together."""
        by_size = self.max_row_groups_per_128_mib * max(1.0, data_bytes / (128 * _MIB))
        return min(self.max_row_groups * max(1, files), int(by_size))

    def largest_divisible(self, data_bytes: int, files: int) -> float:
        """Return the maximum size of row groups: half of one is the error of a file's size."""
        return self.max_row_group_ratio * data_bytes / files if files > 1 else float("inf")


DEFAULT_RULE = CopyRule()


def are_tiny(files: Files, rule: CopyRule = DEFAULT_RULE) -> Flags:
    """Return which files are too small to have a row group that is worth copying."""
    has_few_rows = (files.rows >= 0) & (files.rows < rule.min_median_rows)
    tiny: Flags = (files.bytes < rule.min_median_bytes) & has_few_rows
    return tiny


def copy_affinity(files: Files, rule: CopyRule = DEFAULT_RULE) -> Integers:
    """Return a number for each file: files with equal numbers above 0 can be copied together.

    Packing them separately from files that must be re-encoded avoids decoding most bytes.
    """
    groups, count = files.survey.row_groups, len(files)
    median_bytes = medians_by_owner(groups.bytes, groups.owner, count)
    median_rows = medians_by_owner(groups.rows, groups.owner, count)
    healthy = (median_bytes >= rule.min_median_bytes) | (median_rows >= rule.min_median_rows)
    tiny_group_rows = sum_by_owner(groups.rows * groups.are_tiny_groups(_MIB), groups.owner, count)
    healthy &= tiny_group_rows <= rule.max_tiny_group_row_ratio * files.survey.rows
    copyable: Flags = healthy & ~files.has_deleted_rows & (files.survey.copy_class >= 0)
    return np.where(copyable, files.survey.copy_class + 1, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodChoice:
    """The method, and why."""

    method: Literal["copy", "recode", "sort"]
    #: Shown to users.
    reason: str
    #: Files that cannot or should not be copied are re-encoded first, and the result is copied.
    mixes: bool = False


SORT = MethodChoice(method="sort", reason="rows are sorted")


@lru_cache(maxsize=1024)
def choose_method(facts: GroupFacts, rule: CopyRule = DEFAULT_RULE) -> MethodChoice:
    """Choose `copy` if the bytes have the same meaning in the new file and a good layout."""
    obstacle = next(_obstacles(facts), None) or next(_flaws(facts, rule), None)
    if obstacle is None:
        return MethodChoice(method="copy", reason="row groups of sufficient size and of one kind")
    if _can_mix(facts, rule):
        recoded = format_count(facts.file_count - facts.moved_files, "file")
        reason = f"row groups of sufficient size, and {recoded} to re-encode: {obstacle}"
        return MethodChoice(method="copy", reason=reason, mixes=True)
    return MethodChoice(method="recode", reason=obstacle)


def _obstacles(facts: GroupFacts) -> Iterator[str]:
    """Yield what makes it impossible to copy all files."""
    if facts.has_deleted_rows:
        yield "deleted rows are dropped"
    if facts.tiny_files:
        yield f"{format_count(facts.tiny_files, 'file')} too small for a reasonable row group"
    if not facts.is_surveyed:
        yield "not all footers were read"
    if facts.refusal is not None:
        yield facts.refusal
    if facts.copy_class_count > 1:
        yield "the files differ in schema, codec or calendar"


def _flaws(facts: GroupFacts, rule: CopyRule) -> Iterator[str]:
    """Yield what a copy would preserve and a re-encoding would fix."""
    if not rule.is_healthy(
        median_bytes=facts.median_row_group_bytes, median_rows=facts.median_row_group_rows
    ):
        size = format_bytes(facts.median_row_group_bytes)
        yield f"row groups are small: half of them below {size}"
    if facts.tiny_group_rows > rule.max_tiny_group_row_ratio * facts.rows:
        share = facts.tiny_group_rows / facts.rows
        yield f"{share:.0%} of the rows are in very small row groups"
    if facts.row_group_count > rule.row_group_limit(facts.data_bytes, facts.expected_files):
        yield f"{format_count(facts.row_group_count, 'row group')} are too many"
    if facts.largest_row_group_bytes > rule.largest_divisible(
        facts.data_bytes, facts.expected_files
    ):
        size = format_bytes(facts.largest_row_group_bytes)
        yield f"row groups of {size} cannot be divided evenly among files"


def _can_mix(facts: GroupFacts, rule: CopyRule) -> bool:
    """Return whether enough bytes can be copied into one file with re-encoded rows."""
    return (
        facts.joins_recoded
        and facts.expected_files == 1
        and 0 < facts.moved_files < facts.file_count
        and facts.moved_bytes >= rule.min_copied_ratio * facts.live_bytes
        and facts.moved_row_group_count <= rule.row_group_limit(facts.moved_bytes, 1)
    )
