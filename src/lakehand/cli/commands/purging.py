"""The command for requests to erase."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options
from lakehand.cli.output import print_report
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED
from lakehand.settings import find_setting


@click.command(short_help="Remove deleted rows and dropped columns from the files.")
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--grace", "grace", metavar="TIME")
@click.option(
    "--allow-short-retention",
    is_flag=True,
    default=None,
    help=find_setting("allow_short_retention").help,
)
@engine_options
def purge(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Remove deleted rows and dropped columns from the files of TABLE, vacuum, clean its log.

    Reports every place that still holds them, and until when: versions within the retention keep
    their files. Run it again at those times. Exit code 1 if something failed.
    """
    from lakehand.cli.screens.purging import purge_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.purge(on_progress=on_progress, **options)
    print_report(report, purge_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0
