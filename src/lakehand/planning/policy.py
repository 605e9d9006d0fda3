"""What is worth rewriting, how much of it at once, and the reason for every file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from lakehand.model.work import Strategy
    from lakehand.settings import Settings

__all__ = [
    "CHOSEN",
    "CHOSEN_WORDS",
    "LEFT",
    "LEFT_WORDS",
    "CompactionPolicy",
    "Reason",
    "code_of",
    "count_reasons",
    "reason_column",
]


#: Files may come out this much below their forecast. What is near a limit counts as below it, so
#: that a second run finds nothing to do.
_SHRINKAGE = 0.09

#: Row groups below both limits cost more to find than to read.
_CRUMB_BYTES = 2**20
CRUMB_ROWS = 20_000
#: Row groups of a rewritten file are at least this part of the target, its last one apart.
_ROW_GROUPS_PER_TARGET = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionPolicy:
    """The settings that decide over a plan. Fields have the names of the settings."""

    #: Size that new files aim for.
    target_file_bytes: int
    #: A file is small below this part of the target.
    small_file_ratio: float = 0.5
    #: A file is worn when more than this part of its rows is deleted.
    deleted_row_ratio: float = 0.05
    #: A file is oversized above this many times the target.
    oversized_file_ratio: float = 10.0
    #: Fewer small files than this in a partition are left alone; other reasons know no minimum.
    min_files: int = 4
    #: How files were put together: in a clustered table always `greedy`, in its order.
    strategy: Strategy = "greedy"
    #: Caps of the run; null: none. Likewise the next two.
    max_bytes_per_run: int | None = None
    #: Cap on files.
    max_files_per_run: int | None = None
    #: Cap on groups.
    max_groups_per_run: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, *, automatic: bool = False) -> Self:
        """Take the policy from settings; a run that nobody asked for waits for more files."""
        values = {field.name: settings[field.name] for field in fields(cls)}
        if automatic and settings.sources["min_files"] == "default":
            values["min_files"] = settings.automatic_min_files
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
        """Up to this a group may be filled rather than leave a small file behind."""
        return int(self.target_file_bytes / (1 - _SHRINKAGE))

    @property
    def oversized_file_bytes(self) -> float:
        return self.target_file_bytes * self.oversized_file_ratio

    @property
    def smallest_written_row_group_bytes(self) -> float:
        """No rewrite makes row groups below this, so none is made for the sake of larger ones."""
        return self.target_file_bytes / _ROW_GROUPS_PER_TARGET

    @property
    def crumb_bytes(self) -> float:
        """A row group below this, and below `CRUMB_ROWS`, is a crumb."""
        return min(_CRUMB_BYTES, self.smallest_written_row_group_bytes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


if TYPE_CHECKING:
    ReasonCodes = NDArray[np.int8]


class Reason(StrEnum):
    """The values are stable: they stand in plans and reports."""

    #: Chosen: below the size at which a file is worth its request.
    SMALL = "small"
    #: Chosen: too many of its rows are deleted.
    WORN = "worn"
    #: Chosen: far above the target size, to be split.
    OVERSIZED = "oversized"
    #: Chosen: too many rows in row groups far below a healthy size.
    SMALL_ROW_GROUPS = "small_row_groups"
    #: Chosen: its rows were never put in order.
    UNORDERED = "unordered"
    #: Chosen: too many files lie over one another where it lies.
    OVERLAPPING = "overlapping"
    #: Chosen: all files were asked for.
    ASKED_FOR = "asked_for"
    #: Left: in order, and well apart from others.
    IN_ORDER = "in_order"
    #: Left: in another order than the one asked for.
    OTHER_ORDER = "other_order"
    #: Left: neither small nor in bad shape.
    LARGE_ENOUGH = "large_enough"
    #: Left: small, but its partition has too few such files.
    BELOW_MINIMUM_FILES = "below_minimum_files"
    #: Left: small, but no other file fits beside it.
    SINGLE_FILE = "single_file"
    #: Left: worth rewriting, but the caps of the run are reached.
    LATER_RUN = "later_run"
    #: Left: not among the files that the predicate asks for.
    OUTSIDE_PREDICATE = "outside_predicate"
    #: Left: taken out by the caller's own function over the files.
    OUTSIDE_FILTER = "outside_filter"
    #: Left: its partition is being written to.
    RECENTLY_WRITTEN = "recently_written"
    #: Left: the run is automatic, and the table wants none of these.
    DISABLED = "disabled"
    #: Left: an earlier run that died has rewritten it, and this run commits that.
    ADOPTED = "adopted"
    #: Left: another run that is at work is rewriting it.
    BEING_REWRITTEN = "being_rewritten"
    #: Left: worth rewriting, but too large for the caps of any run.
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
#: The same in words that need no glossary.
CHOSEN_WORDS: Mapping[str, str] = {
    Reason.SMALL: "that are small",
    Reason.WORN: "with too many deleted rows",
    Reason.OVERSIZED: "far above the target size",
    Reason.SMALL_ROW_GROUPS: "with row groups far below a healthy size",
    Reason.UNORDERED: "never put in order",
    Reason.OVERLAPPING: "where too many lie over one another",
    Reason.ASKED_FOR: "that were asked for",
}
LEFT_WORDS: Mapping[str, str] = {
    Reason.LARGE_ENOUGH: "large enough and in good shape",
    Reason.BELOW_MINIMUM_FILES: "small, but too few in their partition",
    Reason.SINGLE_FILE: "small, but without another to go with",
    Reason.LATER_RUN: "beyond the caps of this run",
    Reason.ABOVE_CAP: "too large for max_bytes_per_run or max_files_per_run",
    Reason.OUTSIDE_PREDICATE: "outside the predicate",
    Reason.OUTSIDE_FILTER: "taken out by file_filter",
    Reason.RECENTLY_WRITTEN: "in partitions written to a moment ago",
    Reason.ADOPTED: "rewritten before by a run that died, and committed now",
    Reason.BEING_REWRITTEN: "being rewritten by another run",
    Reason.IN_ORDER: "in order, and well apart from others",
    Reason.OTHER_ORDER: "in another order; --full takes them, too",
    Reason.DISABLED: "in a table that wants no automatic runs",
}
_CODES = {reason: code for code, reason in enumerate(Reason)}


def code_of(reason: Reason) -> int:
    """Return the number that stands for `reason` in arrays."""
    return _CODES[reason]


def reason_column(codes: ReasonCodes) -> pa.DictionaryArray:
    """Return the reasons as a column beside the table of files."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([str(r) for r in Reason]))


def count_reasons(codes: ReasonCodes, reasons: Iterable[Reason]) -> Mapping[str, int]:
    """Count the files of each of `reasons`; those that apply to no file are left out."""
    counts = np.bincount(codes, minlength=len(_CODES))
    return {str(r): int(counts[_CODES[r]]) for r in reasons if counts[_CODES[r]]}
