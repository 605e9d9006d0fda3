"""Commands that tidy a table's history and bring it back."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, table_options, timestamp_option, version_option
from lakehand.cli.output import print_report
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY


@click.command("clean-logs")
@table_options
@click.option("--dry-run", is_flag=True, help="List what would go; delete nothing.")
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
    "--even-if-disabled", is_flag=True, help="Also where the table forbids it by a property."
)
def clean_logs(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Delete history of TABLE that is older than its log retention.

    Everything that goes lies below a checkpoint that is read and compared with the commits first.
    Versions before it can no longer be read; pinned versions stay.
    """
    from lakehand.cli.screens.repairing import cleanup_screen

    report = open_for_command(table, storage_options).clean_logs(**options)
    print_report(report, cleanup_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


@click.command(short_help="Give TABLE the content of an earlier version again.")
@table_options
@version_option
@timestamp_option
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Even if files of that version are gone; reading the table then fails.",
)
def restore(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Give TABLE the content of an earlier version again, in a commit of its own.

    Nothing is lost: the versions in between stay in the history, and can be restored in turn.
    """
    from lakehand.cli.screens.repairing import restore_screen

    if (options["version"] is None) == (options["timestamp"] is None):
        raise click.UsageError("give either --version or --timestamp")
    report = open_for_command(table, storage_options).restore(**options)
    print_report(report, restore_screen, as_json=as_json)


@click.command(short_help="Fix what verify finds; never drops data unless told to.")
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Give up what cannot be read: lost files, and versions whose commits are broken.",
)
@click.option(
    "--accept-changed-files",
    is_flag=True,
    help="Take files as they are that contradict their size, statistics or checksum. They may have"
    " been replaced: their earlier rows are then lost.",
)
@click.option(
    "--restore-deleted-rows",
    is_flag=True,
    help="Keep files whose deletion vector is lost: their deleted rows are visible again.",
)
@click.option("--deep", is_flag=True, help="Decode the rows of every file to find what is wrong.")
@engine_options
def repair(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Fix what is wrong with TABLE, as far as nothing is lost by it, and look again.

    Checkpoints and the pointer to the newest one are written again; what misleads readers is moved
    out of the log, never deleted. Whatever could lose rows, or hide that rows were lost, is left
    alone and listed with the option that allows it. Stop other writers first. Exit code 5 if
    something is still wrong, or would be.
    """
    from lakehand.cli.screens.repairing import repair_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.repair(on_progress=on_progress, **options)
    print_report(report, repair_screen, as_json=as_json)
    is_wrong = report.refused if report.dry_run else report.remaining
    return EXIT_UNHEALTHY if is_wrong else 0
