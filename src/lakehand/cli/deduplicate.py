"""`lakehand deduplicate`: keep one row per key."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.delete import deletion_screen
from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.shared_options import (
    dry_run_option,
    engine_options,
    open_for_command,
    prove_option,
    table_options,
)


def _read_columns(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@table_options
@click.option(
    "--key",
    metavar="A,B",
    callback=_read_columns,
    help="Rows with equal values in these columns are duplicates.",
)
@click.option("--exact", is_flag=True, help="Rows with equal values in all columns are duplicates.")
@click.option(
    "--keep",
    type=click.Choice(["first", "last", "latest"]),
    default="first",
    show_default=True,
    help="Which row to keep: the first or last written, or the latest by --order-by.",
)
@click.option("--order-by", metavar="COLUMN", help="Column whose greatest value `latest` keeps.")
@dry_run_option
@prove_option
@engine_options
def deduplicate(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Keep one row of TABLE per key.

    Only files with duplicates change: they get deletion vectors where the table uses them, else
    they are rewritten. The remaining rows are proved equal before the commit.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.deduplicate(**options)
    print_report(report, deletion_screen, as_json=as_json)
