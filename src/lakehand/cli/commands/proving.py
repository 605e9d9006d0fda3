"""Commands about what a table says of its files, and whether that is so."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options, version_option
from lakehand.cli.output import print_document, print_screen
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY

_EXIT_CODES = {"equal": 0, "cannot_compare": EXIT_FAILED, "differs": EXIT_UNHEALTHY}


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Say how many files lack statistics; write nothing.")
@click.option("--full", is_flag=True, help="Files with complete statistics, too.")
@click.option(
    "--where",
    metavar="PREDICATE",
    help="Only files whose rows all fulfil this condition, which must be decided by partition"
    " values or statistics.",
)
@setting_option("--max-bytes", "max_bytes_per_run", metavar="SIZE")
@setting_option("--max-files", "max_files_per_run", metavar="N")
@engine_options
def statistics(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Compute missing statistics of the files of TABLE, so that readers can skip files.

    No file is written or rewritten: the table gets new entries for the same files.
    """
    from lakehand.cli.screens.proving import statistics_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.statistics(on_progress=on_progress, **options)
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*statistics_screen(report))
    return EXIT_FAILED if report.errors else 0


@click.command()
@table_options
@version_option
@click.option("--all", "every", is_flag=True, help="Every commit in the log that carries a proof.")
@engine_options
def verify(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    version: int | None,
    every: bool,  # noqa: FBT001
    **settings: Any,
) -> int:
    """Check again that a rewrite of TABLE kept every row. Reads only.

    Reads the files that a commit replaced and those that took their place: the newest commit with a
    proof, or that of --version. Exit code 5 if rows differ, 1 if nothing can be compared any more.
    """
    from lakehand.cli.screens.proving import verification_screen

    if every and version is not None:
        raise click.UsageError("--all and --version exclude each other")
    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.verify(version=version, every=every, on_progress=on_progress, **settings)
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*verification_screen(report))
    return _EXIT_CODES[report.outcome]
