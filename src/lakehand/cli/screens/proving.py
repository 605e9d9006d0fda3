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
