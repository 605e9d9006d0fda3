"""Shared parts of screens. Meaning never depends on colour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.planning.policy import LEFT_DESCRIPTIONS, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from lakehand.model.reports import EngineName, Measured, Remaining

_ENGINES = {"spark": " on Spark", "local": " on this machine", None: ""}


def left_rows(left: Mapping[str, int], remaining: Remaining) -> Iterable[tuple[str, str]]:
    """Yield every reason for which files were not rewritten, with their number."""
    label = "not rewritten"
    for reason, count in left.items():
        line = f"{format_count(count, 'file')}: {LEFT_DESCRIPTIONS.get(reason, reason)}"
        if reason == Reason.LATER_RUN:
            groups = format_count(remaining.groups, "group")
            line += f" ({groups}, {format_bytes(remaining.bytes)})"
        yield label, line
        label = ""


def effect_rows(
    skipped: Measured, depth: Measured, *, about: str = ""
) -> Iterable[tuple[str, str]]:
    """Yield what queries skip, and how much files overlap, before and after."""
    rate = _change(f"{skipped.before:.1%}", f"{skipped.after:.1%}", about)
    yield "skipped", f"{rate} of the files per query"
    files = _change(f"{depth.before:.1f}", f"{depth.after:.1f}", about)
    yield "overlap depth", f"{files} files"


def _change(before: str, after: str, about: str) -> str:
    return before if before == after else f"{before} → {about}{after}"


def format_time(duration_ms: float, ran_on: EngineName | None) -> str:
    """Return how long it took, and where tasks ran."""
    return format_duration(timedelta(milliseconds=duration_ms)) + _ENGINES[ran_on]


def figures_grid(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return labels and figures in two columns, indented."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(min_width=2)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row("", label, Text(text))
    return grid
