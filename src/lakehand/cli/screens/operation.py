"""What an operation did. Meaning never depends on colour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.model.reports import OperationReport


def operation_screen(report: OperationReport) -> Iterable[RenderableType]:
    """Show what an operation did, and the evidence that it changed no row."""
    yield Text(f"{report.operation}: {_outcome_words(report)}", style="bold")
    for row in _operation_rows(report):
        yield Text(f"  {row}")
    for reason, count in report.files_left.items():
        yield Text(f"  {format_count(count, 'file')} left alone: {reason}", style="dim")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _outcome_words(report: OperationReport) -> str:
    groups = format_count(report.groups.planned, "group")
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": "nothing to do",
        "dry_run": f"{groups} of files would be rewritten; nothing was written",
    }[report.outcome]


def _operation_rows(report: OperationReport) -> Iterable[str]:
    if report.outcome != "committed":
        return
    before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
    yield f"{report.files_before:,} files became {report.files_after:,}, {before} became {after}"
    if report.groups.dropped:
        yield f"{format_count(report.groups.dropped, 'group')} lost to concurrent writers"
    if report.proof is not None:
        yield f"{report.proof.rows:,} rows read and written, proved equal by {report.proof.kind}"
    yield f"took {format_duration(timedelta(milliseconds=report.duration_ms))}"
