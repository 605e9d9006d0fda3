"""Proposals to put a table in order. Meaning never depends on colour."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.assess.advise import Advice, Proposal


def advice_screen(advice: Advice) -> Iterable[RenderableType]:
    """Show the verdict, what else was tried, and what it was tried on."""
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
    grid.add_row(f"{advice.skip_rate:.1%}", "", Text("as it is now", style="dim"))
    return grid


def _basis(advice: Advice) -> Iterable[str]:
    kind = "fixed questions" if advice.questions == "fixed" else "conditions of queries"
    rows, files = (
        format_count(advice.sampled_rows, "row"),
        format_count(advice.sampled_files, "file"),
    )
    yield f"{advice.question_count:,} {kind}, asked of {rows} cut into {files}"
    if advice.unused_statements:
        reasons = ", ".join(f"{count:,} {why}" for why, count in advice.unused_statements.items())
        yield f"statements left out, of {advice.statement_count:,}: {reasons}"


def _command(table: str, best: Proposal) -> str:
    by = shlex.quote(",".join(best.columns))
    return f"lakehand cluster {shlex.quote(table)} --by {by} --curve {best.curve}"
