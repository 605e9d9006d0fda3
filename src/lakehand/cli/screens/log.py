"""Commits and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.model.history import HistoryEntry
    from lakehand.model.reports import CheckpointReport


def history_screen(entries: Sequence[HistoryEntry]) -> Iterable[RenderableType]:
    """Show commits, newest first."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("version", justify="right")
    grid.add_column("committed")
    grid.add_column("operation")
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


def checkpoint_screen(report: CheckpointReport) -> Iterable[RenderableType]:
    """Show what was written, in one line."""
    if report.outcome == "nothing_to_do":
        yield Text(f"nothing to do: version {report.version:,} has a complete checkpoint")
        return
    yield Text(checkpoint_words(report))


def checkpoint_words(report: CheckpointReport) -> str:
    """Say what a checkpoint that was written is made of."""
    files = format_count(len(report.files), "file")
    entries = "entry" if report.action_count == 1 else "entries"
    return (
        f"checkpoint of version {report.version:,} written: {report.action_count:,} {entries} in "
        f"{files}, {format_bytes(report.bytes)}, {report.kind}"
    )
