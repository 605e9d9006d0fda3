"""What log maintenance, `maintain` and `purge` report. Fields are those of the JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakehand.model.reports import Report

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from lakehand.model.reports import CheckpointReport, OperationReport, Outcome
    from lakehand.model.retention import VacuumReport

__all__ = [
    "MAINTENANCE_STEPS",
    "KeepWishes",
    "LogCleanup",
    "LogCleanupReport",
    "MaintenanceOutcome",
    "MaintenanceReport",
    "MaintenanceStep",
    "OldValues",
    "PurgeReport",
    "Remains",
    "RestoreReport",
    "StepOutcome",
]

#: The steps of `maintain`, by their verbs. A table is either compacted or clustered.
MAINTENANCE_STEPS = ("compact", "cluster", "vacuum", "checkpoint", "clean_logs")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepWishes:
    """What must stay readable beyond what the table itself asks for."""

    #: So many of the newest versions.
    versions: int = 0
    #: So many of the newest checkpoints.
    checkpoints: int = 0
    #: These, wherever they are.
    pinned_versions: Collection[int] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanup:
    """What of a log is, or would be, gone."""

    #: Newest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may go.
    cutoff: datetime
    #: Why nothing more goes; null where time alone decides.
    reason: str | None = None
    #: Objects that are gone, or would go, in the order in which they go.
    files: tuple[str, ...] = ()
    #: Their size.
    bytes: int = 0
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanupReport(Report):
    """What a cleanup of the log deleted."""

    #: The verb.
    operation: str = "clean_logs"
    #: `committed`: something was deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: Newest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may go, ISO 8601.
    cutoff: str
    #: Why nothing more goes; null where time alone decides.
    reason: str | None
    #: Objects that are gone, or in a dry run would go.
    files: tuple[str, ...]
    #: Number of these.
    files_deleted: int
    #: Their size.
    bytes_freed: int
    #: Whether uploads that were never finished would have been seen. False in object stores: there
    #: a rule of the bucket has to abort them.
    sees_unfinished_uploads: bool
    #: Whether nothing was changed.
    dry_run: bool
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: From the call to its end.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport(Report):
    """What it took to bring a table back to an earlier version."""

    #: The verb.
    operation: str = "restore"
    #: `committed`; `nothing_to_do`: the table is as it was; `dry_run`.
    outcome: Outcome
    #: The newest version now.
    version: int
    #: The version whose content the table has again.
    restored_version: int
    #: Files that came back.
    files_restored: int
    #: Their size.
    bytes_restored: int
    #: Files that left.
    files_removed: int
    #: Their size.
    bytes_removed: int
    #: Whether columns or properties were set back as well.
    metadata_restored: bool
    #: From the call to its end.
    duration_ms: float


if TYPE_CHECKING:
    StepReport = OperationReport | VacuumReport | CheckpointReport | LogCleanupReport

MaintenanceOutcome = Literal["committed", "nothing_to_do", "dry_run", "failed"]
StepOutcome = Literal["committed", "nothing_to_do", "dry_run", "failed", "left_out"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceStep:
    """One thing that a table may need, and what became of it."""

    #: The verb: `compact` or `cluster`, `vacuum`, `checkpoint`, `clean_logs`.
    step: str
    #: `committed`: something was done; `nothing_to_do`; `dry_run`; `failed`; `left_out`: the format
    #: has no such thing, or the caller does not want it.
    outcome: StepOutcome
    #: Whether there was something to do; null if nobody looked, or the step failed.
    is_due: bool | None = None
    #: Why it was due, or why not.
    reason: str
    #: What was left for later, and why.
    left: tuple[str, ...] = ()
    #: What the verb reports; null if it was not called, or ended with an error.
    report: StepReport | None = None
    #: Why the step failed; null if it did not, or if its report says what went wrong.
    error: Mapping[str, Any] | None = None

    @property
    def errors(self) -> tuple[Mapping[str, Any], ...]:
        """All that went wrong, each with the name of the step."""
        own = (self.error,) if self.error is not None else ()
        within = self.report.errors if self.report is not None else ()
        return tuple({"step": self.step, **error} for error in (*own, *within))


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceReport(Report):
    """What was due on a table, and what was done about it."""

    #: The verb.
    operation: str = "maintain"
    #: `committed`: some step changed something; `failed`: none did, and some step failed;
    #: `nothing_to_do`; `dry_run`.
    outcome: MaintenanceOutcome
    #: The newest version that was seen or made.
    version: int
    #: Every step, in the order in which they were taken.
    steps: tuple[MaintenanceStep, ...]
    #: Whether nothing was changed.
    dry_run: bool
    #: What went wrong in any step, each with the name of the `step`; the others were taken.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: From the call to its end.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """A place that still holds what was deleted, or values of it."""

    #: Stable name of the place.
    code: str
    #: What is there, and what removes it.
    message: str
    #: From when on a purge can remove it; null: not known.
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OldValues:
    """What the history of a table holds beyond its newest version."""

    #: Newest version that removed rows or columns; None: none that the history still has.
    version: int | None
    #: When it was committed; without a version: when the last files that the history still knows of
    #: were removed.
    at: datetime | None
    #: Whether the history itself, apart from data files, holds values that were removed.
    in_history: bool
    #: From when on the last of it can be deleted; None: not known.
    history_gone_at: datetime | None = None
    #: Why that is not known.
    reason: str | None = None
    #: Indices that hold values of deleted rows.
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeReport(Report):
    """What a purge rewrote, quarantined and deleted, and what is left."""

    #: The verb.
    operation: str = "purge"
    #: `committed`: something was rewritten, quarantined or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: The newest version after the purge.
    version: int
    #: Files with deleted rows or dropped columns that were rewritten; in a dry run: would be.
    files_rewritten: int
    #: Deleted rows that are still in files of the newest version.
    deleted_row_count: int
    #: Files of the newest version that still hold columns which the table has dropped.
    files_with_dropped_columns: int
    #: Files quarantined now, until their grace period ends. In a dry run: would be.
    files_quarantined: int
    #: Files deleted now. In a dry run: would be.
    files_deleted: int
    #: Log files deleted now. In a dry run: would be.
    log_files_deleted: int
    #: Id of the quarantine that was started now; null if none was.
    quarantine_id: str | None = None
    #: From when on vacuum can delete the last data file that holds what was deleted; null if it is
    #: deleted, or if the time is not known.
    gone_at: datetime | None = None
    #: From when on the last values of such files can be deleted from the log; null as above.
    log_gone_at: datetime | None = None
    #: Every place that still holds what was deleted, or values of it.
    remaining: tuple[Remains, ...] = ()
    #: Whether nothing was changed.
    dry_run: bool = False
    #: What could not be rewritten or deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Duration of the call.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand purge --json` prints."""
        moments = {"gone_at": self.gone_at, "log_gone_at": self.log_gone_at}
        document = asdict(self) | {name: _iso(at) for name, at in moments.items()}
        places = [place | {"until": _iso(place["until"])} for place in document["remaining"]]
        return document | {"remaining": places}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
