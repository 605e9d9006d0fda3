"""`lakehand repair`: fix what `verify` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.shared_options import engine_options, open_for_command, table_options
from lakehand.cli.verify import findings_list
from lakehand.errors import EXIT_UNHEALTHY
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lakehand.model.verification import RepairReport


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Drop unreadable data: missing files, and versions with corrupt commits.",
)
@click.option(
    "--accept-changed-files",
    is_flag=True,
    help="Accept files that contradict their size, statistics or checksum. They may have been"
    " replaced: their earlier rows are then lost.",
)
@click.option(
    "--restore-deleted-rows",
    is_flag=True,
    help="Keep files whose deletion vector is lost: their deleted rows are visible again.",
)
@click.option("--deep", is_flag=True, help="Decode the rows of every file to find problems.")
@engine_options
def repair(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Fix what verify finds in TABLE, as far as no data is lost, and verify again.

    Checkpoints and the pointer to the last one are rewritten; invalid log files are backed up and
    moved out of the log. Anything that could lose rows, or hide that rows were lost, is not done,
    but listed with the option that allows it. Stop other writers first. Exit code 5 if problems
    remain, or would remain.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.repair(**options)
    print_report(report, repair_screen, as_json=as_json)
    is_wrong = report.refused if report.dry_run else report.remaining
    return EXIT_UNHEALTHY if is_wrong else 0


def repair_screen(report: RepairReport) -> Iterator[RenderableType]:
    """Show what was done, what is lost, what was not repaired, and the remaining problems."""
    yield Text(f"{report.operation}: {_describe_repair(report)}", style="bold")
    for repair in report.repairs:
        yield Text(f"  {repair.name}: {repair.message}")
        yield from (Text(f"    {path}") for path in repair.paths)
        if repair.loses:
            yield Text.assemble(("    lost: ", "bold red"), repair.loses)
    if report.aside:
        yield Text(f"  files removed from the log are backed up in {report.aside}")
    for refusal in report.refused:
        what = refusal.path or "the table"
        yield Text.assemble(("  not repaired: ", "bold yellow"), f"{refusal.name} of {what}")
        yield Text(f"    {refusal.reason}")
    if report.remaining and not report.dry_run:
        yield Text("remaining problem:", style="bold red")
        yield from findings_list(report.remaining)


def _describe_repair(report: RepairReport) -> str:
    found = format_count(len(report.findings), "finding")
    if report.dry_run:
        return f"{found}; nothing was changed"
    if report.outcome == "nothing_to_do":
        return "the table is sound"
    if report.outcome == "refused":
        return f"{found}; nothing was repaired"
    left = format_count(len(report.remaining), "finding")
    return f"{found}; {left} left" if report.remaining else f"{found}; the table is sound again"
