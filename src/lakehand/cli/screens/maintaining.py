"""What was due on a table, and what became of it: a few words a step."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.screens.log import checkpoint_words
from lakehand.cli.screens.retention import vacuum_words
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.model.reports import CheckpointReport, OperationReport
from lakehand.model.retention import VacuumReport
from lakehand.model.upkeep import LogCleanupReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from lakehand.model.maintenance import MaintenanceReport, MaintenanceStep

#: What is said of each outcome, and in which colour.
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "committed": ("done", "green"),
    "nothing_to_do": ("nothing to do", "dim"),
    "dry_run": ("due", "yellow"),
    "failed": ("failed", "red"),
    "left_out": ("left out", "dim"),
}


def maintenance_screen(report: MaintenanceReport) -> Iterable[RenderableType]:
    """Show every step: whether it was due, why, what it did and what it left."""
    yield Text(report.table, style="bold", overflow="fold")
    yield Text(f"maintain: {_headline(report)}")
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(min_width=0)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for step in report.steps:
        words, style = _OUTCOMES[step.outcome]
        lines = "\n".join(_lines(step))
        grid.add_row("", step.step.replace("_", "-"), Text(words, style=style), Text(lines))
    yield grid


def _headline(report: MaintenanceReport) -> str:
    failed = sum(1 for step in report.steps if step.outcome == "failed")
    parts = [_outcome_words(report)]
    if failed:
        parts.append(f"{format_count(failed, 'step')} failed")
    parts.append(f"took {format_duration(timedelta(milliseconds=report.duration_ms))}")
    return ", ".join(parts)


def _outcome_words(report: MaintenanceReport) -> str:
    if report.dry_run:
        due = sum(1 for step in report.steps if step.is_due)
        steps = format_count(due, "step") if due else "nothing"
        return f"{steps} due at version {report.version:,}; nothing was written"
    done = "done" if report.outcome == "committed" else "nothing done"
    return f"{done}, version {report.version:,}"


def _lines(step: MaintenanceStep) -> Iterator[str]:
    did = _did(step)
    if did:
        yield did
    yield f"because of {step.reason}" if did else step.reason
    for words in step.left:
        yield f"left: {words}"
    if step.error is not None and step.error.get("hint"):
        yield f"hint: {step.error['hint']}"
    for error in getattr(step.report, "errors", ()):
        yield f"failed: {error['message']}"


def _did(step: MaintenanceStep) -> str:
    """Say what a step did, or would do."""
    if not step.is_due:
        return ""
    match step.report:
        case OperationReport():
            return _rewrite_words(step.report)
        case VacuumReport():
            return vacuum_words(step.report)
        case CheckpointReport():
            return checkpoint_words(step.report)
        case LogCleanupReport():
            verb = "would go" if step.report.dry_run else "deleted"
            size = format_bytes(step.report.bytes_freed)
            return f"{format_count(step.report.files_deleted, 'file')} of the log {verb}, {size}"
    return ""


def _rewrite_words(report: OperationReport) -> str:
    if report.outcome == "dry_run":
        forecast = report.forecast
        cost = format_duration(timedelta(seconds=forecast.task_seconds))
        files = f"{forecast.files_before:,} → {forecast.files_after:,} files"
        return f"{files}, about {cost} of one core"
    before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
    files = f"{report.files_before:,} → {report.files_after:,} files, {before} → {after}"
    is_proved = report.proof is not None and report.proof.kind != "counts"
    return f"{files}; {report.rows_written:,} rows proved equal" if is_proved else files
