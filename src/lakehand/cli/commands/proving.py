"""Commands about what a table says of its files, and whether that is so."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options, version_option
from lakehand.cli.output import print_report
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY


@click.command(short_help="Compute statistics of files that lack some.")
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
    print_report(report, statistics_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


@click.command(short_help="Check that TABLE is whole and that rewrites kept every row.")
@table_options
@version_option
@click.option("--all", "every", is_flag=True, help="Every commit in the log that carries a proof.")
@click.option("--no-proofs", is_flag=True, help="Check that the table is whole, and no proof.")
@click.option("--deep", is_flag=True, help="Decode the rows of every file, too.")
@engine_options
def verify(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    no_proofs: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Check that TABLE is whole, and that a rewrite of it kept every row. Reads only.

    Looks at all commits and checkpoints and at every file, whether or not the table can be opened.
    Then reads the files that a commit replaced and those that took their place: the newest commit
    with a proof, or that of --version. Exit code 5 if anything is wrong, 1 if the proofs that were
    asked for cannot be compared any more.
    """
    from lakehand.cli.screens.proving import verification_screen

    if sum((options["every"], options["version"] is not None, no_proofs)) > 1:
        raise click.UsageError("--all, --version and --no-proofs exclude each other")
    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.verify(proofs=not no_proofs, on_progress=on_progress, **options)
    print_report(report, verification_screen, as_json=as_json)
    if report.outcome == "damaged":
        return EXIT_UNHEALTHY
    is_asked = options["every"] or options["version"] is not None
    return EXIT_FAILED if is_asked and report.proof_outcome == "cannot_compare" else 0
