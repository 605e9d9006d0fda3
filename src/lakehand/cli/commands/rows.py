"""The commands that take single rows out of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options
from lakehand.cli.output import print_report
from lakehand.cli.progress import progress_bar

if TYPE_CHECKING:
    from lakehand.model.row_reports import DeletionReport

_dry_run = click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")


def _read_columns(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@table_options
@click.option(
    "--key", metavar="A,B", callback=_read_columns, help="Rows equal in these columns are one."
)
@click.option("--exact", is_flag=True, help="Rows equal in all columns are one.")
@click.option(
    "--keep",
    type=click.Choice(["first", "last", "latest"]),
    default="first",
    show_default=True,
    help="Which of several rows stays: by when it came, or by --order-by.",
)
@click.option("--order-by", metavar="COLUMN", help="Whose greatest value `latest` keeps.")
@_dry_run
@setting_option("--prove", "prove", metavar="[digest|independent|counts]")
@engine_options
def deduplicate(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Keep one of several rows of TABLE that have the same key.

    Only files that hold a duplicate are touched: rows are hidden where the table asks for it, else
    these files are written anew. What is left is proved before it is committed.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.deduplicate(on_progress=on_progress, **options)
    return _show(report, as_json=as_json)


@click.command()
@table_options
@click.option("--where", required=True, metavar="PREDICATE", help="Which rows go.")
@_dry_run
@setting_option("--prove", "prove", metavar="[digest|independent|counts]")
@engine_options
def delete(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Delete the rows of TABLE for which a condition is true.

    Files of which metadata says that all rows go are not read. What is left of the others is proved
    before it is committed.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.delete(on_progress=on_progress, **options)
    return _show(report, as_json=as_json)


def _show(report: DeletionReport, *, as_json: bool) -> int:
    from lakehand.cli.screens.rows import deletion_screen

    print_report(report, deletion_screen, as_json=as_json)
    return 0
