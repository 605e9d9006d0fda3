"""Reports as people read them. Meaning never depends on colour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.assess.health import Health
    from lakehand.assess.inspect import Inspection, SizeRange
    from lakehand.model.history import HistoryEntry
    from lakehand.model.reports import CheckpointReport, OperationReport
    from lakehand.settings import Settings

_BAR_WIDTH = 32
_GOOD_SCORE, _FAIR_SCORE = 90, 60
_EIGHTHS = " ▏▎▍▌▋▊▉"


def inspection_screen(report: Inspection) -> Iterable[RenderableType]:
    """Show a table: how healthy and why, what it holds, and the sizes of its files."""
    at = report.at.strftime("%Y-%m-%d %H:%M:%S UTC")
    yield Text(report.table, style="bold", overflow="fold")
    yield Text(f"{report.format} table, version {report.version:,} of {at}", style="dim")
    yield Text()
    yield _health(report.health)
    yield Text()
    yield _numbers(report)
    yield Text()
    yield _histogram(report.sizes, small_bytes=report.small_file_bytes)


def _indented(grid: RenderableType) -> Padding:
    return Padding(grid, (0, 0, 0, 2))


def _health(health: Health) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(justify="right")
    grid.add_column()
    style = _score_style(health.score)
    verdict = "nothing to do" if not health.reasons else "what costs points:"
    grid.add_row(Text(f"health {health.score}/100", style=f"bold {style}"), verdict)
    for reason in health.reasons:
        grid.add_row(Text(f"-{reason.points}", style="red"), reason.message)
    return _indented(grid)


def _score_style(score: int) -> str:
    if score >= _GOOD_SCORE:
        return "green"
    return "yellow" if score >= _FAIR_SCORE else "red"


def _numbers(report: Inspection) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column()
    for row in _number_rows(report):
        grid.add_row(*row)
    return _indented(grid)


def _number_rows(report: Inspection) -> Iterable[tuple[str, str, str]]:
    total, average = format_bytes(report.total_bytes), format_bytes(report.average_file_bytes)
    small, target = format_bytes(report.small_file_bytes), format_bytes(report.target_file_bytes)
    yield "files", f"{report.file_count:,}", f"{total}, {average} on average"
    yield (
        "small files",
        f"{report.small_file_count:,}",
        f"below {small}; the target is {target}",
    )
    rows = "unknown" if report.row_count is None else f"{report.row_count:,}"
    deleted = format_count(report.deleted_row_count, "deleted row")
    yield "rows", rows, f"and {deleted} still in the files"
    by = (
        f"by {', '.join(report.partition_columns)}" if report.partition_columns else "unpartitioned"
    )
    yield "partitions", f"{report.partition_count:,}", by
    commits = format_count(report.commits_since_checkpoint, "commit")
    if report.checkpoint_version is None:
        yield "checkpoint", "none", f"{commits} to replay"
    else:
        yield "checkpoint", f"{report.checkpoint_version:,}", f"{commits} after it"


def _histogram(sizes: Sequence[SizeRange], *, small_bytes: int) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    grid.add_column()
    grid.add_row("file size", Text("files", style="dim"), Text("bytes", style="dim"), "")
    largest = max((size.file_count for size in sizes), default=0)
    for size in sizes:
        is_small = size.to_bytes is not None and size.to_bytes <= small_bytes
        bar = Text(_bar(size.file_count, largest), style="yellow" if is_small else "green")
        grid.add_row(
            _range_label(size), f"{size.file_count:,}", format_bytes(size.total_bytes), bar
        )
    return _indented(grid)


def _range_label(size: SizeRange) -> str:
    if size.to_bytes is None:
        return f"{format_bytes(size.from_bytes)} and more"
    if size.from_bytes == 0:
        return f"below {format_bytes(size.to_bytes)}"
    return f"{format_bytes(size.from_bytes)} to {format_bytes(size.to_bytes)}"


def _bar(count: int, largest: int) -> str:
    """Draw a bar in eighths of a character, at least one eighth for anything that is not zero."""
    eighths = round(8 * _BAR_WIDTH * count / largest) if largest else 0
    full, part = divmod(max(eighths, 1 if count else 0), 8)
    return "█" * full + _EIGHTHS[part].strip()


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
    files = format_count(len(report.files), "file")
    entries = "entry" if report.action_count == 1 else "entries"
    yield Text(
        f"checkpoint of version {report.version:,} written: {report.action_count:,} {entries} in "
        f"{files}, {format_bytes(report.bytes)}, {report.kind}"
    )


def operation_screen(report: OperationReport) -> Iterable[RenderableType]:
    """Show what an operation did, and the evidence that it changed no row."""
    yield Text(f"{report.operation}: {_outcome_words(report)}", style="bold")
    for row in _operation_rows(report):
        yield Text(f"  {row}")
    for reason, count in report.files_left.items():
        yield Text(f"  {format_count(count, 'file')} left alone: {reason}", style="dim")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _outcome_words(report: OperationReport) -> str:
    groups = format_count(report.groups.planned, "group")
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": "nothing to do",
        "dry_run": f"{groups} of files would be rewritten; nothing was written",
    }[report.outcome]


def _operation_rows(report: OperationReport) -> Iterable[str]:
    if report.outcome != "committed":
        return
    before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
    yield f"{report.files_before:,} files became {report.files_after:,}, {before} became {after}"
    if report.groups.dropped:
        yield f"{format_count(report.groups.dropped, 'group')} lost to concurrent writers"
    if report.proof is not None:
        yield f"{report.proof.rows:,} rows read and written, proved equal by {report.proof.kind}"
    yield f"took {format_duration(timedelta(milliseconds=report.duration_ms))}"


def settings_screen(settings: Settings) -> Iterable[RenderableType]:
    """Show every setting with its value and where the value comes from."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("setting", "value", "from", "what it is"):
        grid.add_column(heading, overflow="fold")
    for setting in SETTINGS:
        value = _setting_words(settings[setting.name], setting.name)
        grid.add_row(setting.name, value, settings.sources[setting.name], setting.help)
    yield grid


def _setting_words(value: object, name: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, timedelta):
        return format_duration(value)
    return format_bytes(value) if isinstance(value, int) and name.endswith("_bytes") else str(value)
