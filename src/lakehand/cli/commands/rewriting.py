"""Commands that rewrite files."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options
from lakehand.cli.output import print_document, print_screen
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
@setting_option("--min-files", "min_files", metavar="N")
@engine_options
def compact(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    **settings: Any,
) -> int:
    """Merge the small files of TABLE, and drop its deleted rows.

    Every group of files is proved to hold the same rows before anything is committed. The old files
    stay, because earlier versions of the table refer to them.
    """
    from lakehand.cli.screens.operation import operation_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.compact(dry_run=dry_run, on_progress=on_progress, **settings)
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*operation_screen(report))
    return EXIT_FAILED if report.errors else 0
