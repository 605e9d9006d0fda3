"""A progress bar on stderr, for terminals only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehand.model.quantities import format_bytes
from lakehand.observe import Progress, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


#: Below this width, bars, bytes and the remaining time are left out.
_NARROW = 96


@contextmanager
def progress_bar() -> Iterator[None]:
    """Show the progress of all operations in the block, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with make_bars(Console(stderr=True)) as bars:
        phases = Phases(bars)

        def show(event: object) -> None:
            if isinstance(event, Progress):
                phases.show(event)

        with subscribe(show):
            yield


def make_bars(console: Console) -> Bars:
    """Return bars that show the phase, its progress, and the remaining time."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    if console.width < _NARROW:
        return Bars(
            TextColumn("{task.description:8}"),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]elapsed[/dim]"),
            console=console,
            transient=True,
        )
    return Bars(
        TextColumn("{task.description:8}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}"),
        TextColumn("[dim]elapsed[/dim]"),
        TimeElapsedColumn(),
        TextColumn("[dim]left[/dim]"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


class Phases:
    """One bar per phase, in the order in which the phases are reported."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        # An engine may take a while to finish the first task.
        self._first = bars.add_task("starting", total=None, amount="", count="")

    def say(self, text: str) -> None:
        """Show what is waited for, while no phase has begun."""
        self._bars.update(self._first, description=text)

    def show(self, event: Progress) -> None:
        """Update the bar of the event's phase, by bytes if known: groups differ in size."""
        if event.phase not in self._tasks:
            self._hide_endless()
            task = self._bars.add_task(event.phase, total=None, amount="", count="")
            self._tasks[event.phase] = task
        by_bytes = event.done_bytes is not None and event.total_bytes is not None
        self._bars.update(
            self._tasks[event.phase],
            completed=event.done_bytes if by_bytes else event.done,
            total=event.total_bytes if by_bytes else event.total,
            amount=describe_amount(event),
            count=describe_count(event),
        )

    def _hide_endless(self) -> None:
        """Remove finished bars of phases without a known total."""
        for task in self._bars.tasks:
            if task.total is None:
                self._bars.update(task.id, visible=False)


def describe_amount(event: Progress) -> str:
    """Return the progress as text: `3/8 groups, 12 MiB of 40 MiB`."""
    count = describe_count(event)
    if event.total is None or event.done_bytes is None or event.total_bytes is None:
        return count
    return f"{count}, {format_bytes(event.done_bytes)} of {format_bytes(event.total_bytes)}"


def describe_count(event: Progress) -> str:
    """Return how many groups, files or rows are done."""
    if event.total is None:
        return f"{event.done:,} {event.unit}".rstrip() if event.done else ""
    return f"{event.done:,}/{event.total:,} {event.unit}".rstrip()
