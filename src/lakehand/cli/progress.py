"""A progress bar on stderr, for people only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from lakehand.observe import OnProgress, Progress


@contextmanager
def progress_bar() -> Iterator[OnProgress | None]:
    """Yield a callback that moves a bar; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        yield _Phases(bars).show


class _Phases:
    """One bar a phase, in the order in which the phases are reported."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        # An engine may take a while before the first task is done.
        self._start = bars.add_task("starting", total=None)

    def show(self, event: Progress) -> None:
        self._bars.update(self._start, visible=False)
        if event.phase not in self._tasks:
            self._tasks[event.phase] = self._bars.add_task(event.phase, total=event.total)
        self._bars.update(self._tasks[event.phase], completed=event.done, total=event.total)
