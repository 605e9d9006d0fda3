"""`lakehand delete`: delete the rows that match a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid, format_time
from lakehand.cli.shared_options import (
    dry_run_option,
    engine_options,
    open_for_command,
    prove_option,
    table_options,
)
from lakehand.model.quantities import format_bytes, format_count
from lakehand.model.reports import DeduplicationReport, MergeReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.model.reports import DeletionReport


@click.command()
@table_options
@click.option(
    "--where", required=True, metavar="PREDICATE", help="Condition, in SQL, on the rows to delete."
)
@dry_run_option
@prove_option
@engine_options
def delete(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Delete the rows of TABLE for which a condition is true.

    Files whose rows all match, as partition values or statistics show, are not read. The remaining
    rows of the others are proved equal before the commit.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.delete(**options)
    print_report(report, deletion_screen, as_json=as_json)


def deletion_screen(report: DeletionReport) -> Iterable[RenderableType]:
    """Show how many rows were deleted, and the proof that no others were."""
    yield Text(f"{report.operation}: {_describe_outcome(report)}", style="bold")
    yield figures_grid(list(_figures(report)))


def merge_screen(report: MergeReport) -> Iterable[RenderableType]:
    """Show what a merge changed, and the proof that no other rows were."""
    changed = (
        f"{format_count(report.rows_updated, 'row')} updated, {report.rows_deleted:,} deleted,"
        f" {report.rows_inserted:,} inserted"
    )
    outcome = {
        "committed": f"{changed} in version {report.version:,}",
        "nothing_to_do": "nothing to do",
        "dry_run": f"{changed} if it ran; nothing was written",
    }[report.outcome]
    yield Text(f"merge: {outcome}", style="bold")
    given = format_count(report.rows_given, "row")
    yield figures_grid([("source", given), *_figures(report)])


def _describe_outcome(report: DeletionReport) -> str:
    rows = format_count(report.rows_removed, "row")
    return {
        "committed": f"{rows} deleted in version {report.version:,}",
        "nothing_to_do": f"nothing to do{_rival(report)}",
        "dry_run": f"{rows} would be deleted; nothing was written",
    }[report.outcome]


def _rival(report: DeletionReport) -> str:
    runs = report.left_to_runs if isinstance(report, DeduplicationReport) else ()
    return f": being deduplicated by run {', '.join(runs)}" if runs else ""


def _figures(report: DeletionReport | MergeReport) -> Iterable[tuple[str, str]]:
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
    yield "took", format_time(report.duration_ms, report.ran_on)


def _files(report: DeletionReport | MergeReport) -> Iterable[str]:
    if report.files_marked:
        yield f"{report.files_marked:,} with a deletion vector"
    if isinstance(report, MergeReport):
        # New rows are in separate files, so rewritten files cannot be told from their number.
        yield f"{report.files_added:,} added"
        yield f"{report.files_removed:,} removed"
    else:
        yield from _rewritten(report)
    if report.change_files_added:
        yield f"{report.change_files_added:,} written for the change data feed"


def _rewritten(report: DeletionReport) -> Iterable[str]:
    if report.files_added:
        yield f"{report.files_added:,} rewritten"
    if dropped := report.files_removed - report.files_added:
        yield f"{dropped:,} dropped"


def _evidence(report: DeletionReport | MergeReport) -> Iterable[tuple[str, str]]:
    if report.proof is None:
        yield "proof", "none needed: no file was rewritten"
    elif report.proof.kind == "counts":
        yield "proof", f"{format_count(report.proof.rows, 'row')} left, counted but not compared"
    elif report.proof.kind == "positions":
        left = format_count(report.proof.rows, "row")
        yield "proof", f"{left} left in these files: vectors, read back, hide the deleted rows only"
    else:
        left = format_count(report.proof.rows, "row")
        yield "proof", f"{left} left in these files, proved equal, read back from storage"
