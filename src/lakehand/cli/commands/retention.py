"""Commands that delete files, and the one that says what must stay."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options
from lakehand.cli.output import print_document, print_report, print_screen
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED
from lakehand.settings import find_setting


@click.command(short_help="Remove files that no version within the retention needs.")
@table_options
@click.option("--dry-run", is_flag=True, help="List what would go; change nothing.")
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--keep-versions", "keep_versions", metavar="N")
@setting_option("--grace", "grace", metavar="TIME")
@click.option(
    "--allow-short-retention",
    is_flag=True,
    default=None,
    help=find_setting("allow_short_retention").help,
)
@click.option(
    "--mode",
    type=click.Choice(["full", "lite"]),
    default="full",
    show_default=True,
    help="List all files, or look only at those that the log says were removed.",
)
@click.option("--undo", metavar="ID", help="Give back what was set aside under this id.")
@click.option("--expire", is_flag=True, help="Only delete what is past its grace.")
@engine_options
def vacuum(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Remove files from TABLE that no version within the retention needs.

    They are set aside first and deleted by a later vacuum, when their grace is over; until then
    --undo gives them back. --grace 0 deletes at once. Exit code 1 if some could not be deleted.

    Very many files are listed and deleted in tasks, if --engine spark, --master or --remote says
    on which Spark.
    """
    from lakehand.cli.screens.retention import vacuum_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.vacuum(on_progress=on_progress, **options)
    print_report(report, vacuum_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


@click.command(short_help="Keep a version of TABLE readable under a name.")
@table_options
@click.argument("name", required=False)
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Keep this version.")
@click.option("--stream", metavar="URI", help="Keep what the stream with this checkpoint needs.")
@click.option("--clone", metavar="URI", help="Keep what this shallow clone refers to.")
@click.option(
    "--expires",
    metavar="TIME",
    help="How long the pin is valid, for example 30d. Default: forever.",
)
@click.option("--remove", is_flag=True, help="Drop the pin.")
def pin(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    name: str | None,
    remove: bool,  # noqa: FBT001
    **wanted: Any,
) -> None:
    """Keep a version of TABLE readable under NAME, or what a stream or clone needs of it.

    Vacuum keeps the files of all pins. Without NAME the pins are listed.
    """
    from lakehand.cli.screens.retention import pins_screen

    if name is None and (remove or any(wanted.values())):
        raise click.UsageError("give the pin a name")
    opened = open_for_command(table, storage_options)
    if name is None:
        chosen = opened.pins()
    elif remove:
        chosen = [opened.unpin(name)]
    else:
        chosen = [opened.pin(name, **wanted)]
    if as_json:
        print_document({"table": opened.url, "pins": [item.to_json() for item in chosen]})
    else:
        print_screen(*pins_screen(chosen, removed=remove))
