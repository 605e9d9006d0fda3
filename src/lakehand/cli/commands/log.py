"""Commands that look after the log."""

from __future__ import annotations

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import table_options, version_option
from lakehand.cli.output import print_report


@click.command(short_help="Fold the log into a checkpoint, so that TABLE opens fast.")
@table_options
@version_option
def checkpoint(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    version: int | None,
) -> None:
    """Fold the log of TABLE into a checkpoint, so that it opens fast.

    Nothing is written if a complete checkpoint of the version is there. The table's rows and
    versions stay as they are.
    """
    from lakehand.cli.screens.log import checkpoint_screen

    report = open_for_command(table, storage_options).checkpoint(version=version)
    print_report(report, checkpoint_screen, as_json=as_json)
