"""Reports of log maintenance, `maintain` and `purge`. Fields are those of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakehand.errors import EXIT_FAILED, error_from_json
from lakehand.model.reports import CheckpointReport, OperationReport, Outcome, Report

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from lakehand.model.retention import VacuumReport

#: The steps of `maintain`, by their verbs. A table is either compacted or clustered.
MAINTENANCE_STEPS = ("compact", "cluster", "vacuum", "checkpoint", "clean_logs")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraRetention:
    """What must stay readable beyond the table's own retention."""

    #: Number of latest versions.
    versions: int = 0
    #: Number of latest checkpoints.
    checkpoints: int = 0
    #: These versions, whatever their age.
    pinned_versions: Collection[int] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanup:
    """What was, or would be, deleted from a log."""

    #: Latest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may be deleted.
    cutoff: datetime
    #: Why nothing more is deleted; null if only the retention decides.
    reason: str | None = None
    #: Objects that were, or would be, deleted, in this order.
    files: tuple[str, ...] = ()
    #: Their size.
    bytes: int = 0
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanupReport(Report):
    """Report of a log cleanup."""

    #: The operation.
    operation: str = "clean_logs"
    #: `committed`: something was deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: Latest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may be deleted, ISO 8601.
    cutoff: str
    #: Why nothing more is deleted; null if only the retention decides.
    reason: str | None
    #: Objects that were deleted, or in a dry run would be.
    files: tuple[str, ...]
    #: Number of these objects.
    files_deleted: int
    #: Their size.
    bytes_freed: int
    #: Whether incomplete uploads are visible in this store. False for object stores: use a
    #: lifecycle rule of the bucket to abort them.
    sees_unfinished_uploads: bool
    #: Whether nothing was changed.
    dry_run: bool
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Duration of the call.
    duration_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport(Report):
    """Report of a restore."""

    #: The operation.
    operation: str = "restore"
    #: `committed`; `nothing_to_do`: the table has this content already; `dry_run`.
    outcome: Outcome
    #: The latest version now.
    version: int
    #: The version that was restored.
    restored_version: int
    #: Files added back to the table.
    files_restored: int
    #: Their size.
    bytes_restored: int
    #: Files removed from the table.
    files_removed: int
    #: Their size.
    bytes_removed: int
    #: Whether the schema or properties were restored as well.
    metadata_restored: bool
    #: Duration of the call.
    duration_ms: float


if TYPE_CHECKING:
    StepReport = OperationReport | VacuumReport | CheckpointReport | LogCleanupReport

MaintenanceOutcome = Literal["committed", "nothing_to_do", "dry_run", "failed"]
StepOutcome = Literal["committed", "nothing_to_do", "dry_run", "failed", "left_out"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceStep:
    """One maintenance step and its result."""

    #: The operation: `compact` or `cluster`, `vacuum`, `checkpoint`, `clean_logs`.
    step: str
    #: `committed`: something was done; `nothing_to_do`; `dry_run`; `failed`; `left_out`: the format
    #: does not support it, or the caller skips it.
    outcome: StepOutcome
    #: Whether the step was due; null if not checked, or if the step failed.
    is_due: bool | None = None
    #: Why it was due, or why not.
    reason: str
    #: What was left for later, and why.
    left: tuple[str, ...] = ()
    #: The report of the operation; null if it did not run, or raised an error.
    report: StepReport | None = None
    #: Why the step failed; null if it did not, or if its report has the errors.
    error: Mapping[str, Any] | None = None

    @property
    def errors(self) -> tuple[Mapping[str, Any], ...]:
        """All errors of the step, each with its name."""
        own = (self.error,) if self.error is not None else ()
        within = self.report.errors if self.report is not None else ()
        return tuple({"step": self.step, **error} for error in (*own, *within))


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceReport(Report):
    """Report of `maintain`: which steps were due, and their results."""

    #: The operation.
    operation: str = "maintain"
    #: `committed`: a step changed something; `failed`: no step did, and a step failed;
    #: `nothing_to_do`; `dry_run`.
    outcome: MaintenanceOutcome
    #: The latest version seen or committed.
    version: int
    #: All steps, in the order in which they ran.
    steps: tuple[MaintenanceStep, ...]
    #: Whether nothing was changed.
    dry_run: bool
    #: Whether work was left for another call, because this one was asked to end.
    stopped_early: bool = False
    #: Errors of all steps, each with the name of the `step`; the other steps ran.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Duration of the call.
    duration_ms: float

    @property
    def exit_code(self) -> int:
        """The exit code of the failed steps, if they agree, and 1 if they do not."""
        if not self.errors:
            return 0
        failed = [step.error for step in self.steps if step.error is not None]
        codes = {error_from_json(error).exit_code for error in failed}
        # Errors within a step that ran have no code.
        is_more = len(self.errors) > len(failed)
        return codes.pop() if len(codes) == 1 and not is_more else EXIT_FAILED


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """A location that still holds deleted data, or values of it."""

    #: Stable name of the kind of location.
    code: str
    #: What it holds, and what removes it.
    message: str
    #: When a purge can remove it; null if not known.
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OldValues:
    """What the history of a table holds beyond its latest version."""

    #: Latest version that removed rows or columns; None if the history has none.
    version: int | None
    #: When it was committed; without a version: when the last files that the history still lists
    #: were removed.
    at: datetime | None
    #: Whether the log itself, apart from data files, holds removed values.
    in_history: bool
    #: When the last of it can be deleted; None if not known.
    history_gone_at: datetime | None = None
    #: Why that is not known.
    reason: str | None = None
    #: Indices that hold values of deleted rows.
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeReport(Report):
    """Report of a purge: what was rewritten, quarantined and deleted, and what remains."""

    #: The operation.
    operation: str = "purge"
    #: `committed`: something was rewritten, quarantined or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: The latest version after the purge.
    version: int
    #: Files with deleted rows or dropped columns that were rewritten; in a dry run: would be.
    files_rewritten: int
    #: Deleted rows that are still in files of the latest version.
    deleted_row_count: int
    #: Files of the latest version that still hold dropped columns.
    files_with_dropped_columns: int
    #: Files quarantined now, until their grace period ends. In a dry run: would be.
    files_quarantined: int
    #: Files deleted now. In a dry run: would be.
    files_deleted: int
    #: Log files deleted now. In a dry run: would be.
    log_files_deleted: int
    #: Id of the quarantine that was started now; null if none was.
    quarantine_id: str | None = None
    #: When vacuum can delete the last data file that holds deleted data; null if it is deleted, or
    #: if the time is not known.
    gone_at: datetime | None = None
    #: When the last values of such files can be deleted from the log; null as above.
    log_gone_at: datetime | None = None
    #: Every location that still holds deleted data, or values of it.
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
        locations = [
            location | {"until": _iso(location["until"])} for location in document["remaining"]
        ]
        return document | {"remaining": locations}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
