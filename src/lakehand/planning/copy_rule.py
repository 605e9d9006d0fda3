"""When row groups are good enough to be moved as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.planning.surveyed import medians_by_owner, sum_by_owner

if TYPE_CHECKING:
    from lakehand.planning.candidates import Files
    from lakehand.planning.surveyed import Flags, Integers

__all__ = ["DEFAULT_RULE", "CopyRule", "are_tiny", "copy_affinity"]

_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRule:
    """What row groups must be like."""

    #: The median row group has at least these bytes or these rows.
    min_median_bytes: int = 4 * _MIB
    min_median_rows: int = 100_000
    #: At most this part of the rows lies in crumbs.
    max_crumb_row_ratio: float = 0.1
    #: Row groups in an output, by its size and in all.
    max_row_groups_per_128_mib: int = 64
    max_row_groups: int = 1000
    #: Where there are several outputs, no row group is larger than this part of one.
    max_row_group_ratio: float = 0.2
    #: Other files may be recoded into the copy if at least this part of the bytes is copied.
    min_copied_ratio: float = 0.5

    def is_healthy(self, *, median_bytes: float, median_rows: float) -> bool:
        return median_bytes >= self.min_median_bytes or median_rows >= self.min_median_rows

    def row_group_limit(self, data_bytes: int, files: int) -> int:
        """Return how many row groups may go into this many files together."""
        by_size = self.max_row_groups_per_128_mib * max(1.0, data_bytes / (128 * _MIB))
        return min(self.max_row_groups * max(1, files), int(by_size))

    def largest_divisible(self, data_bytes: int, files: int) -> float:
        """Return how large row groups may be: half of one is the error of a file's size."""
        return self.max_row_group_ratio * data_bytes / files if files > 1 else float("inf")


DEFAULT_RULE = CopyRule()


def are_tiny(files: Files, rule: CopyRule = DEFAULT_RULE) -> Flags:
    """Say which files are too small to hold a row group that is worth moving."""
    has_few_rows = (files.rows >= 0) & (files.rows < rule.min_median_rows)
    tiny: Flags = (files.bytes < rule.min_median_bytes) & has_few_rows
    return tiny


def copy_affinity(files: Files, rule: CopyRule = DEFAULT_RULE) -> Integers:
    """Return a number for each file: files of one number above 0 can be copied together.

    Packing them apart from files that must be recoded keeps most bytes from being decoded.
    """
    groups, count = files.survey.row_groups, len(files)
    median_bytes = medians_by_owner(groups.bytes, groups.owner, count)
    median_rows = medians_by_owner(groups.rows, groups.owner, count)
    healthy = (median_bytes >= rule.min_median_bytes) | (median_rows >= rule.min_median_rows)
    crumb_rows = sum_by_owner(groups.rows * groups.are_crumbs(_MIB), groups.owner, count)
    healthy &= crumb_rows <= rule.max_crumb_row_ratio * files.survey.rows
    copyable: Flags = healthy & ~files.has_deleted_rows & (files.survey.copy_class >= 0)
    return np.where(copyable, files.survey.copy_class + 1, 0)
