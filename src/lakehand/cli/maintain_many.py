"""`lakehand maintain` on several tables: a live view, one line per table, and a summary."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_list
from lakehand.cli.progress_bar import describe_amount
from lakehand.cli.service_options import listing, shown_location
from lakehand.errors import NotATableError
from lakehand.model.quantities import format_count, format_duration
from lakehand.observe import Progress
from lakehand.service.many_tables import TablesRun, find_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Group, RenderableType
    from rich.live import Live

    from lakehand.service.many_tables import TableEvent, TableResult, TablesReport
    from lakehand.service.run_metrics import RunMetrics

_REFRESH_SECONDS = 0.2
_SIGNALLED = 128
#: Text and colour of each outcome.
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "committed": ("done", "green"),
    "nothing_to_do": ("nothing to do", "dim"),
    "stopped_early": ("stopped early", "yellow"),
    "failed": ("failed", "red"),
    "not_run": ("not run", "dim"),
}


def maintain_many(
    tables: Sequence[str],
    *,
    absent: NotATableError | None,
    config: Path | None,
    jobs: int,
    storage_options: Mapping[str, str],
    as_json: bool,
    metrics: RunMetrics,
    **options: Any,
) -> int:
    """Maintain tables in processes; `absent` is raised if there is none below the only name."""
    skip, dry_run = options.pop("skip"), options.pop("dry_run")
    try:
        found = find_tables(
            tables,
            config=config,
            options={"skip": list(skip), "dry_run": dry_run},
            settings=options,
            storage_options=storage_options,
        )
    except NotATableError as error:
        raise absent or error from None
    view = _View(total=len(found.specs))
    run = TablesRun(found, jobs=jobs, dry_run=dry_run, on_event=view.take)
    with _signals(run) as received, view.shown(), run:
        while not run.is_over:
            run.wait(_REFRESH_SECONDS)
            view.refresh(is_winding_down=run.is_winding_down)
    report = run.report()
    metrics.tell(report.tables)
    if as_json:
        print_document(report.to_json())
    else:
        print_list(*tables_report_screen(report))
    return _SIGNALLED + received[0] if received else report.exit_code


@contextmanager
def _signals(run: TablesRun) -> Iterator[list[int]]:
    """Let a signal wind the tables down, and a second one stop them; return those received."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            run.stop()
        else:
            run.wind_down()

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # With nohup a command continues when its terminal is closed.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield received
    finally:
        for restored, handler in before.items():
            signal.signal(restored, handler)


@dataclass(slots=True)
class _Running:
    """A table that is being maintained."""

    began: float = field(default_factory=time.monotonic)
    progress: Progress | None = None


class _View:
    """What is shown on stderr while tables are maintained."""

    def __init__(self, *, total: int) -> None:
        self._total = total
        self._ended = 0
        self._failed = 0
        self._running: dict[str, _Running] = {}
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show running tables on a terminal; elsewhere only one line per table that has ended."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False)
        with Live(console=console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def take(self, event: TableEvent) -> None:
        """Take note of what happened to a table."""
        if event.kind == "started":
            self._running[event.table] = _Running()
        elif event.progress is not None and event.table in self._running:
            self._running[event.table].progress = Progress(**event.progress)
        elif event.result is not None:
            self._running.pop(event.table, None)
            self._ended += 1
            self._failed += event.result.outcome == "failed"
            self._print(event.result)

    def _print(self, result: TableResult) -> None:
        if self._live is not None:
            word, style = _word(result)
            line = Text.assemble((word, style), f"  {_describe(result)}")
            self._live.console.print(line, soft_wrap=True)
        else:
            click.echo(f"{_word(result)[0]}: {_describe(result)}", err=True)

    def refresh(self, *, is_winding_down: bool) -> None:
        """Show how far all is."""
        if self._live is not None:
            self._live.update(self.render(is_winding_down=is_winding_down), refresh=True)

    def render(self, *, is_winding_down: bool) -> Group:
        """Return the running tables, and how many there are."""
        from rich.console import Group

        grid = listing("table", "phase", "progress", "took", fold=("table",))
        grid.show_header = False
        now = time.monotonic()
        for url, running in self._running.items():
            progress = running.progress
            grid.add_row(
                Text(shown_location(url)),
                "starting" if progress is None else progress.phase,
                "" if progress is None else describe_amount(progress),
                format_duration(timedelta(seconds=1 + int(now - running.began))),
            )
        failed = f", {self._failed:,} failed" if self._failed else ""
        line = f"{self._ended:,} of {format_count(self._total, 'table')}{failed}"
        if is_winding_down:
            line += "; stopping: running tables commit what is proved; again stops at once"
        return Group(grid, Text(line, style="bold"))


def _word(result: TableResult) -> tuple[str, str]:
    """Return the outcome in words, and its colour; of a dry run, whether anything is due."""
    if result.outcome == "dry_run":
        steps = (result.report or {}).get("steps") or ()
        is_due = any(step.get("is_due") for step in steps)
        return ("due", "yellow") if is_due else ("nothing due", "dim")
    return _OUTCOMES[result.outcome]


def _describe(result: TableResult) -> str:
    parts = [shown_location(result.table), _files(result), _took(result)]
    line = ", ".join(part for part in parts if part)
    return line if result.error is None else f"{line}: {result.error['message']}"


def _files(result: TableResult) -> str:
    if result.files_before is None:
        return ""
    if result.files_before == result.files_after:
        return format_count(result.files_before, "file")
    return f"{result.files_before:,} → {result.files_after:,} files"


def _took(result: TableResult) -> str:
    if result.outcome == "not_run":
        return ""
    return format_duration(timedelta(milliseconds=result.duration_ms))


def tables_report_screen(report: TablesReport) -> Iterable[RenderableType]:
    """Show one line per table, and what could not be listed."""
    yield Text(f"maintain: {_headline(report)}")
    if report.tables:
        grid = listing("table", "outcome", "files", "took", right=("took",), fold=("table",))
        for result in report.tables:
            word, style = _word(result)
            files = _files(result).removesuffix(" files").removesuffix(" file")
            location = Text(shown_location(result.table))
            grid.add_row(location, Text(word, style=style), files, _took(result))
        yield grid
    # Below the table: a message is often longer than what is left of a line.
    for result in report.tables:
        if result.error is not None:
            reason = f"{shown_location(result.table)}: {result.error['message']}"
            yield Text.assemble(("error: ", "bold red"), reason)
    for error in report.errors:
        yield Text.assemble(("not listed: ", "bold red"), f"{error['url']}: {error['message']}")


def _headline(report: TablesReport) -> str:
    counts: dict[str, int] = {}
    for result in report.tables:
        word = _word(result)[0]
        counts[word] = counts.get(word, 0) + 1
    took = f"took {format_duration(timedelta(milliseconds=report.duration_ms))}"
    total = format_count(len(report.tables), "table")
    written = ["nothing was written"] if report.dry_run else []
    return ", ".join([total, *(f"{n:,} {word}" for word, n in counts.items()), *written, took])
