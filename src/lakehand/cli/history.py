"""`lakehand history`: the commits of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.table import Table as Grid

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.shared_options import open_for_command, table_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.model.reports import HistoryEntry


@click.command()
@table_options
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="Show at most N commits.")  # fmt: skip
def history(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    limit: int,
) -> None:
    """Show the commits of TABLE, newest first. Reads only."""
    opened = open_for_command(table, storage_options)
    entries = opened.history(limit=limit)
    if as_json:
        records = ("commits", (entry.to_json() for entry in entries))
        print_document({"table": opened.url, "format": opened.format}, records=records)
    else:
        print_screen(*history_screen(entries))


def history_screen(entries: Sequence[HistoryEntry]) -> Iterable[RenderableType]:
    """Show commits, newest first."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("version", justify="right")
    grid.add_column("committed", overflow="fold")
    grid.add_column("operation", overflow="fold")
    grid.add_column("what it did", overflow="fold")
    grid.add_column("engine", overflow="fold")
    for entry in entries:
        at = entry.at.strftime("%Y-%m-%d %H:%M:%S")
        proved = "; rows proved equal" if entry.proof else ""
        grid.add_row(
            f"{entry.version:,}", at, entry.operation or "?",
            entry.summary + proved, entry.engine or "?",
        )  # fmt: skip
    yield grid
