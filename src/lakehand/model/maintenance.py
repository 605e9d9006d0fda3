"""What came of looking after a table. Fields have the names of the JSON document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.reports import CheckpointReport, OperationReport
    from lakehand.model.retention import VacuumReport
    from lakehand.model.upkeep import LogCleanupReport

    StepReport = OperationReport | VacuumReport | CheckpointReport | LogCleanupReport

__all__ = ["MaintenanceOutcome", "MaintenanceReport", "MaintenanceStep", "StepOutcome"]

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
        within = getattr(self.report, "errors", ())
        return tuple({"step": self.step, **error} for error in (*own, *within))


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceReport:
    """What was due on a table, and what was done about it."""

    #: The verb.
    operation: str = "maintain"
    #: `committed`: some step changed something; `failed`: none did, and some step failed;
    #: `nothing_to_do`; `dry_run`.
    outcome: MaintenanceOutcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version that was seen or made.
    version: int
    #: Every step, in the order in which they were taken.
    steps: tuple[MaintenanceStep, ...]
    #: Whether nothing was changed.
    dry_run: bool
    #: What went wrong in any step, each with the name of the `step`; the others were taken.
    errors: tuple[Mapping[str, Any], ...]
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand maintain --json` prints."""
        return asdict(self)
