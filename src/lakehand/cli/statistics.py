"""`lakehand statistics`: compute missing file statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid, format_time
from lakehand.cli.shared_options import (
    engine_options,
    open_for_command,
    setting_option,
    table_options,
    where_files_option,
)
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from lakehand.model.reports import StatisticsReport


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Count the files without statistics; write nothing.")
@click.option("--full", is_flag=True, help="Recompute the statistics of every file.")
@where_files_option
@setting_option("--max-bytes", "max_bytes_per_run", metavar="SIZE")
@setting_option("--max-files", "max_files_per_run", metavar="N")
@engine_options
def statistics(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Compute missing file statistics of TABLE, so that readers can skip files.

    No data file is written: the commit updates the metadata of the same files.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.statistics(**options)
    print_report(report, statistics_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def statistics_screen(report: StatisticsReport) -> Iterable[RenderableType]:
    """Show what was computed, in a few lines."""
    yield Text(f"{report.operation}: {_describe_outcome(report)}", style="bold")
    yield figures_grid(_figures(report))
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _describe_outcome(report: StatisticsReport) -> str:
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": "nothing to do",
        "dry_run": "nothing was written",
    }[report.outcome]


def _figures(report: StatisticsReport) -> Iterator[tuple[str, str]]:
    yield (
        "files",
        f"{format_count(report.files_chosen, 'file')} of {report.files_before:,} selected",
    )
    counts = {
        "computed": report.files_refreshed,
        "unchanged": report.files_unchanged,
        "lost to concurrent writers": report.files_dropped,
        "left for a later run": report.files_remaining,
    }
    for what, count in counts.items():
        if count:
            yield "", f"{count:,} {what}"
    if report.rows_read:
        took = format_time(report.duration_ms, report.ran_on)
        yield "took", f"{took}, {report.rows_read:,} rows read"
