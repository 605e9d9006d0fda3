"""Thresholds and limits of a plan, and the reasons for every file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from lakehand.model.work import Strategy
    from lakehand.settings import Settings

#: Files may be this much smaller than forecast. A size near a threshold counts as below it, so that
#: a second run finds nothing to do.
_SHRINKAGE = 0.09

#: Row groups below both limits cost more to locate than to read.
_TINY_GROUP_BYTES = 2**20
TINY_GROUP_ROWS = 20_000
#: Row groups of a rewritten file, except the last, have at least this fraction of the target.
_ROW_GROUPS_PER_TARGET = 16
#: Written files deviate by up to a tenth from the target: they must not count as small again.
_MAX_SMALL_FILE_RATIO = 0.9


def automatic_min_files(settings: Settings) -> int:
    """Return how many small files a partition must have for an automatic run."""
    is_given = settings.sources["min_files"] != "default"
    return settings.min_files if is_given else settings.automatic_min_files


def small_file_ratio(settings: Settings) -> float:
    """Return the fraction of the target size below which a file is small."""
    if settings.small_file_bytes is None:
        return settings.small_file_ratio
    return min(_MAX_SMALL_FILE_RATIO, settings.small_file_bytes / settings.target_file_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionPolicy:
    """The settings that determine a plan. Fields have the names of the settings."""

    #: Target size of new files.
    target_file_bytes: int
    #: A file is small below this fraction of the target.
    small_file_ratio: float = 0.5
    #: A file is rewritten if more than this fraction of its rows is deleted.
    deleted_row_ratio: float = 0.05
    #: A file is oversized above this many times the target.
    oversized_file_ratio: float = 10.0
    #: Fewer small files than this in a partition are not compacted; other reasons have no minimum.
    min_files: int = 4
    #: How files are grouped: for a clustered table always `greedy`, in its order.
    strategy: Strategy = "greedy"
    #: Limits of the run; null: none. Likewise the next two.
    max_bytes_per_run: int | None = None
    #: Limit of files.
    max_files_per_run: int | None = None
    #: Limit of groups.
    max_groups_per_run: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, *, automatic: bool = False) -> Self:
        """Return the policy of settings; an automatic run waits for more files."""
        values = {field.name: settings[field.name] for field in fields(cls)}
        values["small_file_ratio"] = small_file_ratio(settings)
        if automatic:
            values["min_files"] = automatic_min_files(settings)
        return cls(**values)

    @property
    def small_file_bytes(self) -> float:
        return self.target_file_bytes * self.small_file_ratio

    @property
    def nearly_small_bytes(self) -> float:
        """Below this a rewritten file may turn out to be small."""
        return self.small_file_bytes / (1 - _SHRINKAGE)

    @property
    def fullest_group_bytes(self) -> int:
        """Up to this size a group may be filled to avoid leaving a small file."""
        return int(self.target_file_bytes / (1 - _SHRINKAGE))

    @property
    def oversized_file_bytes(self) -> float:
        return self.target_file_bytes * self.oversized_file_ratio

    @property
    def smallest_written_row_group_bytes(self) -> float:
        """Rewrites make no row groups below this, so none is done for the sake of larger ones."""
        return self.target_file_bytes / _ROW_GROUPS_PER_TARGET

    @property
    def tiny_group_bytes(self) -> float:
        """A row group below this, and below `TINY_GROUP_ROWS`, is tiny."""
        return min(_TINY_GROUP_BYTES, self.smallest_written_row_group_bytes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


if TYPE_CHECKING:
    ReasonCodes = NDArray[np.int8]


class Reason(StrEnum):
    """The values are stable: they are part of plans and reports."""

    #: Chosen: smaller than `small_file_ratio` of the target size.
    SMALL = "small"
    #: Chosen: too many of its rows are deleted.
    WORN = "worn"
    #: Chosen: far above the target size, to be split.
    OVERSIZED = "oversized"
    #: Chosen: too many rows in tiny row groups.
    SMALL_ROW_GROUPS = "small_row_groups"
    #: Chosen: its rows were never clustered.
    UNORDERED = "unordered"
    #: Chosen: too many files overlap it.
    OVERLAPPING = "overlapping"
    #: Chosen: all files were requested.
    ASKED_FOR = "asked_for"
    #: Left: clustered, with little overlap.
    IN_ORDER = "in_order"
    #: Left: clustered by another order than the requested one.
    OTHER_ORDER = "other_order"
    #: Left: large enough, and without a need for a rewrite.
    LARGE_ENOUGH = "large_enough"
    #: Left: small, but its partition has too few such files.
    BELOW_MINIMUM_FILES = "below_minimum_files"
    #: Left: small, but no other file can be combined with it.
    SINGLE_FILE = "single_file"
    #: Left: worth rewriting, but the limits of the run are reached.
    LATER_RUN = "later_run"
    #: Left: not selected by the predicate.
    OUTSIDE_PREDICATE = "outside_predicate"
    #: Left: excluded by the caller's file_filter.
    OUTSIDE_FILTER = "outside_filter"
    #: Left: its partition has recent writes.
    RECENTLY_WRITTEN = "recently_written"
    #: Left: the run is automatic, and the table disables automatic runs.
    DISABLED = "disabled"
    #: Left: an earlier run that died has rewritten it, and this run commits that.
    ADOPTED = "adopted"
    #: Left: another running operation is rewriting it.
    BEING_REWRITTEN = "being_rewritten"
    #: Left: worth rewriting, but too large for the limits of any run.
    ABOVE_CAP = "above_cap"


CHOSEN = (
    Reason.SMALL,
    Reason.WORN,
    Reason.OVERSIZED,
    Reason.SMALL_ROW_GROUPS,
    Reason.UNORDERED,
    Reason.OVERLAPPING,
    Reason.ASKED_FOR,
)
LEFT = tuple(reason for reason in Reason if reason not in CHOSEN)
#: The same as text.
_CHOSEN_DESCRIPTIONS: Mapping[str, str] = {
    Reason.WORN: "with too many deleted rows",
    Reason.OVERSIZED: "far above the target size",
    Reason.SMALL_ROW_GROUPS: "with very small row groups",
    Reason.UNORDERED: "not clustered yet",
    Reason.OVERLAPPING: "with too much overlap",
    Reason.ASKED_FOR: "requested",
}
LEFT_DESCRIPTIONS: Mapping[str, str] = {
    Reason.LARGE_ENOUGH: "large enough, no rewrite needed",
    Reason.BELOW_MINIMUM_FILES: "small, but too few in their partition",
    Reason.SINGLE_FILE: "small, but no other file to combine with",
    Reason.LATER_RUN: "beyond the limits of this run",
    Reason.ABOVE_CAP: "too large for max_bytes_per_run or max_files_per_run",
    Reason.OUTSIDE_PREDICATE: "not selected by the predicate",
    Reason.OUTSIDE_FILTER: "excluded by file_filter",
    Reason.RECENTLY_WRITTEN: "in partitions with recent writes",
    Reason.ADOPTED: "rewritten by an earlier run that died, and committed now",
    Reason.BEING_REWRITTEN: "being rewritten by another run",
    Reason.IN_ORDER: "clustered, with little overlap",
    Reason.OTHER_ORDER: "clustered by another order; use --full to include them",
    Reason.DISABLED: "auto_compact is off; `lakehand settings TABLE` shows where it is set",
}
_CODES = {reason: code for code, reason in enumerate(Reason)}


def describe_chosen(reason: str, count: int) -> str:
    """Return the number of files chosen for a reason, as text.

    >>> describe_chosen("small", 1800), describe_chosen("worn", 1)
    ('1,800 small files', '1 file with too many deleted rows')
    """
    if reason == Reason.SMALL:
        return format_count(count, "small file")
    return f"{format_count(count, 'file')} {_CHOSEN_DESCRIPTIONS.get(reason, reason)}"


def code_of(reason: Reason) -> int:
    """Return the number of `reason` in arrays."""
    return _CODES[reason]


def reason_column(codes: ReasonCodes) -> pa.DictionaryArray:
    """Return the reasons as a column for the table of files."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([str(r) for r in Reason]))


def count_reasons(codes: ReasonCodes, reasons: Iterable[Reason]) -> Mapping[str, int]:
    """Count the files of each of `reasons`, without those that apply to no file."""
    counts = np.bincount(codes, minlength=len(_CODES))
    return {str(r): int(counts[_CODES[r]]) for r in reasons if counts[_CODES[r]]}
