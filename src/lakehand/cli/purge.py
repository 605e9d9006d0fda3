"""`lakehand purge`: erase deleted rows and dropped columns from the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.shared_options import (
    allow_short_retention_option,
    dry_run_option,
    engine_options,
    open_for_command,
    setting_option,
    table_options,
)
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rich.console import RenderableType

    from lakehand.model.maintenance import PurgeReport


@click.command()
@table_options
@dry_run_option
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--grace", "grace", metavar="TIME")
@allow_short_retention_option
@engine_options
def purge(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Remove deleted rows and dropped columns from the files of TABLE, vacuum, clean its log.

    Reports every location that still holds the data, and until when: versions within the retention
    keep their files. Run it again at those times. Exit code 1 if something failed.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.purge(**options)
    print_report(report, purge_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def purge_screen(report: PurgeReport) -> Iterable[RenderableType]:
    """Show what was done, then every location that still holds deleted data."""
    would = "would be " if report.dry_run else ""
    yield Text(
        f"purge: {format_count(report.files_rewritten, 'file')} {would}rewritten, "
        f"{report.files_quarantined:,} {would}quarantined, {report.files_deleted:,} {would}deleted"
    )
    for location in report.remaining:
        until = "" if location.until is None else f" (until {_at(location.until)})"
        yield Text(f"  remaining: {location.message}{until}")
    if dates := [at for at in (report.gone_at, report.log_gone_at) if at is not None]:
        yield Text(f"  run purge again at each of these times, the last at {_at(max(dates))}")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
