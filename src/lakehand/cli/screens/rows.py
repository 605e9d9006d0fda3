"""Which rows went, and what that meant for files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.cli.screens.words import figures_grid, time_words
from lakehand.model.quantities import format_bytes, format_count
from lakehand.model.row_reports import DeduplicationReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.model.row_reports import DeletionReport


def deletion_screen(report: DeletionReport) -> Iterable[RenderableType]:
    """Show how many rows went, and the evidence that no others did."""
    yield Text(f"{report.operation}: {_outcome_words(report)}", style="bold")
    yield figures_grid(list(_figures(report)))


def _outcome_words(report: DeletionReport) -> str:
    rows = format_count(report.rows_removed, "row")
    return {
        "committed": f"{rows} removed in version {report.version:,}",
        "nothing_to_do": f"nothing to do{_rival(report)}",
        "dry_run": f"{rows} would be removed; nothing was written",
    }[report.outcome]


def _rival(report: DeletionReport) -> str:
    runs = report.left_to_runs if isinstance(report, DeduplicationReport) else ()
    return f": being deduplicated by run {', '.join(runs)}" if runs else ""


def _figures(report: DeletionReport) -> Iterable[tuple[str, str]]:
    if report.rows_before is not None:
        yield "rows", f"{report.rows_before:,} → {report.rows_after:,}"
    if isinstance(report, DeduplicationReport) and report.duplicate_distribution:
        keys = format_count(sum(report.duplicate_distribution.values()), "key")
        most = f"{report.max_duplicates_per_key:,} at most"
        yield "duplicates", f"{keys} with more than one row, {most}"
    if report.outcome == "committed":
        yield "files", ", ".join(_files(report)) or "none touched"
        before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
        yield "size", f"{before} → {after}"
        yield from _evidence(report)
    yield "took", time_words(report.duration_ms, report.ran_on)


def _files(report: DeletionReport) -> Iterable[str]:
    if report.files_marked:
        yield f"{report.files_marked:,} with rows hidden"
    if report.files_added:
        yield f"{report.files_added:,} written anew"
    if dropped := report.files_removed - report.files_added:
        yield f"{dropped:,} dropped"
    if report.change_files_added:
        yield f"{report.change_files_added:,} written for the change feed"


def _evidence(report: DeletionReport) -> Iterable[tuple[str, str]]:
    if report.proof is None:
        yield "proof", "none needed: no file was written anew"
    elif report.proof.kind == "counts":
        yield "proof", f"{format_count(report.proof.rows, 'row')} left, counted but not compared"
    elif report.proof.kind == "positions":
        left = format_count(report.proof.rows, "row")
        yield "proof", f"{left} left in these files: vectors, read back, hide the deleted rows only"
    else:
        left = format_count(report.proof.rows, "row")
        yield "proof", f"{left} left in these files, proved equal, read back from storage"
