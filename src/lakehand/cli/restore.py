"""`lakehand restore`: restore an earlier version of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.shared_options import (
    dry_run_option,
    open_for_command,
    table_options,
    timestamp_option,
    version_option,
)
from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lakehand.model.maintenance import RestoreReport


@click.command()
@table_options
@version_option
@timestamp_option
@dry_run_option
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Restore even if files of that version are missing; reading the table then fails.",
)
def restore(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Restore an earlier version of TABLE, as a new commit.

    Nothing is lost: the versions in between stay in the history and can be restored again.
    """
    if (options["version"] is None) == (options["timestamp"] is None):
        raise click.UsageError("pass either --version or --timestamp")
    report = open_for_command(table, storage_options).restore(**options)
    print_report(report, restore_screen, as_json=as_json)


def restore_screen(report: RestoreReport) -> Iterator[RenderableType]:
    """Show which files were restored and which removed."""
    if report.outcome == "nothing_to_do":
        yield Text(f"nothing to do: the content is that of version {report.restored_version:,}")
        return
    back = format_count(report.files_restored, "file")
    left = format_count(report.files_removed, "file")
    verb = "would be restored" if report.outcome == "dry_run" else "restored"
    columns = ", with its schema and properties" if report.metadata_restored else ""
    yield Text(
        f"version {report.restored_version:,} {verb}{columns}:"
        f" {back} ({format_bytes(report.bytes_restored)}) added,"
        f" {left} ({format_bytes(report.bytes_removed)}) removed"
    )
    if report.outcome == "committed":
        yield Text(f"committed as version {report.version:,}")
