"""The health score: 100 points, minus the penalty of each problem, and never below 0.

| problem | maximum penalty | reached when |
|---|---|---|
| damaged files | 100 | one of the checked files is missing or damaged |
| small files | 50 | compaction would remove every file |
| deleted rows | 20 | a quarter of the rows in the files is deleted |
| checkpoint overdue | 20 | ten checkpoint intervals of commits have to be replayed |
| checkpoint old | 10 | one is overdue, and the oldest commit to replay is 30 days old |
| orphans | 10 | unreferenced files take as much space as the latest version |
| no row counts | 10 | no file has a recorded row count |
| overlap | 20 | average overlap depth of 16 in the clustering columns |

Each penalty grows in proportion. A penalty below one point is not reported. Files, the age of a
checkpoint and the overlap are checked by `health` only, orphans only by `health --orphans`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

_FULL_SCORE = 100
_SMALL_FILES_COST = 50
_DELETED_ROWS_COST = 20
_DELETED_ROWS_WORST = 0.25
_CHECKPOINT_COST = 20
_CHECKPOINT_WORST_INTERVALS = 10
_CHECKPOINT_AGE_COST = 10
_CHECKPOINT_WORST_AGE = timedelta(days=30)
_ORPHANS_COST = 10
_NO_ROW_COUNTS_COST = 10
_OVERLAP_COST = 20
_OVERLAP_WORST = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One problem: a stable code, its penalty, and a message."""

    #: Stable name of the problem.
    code: str
    #: Penalty in points.
    points: int
    #: The problem as text.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """A score from 0 to 100, and what lowers it, worst first."""

    #: From 0 to 100.
    score: int
    #: What lowers the score, worst first.
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """The numbers from which health is computed."""

    file_count: int
    small_file_count: int
    excess_file_count: int
    deleted_rows: int
    physical_rows: int
    files_without_rows: int
    commits_since_checkpoint: int
    checkpoint_interval: int
    small_file_bytes: int
    total_bytes: int
    #: Age of the oldest commit after the last checkpoint; None: there is none, or not checked.
    uncovered_age: timedelta | None = None
    #: Files that an automatic compaction would save: it leaves partitions with few small files,
    #: and files that are too new.
    automatic_excess_file_count: int = 0
    #: Size of unreferenced files; None: not checked.
    orphan_bytes: int | None = None
    #: Average overlap depth in the table's clustering columns; None: it has none, or not checked.
    overlap_depth: float | None = None
    #: Files checked in storage, and the problem of each damaged one.
    files_checked: int = 0
    damage: tuple[str, ...] = ()

    @property
    def excess_file_ratio(self) -> float:
        """Fraction of the files that compaction would remove."""
        return self.excess_file_count / max(self.file_count, 1)

    @property
    def deleted_row_ratio(self) -> float:
        """Fraction of deleted rows in the files."""
        return min(1.0, self.deleted_rows / max(self.physical_rows, 1))

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a checkpoint is due."""
        return self.commits_since_checkpoint >= self.checkpoint_interval

    @property
    def overdue_age(self) -> timedelta:
        """How long a checkpoint has been overdue; 0 if none is due."""
        return (self.is_checkpoint_due and self.uncovered_age) or timedelta(0)


def assess_health(measures: Measures) -> Health:
    """Apply every rule and subtract its penalty from the full score."""
    found = [reason for rule in RULES if (reason := rule(measures)) and reason.points >= 1]
    found.sort(key=lambda reason: -reason.points)
    return Health(
        score=max(0, _FULL_SCORE - sum(reason.points for reason in found)),
        reasons=tuple(found),
    )


def _small_files(measures: Measures) -> Reason | None:
    if not measures.excess_file_count:
        return None
    small = format_count(measures.small_file_count, "file")
    limit = format_bytes(measures.small_file_bytes)
    verb = "is" if measures.small_file_count == 1 else "are"
    return Reason(
        code="small_files",
        points=round(_SMALL_FILES_COST * measures.excess_file_ratio),
        message=(
            f"{small} of {measures.file_count:,} {verb} smaller than {limit}; "
            f"compaction would save {measures.excess_file_count:,}"
        ),
    )


def _deleted_rows(measures: Measures) -> Reason | None:
    if not measures.deleted_rows or not measures.physical_rows:
        return None
    part = measures.deleted_row_ratio
    return Reason(
        code="deleted_rows",
        points=round(_DELETED_ROWS_COST * min(1, part / _DELETED_ROWS_WORST)),
        message=(
            f"{part:.1%} of the rows in the files are deleted and still read "
            f"({measures.deleted_rows:,} of {measures.physical_rows:,})"
        ),
    )


def _checkpoint_overdue(measures: Measures) -> Reason | None:
    if not measures.is_checkpoint_due:
        return None
    intervals = measures.commits_since_checkpoint / measures.checkpoint_interval
    commits = format_count(measures.commits_since_checkpoint, "commit")
    return Reason(
        code="checkpoint_overdue",
        points=round(_CHECKPOINT_COST * min(1, intervals / _CHECKPOINT_WORST_INTERVALS)),
        message=(
            f"{commits} to replay whenever the table is opened; "
            f"a checkpoint is due every {measures.checkpoint_interval}"
        ),
    )


def _checkpoint_old(measures: Measures) -> Reason | None:
    if not measures.overdue_age:
        return None
    return Reason(
        code="checkpoint_old",
        points=round(_CHECKPOINT_AGE_COST * min(1, measures.overdue_age / _CHECKPOINT_WORST_AGE)),
        message=(
            f"commits of the last {format_duration(measures.overdue_age)} are in no checkpoint"
        ),
    )


def _orphans(measures: Measures) -> Reason | None:
    if not measures.orphan_bytes:
        return None
    part = measures.orphan_bytes / max(measures.total_bytes, 1)
    return Reason(
        code="orphans",
        points=round(_ORPHANS_COST * min(1, part)),
        message=(
            f"{format_bytes(measures.orphan_bytes)} in unreferenced files, compared with "
            f"{format_bytes(measures.total_bytes)} in the latest version"
        ),
    )


def _no_row_counts(measures: Measures) -> Reason | None:
    if not measures.files_without_rows:
        return None
    part = measures.files_without_rows / measures.file_count
    return Reason(
        code="no_row_counts",
        points=round(_NO_ROW_COUNTS_COST * part),
        message=(
            f"{format_count(measures.files_without_rows, 'file')} of {measures.file_count:,} "
            "without statistics, so queries cannot skip them"
        ),
    )


def _overlap(measures: Measures) -> Reason | None:
    if measures.overlap_depth is None or measures.overlap_depth <= 1:
        return None
    # The depth of a file without overlap is 1.
    part = (measures.overlap_depth - 1) / (_OVERLAP_WORST - 1)
    return Reason(
        code="overlap",
        points=round(_OVERLAP_COST * min(1, part)),
        message=(
            f"average overlap depth of {measures.overlap_depth:,.1f} files in the clustering"
            " columns"
        ),
    )


def _damaged_files(measures: Measures) -> Reason | None:
    if not measures.damage:
        return None
    return Reason(
        code="damaged_files",
        points=_FULL_SCORE,
        message=(
            f"{len(measures.damage):,} of {format_count(measures.files_checked, 'file')} checked"
            f" (of {measures.file_count:,}) are missing or damaged: {measures.damage[0]};"
            " `lakehand verify` lists all"
        ),
    )


RULES: tuple[Callable[[Measures], Reason | None], ...] = (
    _damaged_files,
    _small_files,
    _deleted_rows,
    _checkpoint_overdue,
    _checkpoint_old,
    _orphans,
    _no_row_counts,
    _overlap,
)
