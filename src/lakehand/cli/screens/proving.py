"""What became of statistics, and of proofs that were checked again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.cli.screens.reasons import figures_grid
from lakehand.model.quantities import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from lakehand.model.reports import StatisticsReport
    from lakehand.model.verification import ProofCheck, Verification


def statistics_screen(report: StatisticsReport) -> Iterable[RenderableType]:
    """Show what was computed, in a few lines."""
    yield Text(f"{report.operation}: {_outcome_words(report)}", style="bold")
    yield figures_grid(_figures(report))
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _outcome_words(report: StatisticsReport) -> str:
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": "nothing to do",
        "dry_run": "nothing was written",
    }[report.outcome]


def _figures(report: StatisticsReport) -> Iterator[tuple[str, str]]:
    yield "files", f"{format_count(report.files_chosen, 'file')} of {report.files_before:,} chosen"
    words = {
        "computed": report.files_refreshed,
        "right already": report.files_unchanged,
        "lost to concurrent writers": report.files_dropped,
        "left for a later run": report.files_remaining,
    }
    for what, count in words.items():
        if count:
            yield "", f"{count:,} {what}"
    if report.rows_read:
        took = format_duration(timedelta(milliseconds=report.duration_ms))
        yield "took", f"{took}, {report.rows_read:,} rows read"


_AGREEMENT_WORDS = {
    "equal": "rows are equal",
    "differs": "ROWS DIFFER",
    "cannot_compare": "nothing can be compared",
}


def verification_screen(report: Verification) -> Iterable[RenderableType]:
    """Show every commit that was checked, and what came of it."""
    yield Text(f"{report.operation}: {_AGREEMENT_WORDS[report.outcome]}", style="bold")
    if not report.proofs:
        yield Text("  no commit in the log carries a proof")
    for check in report.proofs:
        yield figures_grid(_check_figures(check))
    yield Text(f"  took {format_duration(timedelta(milliseconds=report.duration_ms))}")


def _check_figures(check: ProofCheck) -> Iterator[tuple[str, str]]:
    yield f"version {check.version:,}", f"{_AGREEMENT_WORDS[check.outcome]}: {check.message}"
    if check.inputs is not None and check.outputs is not None:
        inputs, outputs = (
            format_count(side.files, "file") for side in (check.inputs, check.outputs)
        )
        yield "", f"{inputs} replaced by {outputs}"
    if check.matches_record is not None:
        answer = "matches" if check.matches_record else "does not match"
        yield "", f"the proof in the commit {answer}"
