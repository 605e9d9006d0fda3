"""How healthy a table is: 100 points, minus what each finding costs, and never below 0.

| finding | costs at most | full cost is reached when |
|---|---|---|
| damaged files | 100 | one of the files that are checked is missing or damaged |
| small files | 50 | compaction would save every file |
| deleted rows | 20 | a quarter of the rows in the files is deleted |
| checkpoint overdue | 20 | ten intervals of commits have to be replayed |
| checkpoint old | 10 | one is overdue, and the oldest commit to replay is 30 days old |
| orphans | 10 | files that no version needs take as much space as those of the newest |
| no row counts | 10 | no file says how many rows it has |
| overlap | 20 | 16 files lie over one another on average, in columns it is clustered by |

Each cost grows in proportion. A finding that costs less than a point is not reported. Files, the
age of a checkpoint and the overlap are looked at by `health` only, orphans only by
`health --orphans`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Health", "Measures", "Reason", "assess_health"]

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
    """One finding: a stable code, what it costs, and a sentence."""

    #: Stable name of the finding.
    code: str
    #: What the finding costs.
    points: int
    #: The finding in words.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """A score from 0 to 100, and what keeps it from being 100, worst first."""

    #: From 0 to 100.
    score: int
    #: What keeps the score from being 100, worst first.
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """The numbers that health is computed from."""

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
    #: Age of the oldest commit that no checkpoint covers; None: there is none, or nobody looked.
    uncovered_age: timedelta | None = None
    #: Size of files that no version needs; None: nobody looked.
    orphan_bytes: int | None = None
    #: How many files lie over one another on average in the columns that the table says its rows
    #: are ordered by; None: it says nothing, or nobody looked.
    overlap_depth: float | None = None
    #: Files that storage was asked for, and what is wrong with each that is damaged.
    files_checked: int = 0
    damage: tuple[str, ...] = ()

    @property
    def excess_file_ratio(self) -> float:
        """Part of the files that compaction would save."""
        return self.excess_file_count / max(self.file_count, 1)

    @property
    def deleted_row_ratio(self) -> float:
        """Part of the rows in the files that is deleted."""
        return min(1.0, self.deleted_rows / max(self.physical_rows, 1))

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether so many commits have to be replayed that a checkpoint pays."""
        return self.commits_since_checkpoint >= self.checkpoint_interval

    @property
    def overdue_age(self) -> timedelta:
        """How long a checkpoint has been wanting; 0 as long as none is due."""
        return (self.is_checkpoint_due and self.uncovered_age) or timedelta(0)


def assess_health(measures: Measures) -> Health:
    """Apply every rule and take what it costs off the full score."""
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
            f"{format_bytes(measures.orphan_bytes)} in files that no version needs, beside "
            f"{format_bytes(measures.total_bytes)} in the newest"
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
            "without statistics: queries cannot skip what they do not know"
        ),
    )


def _overlap(measures: Measures) -> Reason | None:
    if measures.overlap_depth is None or measures.overlap_depth <= 1:
        return None
    # A file alone is one deep, and that is as good as it gets.
    part = (measures.overlap_depth - 1) / (_OVERLAP_WORST - 1)
    return Reason(
        code="overlap",
        points=round(_OVERLAP_COST * min(1, part)),
        message=(
            f"{measures.overlap_depth:,.1f} files lie over one another on average in the columns"
            " that the table is clustered by"
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
