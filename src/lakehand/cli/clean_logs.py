"""`lakehand clean-logs`: delete expired log entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.shared_options import open_for_command, table_options
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lakehand.model.maintenance import LogCleanupReport


@click.command("clean-logs")
@table_options
@click.option("--dry-run", is_flag=True, help="List what would be deleted; delete nothing.")
@click.option(
    "--keep-versions",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Keep at least the newest N versions readable.",
)
@click.option(
    "--keep-checkpoints",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Keep at least the newest N checkpoints.",
)
@click.option(
    "--even-if-disabled", is_flag=True, help="Ignore a table property that turns log cleanup off."
)
def clean_logs(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Delete log entries of TABLE that are older than its log retention.

    Only entries before a checkpoint are deleted, after that checkpoint was read and compared with
    the commits. Versions before it can no longer be read; pinned versions stay readable.
    """
    report = open_for_command(table, storage_options).clean_logs(**options)
    print_report(report, cleanup_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def cleanup_screen(report: LogCleanupReport) -> Iterator[RenderableType]:
    """Show what was deleted, or would be, file by file."""
    if report.dry_run:
        yield from (Text(file) for file in report.files)
    files = format_count(report.files_deleted, "file")
    verb = "would be deleted" if report.dry_run else "deleted"
    if report.files:
        yield Text(
            f"{files} of the log {verb}, {format_bytes(report.bytes_freed)};"
            f" versions {report.oldest_version:,} to {report.version:,} stay readable"
        )
    else:
        yield Text(f"nothing to do: versions {report.oldest_version:,} to {report.version:,} stay")
    if report.reason:
        yield Text(f"not more: {report.reason}", style="dim")
    if not report.sees_unfinished_uploads:
        yield Text(
            "unfinished uploads are not listed: add a lifecycle rule to the bucket that aborts them"
        )
    for error in report.errors:
        yield Text.assemble(("error: ", "bold red"), f"{error['path']}: {error['message']}")
