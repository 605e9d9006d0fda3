"""`lakehand advise`: which columns to cluster a table by."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.shared_options import open_for_command, setting_option, table_options
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.assess.clustering_advice import Advice, Proposal


@click.command()
@table_options
@click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Queries that run on the table, as SQL; repeat a query to give it more weight.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def advise(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    queries: Path | None,
    **settings: Any,
) -> None:
    """Recommend columns and a curve to cluster TABLE by. Reads only.

    Every proposal is measured on a sample of rows, divided into as many files as the table would
    have, and shows the fraction of files that the queries would skip. Without --queries, a fixed
    set of predicates on all columns is used.
    """
    opened = open_for_command(table, storage_options)
    text = None if queries is None else queries.read_text()
    advice = opened.advise(queries=text, **settings)
    print_report(advice, advice_screen, as_json=as_json)


def advice_screen(advice: Advice) -> Iterable[RenderableType]:
    """Show the verdict, the other proposals, and the sample."""
    yield Text(advice.table, style="bold", overflow="fold")
    yield Text(advice.message)
    if advice.proposals:
        yield Text()
        yield Padding(_proposals(advice), (0, 0, 0, 2))
    yield Text()
    for line in _basis(advice):
        yield Text(line, style="dim")
    if advice.verdict == "cluster":
        yield Text()
        yield Text(_command(advice.table, advice.proposals[0]), overflow="fold", no_wrap=True)


def _proposals(advice: Advice) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(justify="right")
    grid.add_column()
    grid.add_column()
    grid.add_row(*(Text(head, style="dim") for head in ("files skipped", "curve", "columns")))
    for number, each in enumerate(advice.proposals):
        style = "bold green" if number == 0 and advice.verdict == "cluster" else ""
        grid.add_row(f"{each.skip_rate:.1%}", each.curve, ", ".join(each.columns), style=style)
    grid.add_row(f"{advice.skip_rate:.1%}", "", Text("current layout", style="dim"))
    return grid


def _basis(advice: Advice) -> Iterable[str]:
    kind = "fixed conditions" if advice.questions == "fixed" else "conditions of queries"
    rows, files = (
        format_count(advice.sampled_rows, "row"),
        format_count(advice.sampled_files, "file"),
    )
    yield f"{advice.question_count:,} {kind}, tried on {rows} in {files}"
    if advice.unused_statements:
        reasons = ", ".join(f"{count:,} {why}" for why, count in advice.unused_statements.items())
        yield f"unused statements, of {advice.statement_count:,}: {reasons}"


def _command(table: str, best: Proposal) -> str:
    by = shlex.quote(",".join(best.columns))
    return f"lakehand cluster {shlex.quote(table)} --by {by} --curve {best.curve}"
