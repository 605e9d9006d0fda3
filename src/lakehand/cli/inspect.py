"""`lakehand inspect`: key figures of a table, and a picture of its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.assess.layout_picture import PICTURE_COLUMNS, draw_inspection
from lakehand.cli.output import print_document, print_lines, print_screen
from lakehand.cli.shared_options import (
    open_for_command,
    setting_option,
    table_options,
    timestamp_option,
    version_option,
)
from lakehand.errors import NotInstalledError
from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.assess.health_score import Health
    from lakehand.assess.inspection import ColumnLayout, Inspection, Layout, SizeRange
    from lakehand.model.snapshot import Snapshot
    from lakehand.table import Table


@click.command()
@table_options
@version_option
@timestamp_option
@click.option("--files", "list_files", is_flag=True, help="Also list every file.")
@click.option(
    "--orphans",
    is_flag=True,
    help="Also list storage, and every file that no version within the retention needs.",
)
@click.option(
    "--by",
    metavar="COLUMNS",
    default="",
    help="Comma-separated columns: show how much the files overlap in them.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Draw the files over the two columns of --by, as SVG.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the state as one HTML file; with two columns in --by, including the picture.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def inspect(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    list_files: bool,  # noqa: FBT001
    orphans: bool,  # noqa: FBT001
    by: str,
    picture: Path | None,
    target_file_bytes: int | None,
    **moment: Any,
) -> None:
    """Show the state of TABLE, in numbers. Reads only.

    TABLE is a path or a URL (s3://, r2://, az://, gs://, file://).
    """
    from lakehand.cli.file_lists import file_lines, file_records, orphan_lines, orphan_records
    from lakehand.model.order import column_names

    html: Path | None = moment.pop("html")
    if orphans and list_files:
        raise click.UsageError("--files and --orphans exclude each other")
    columns = column_names(by)
    if picture is not None and len(columns) != PICTURE_COLUMNS:
        raise click.UsageError("--picture needs two columns: --by a,b")
    opened = open_for_command(table, storage_options, target_file_bytes=target_file_bytes)
    snapshot = opened.snapshot(statistics=columns, **moment)
    report = opened.inspect_snapshot(snapshot, by=columns)
    if picture is not None:
        _draw(report, snapshot, picture)
    if html is not None:
        _write_page(opened, report, snapshot, html)
    strays = opened.orphans() if orphans else None
    if as_json:
        records = ("files", file_records(snapshot)) if list_files else None
        records = records if strays is None else ("orphans", orphan_records(strays))
        print_document(report.to_json(), records=records)
        return
    print_screen(*inspection_screen(report))
    if list_files:
        print_lines(file_lines(snapshot))
    if strays is not None:
        print_lines(orphan_lines(strays))


def _draw(report: Inspection, snapshot: Snapshot, file: Path) -> None:
    try:
        file.write_text(draw_inspection(report, snapshot.files))
    except OSError as error:
        raise click.FileError(str(file), hint=error.strerror) from error


def _write_page(table: Table, report: Inspection, snapshot: Snapshot, file: Path) -> None:
    try:
        from lakehand.web.pages import standalone_page
        from lakehand.web.table_content import read_table
    except ModuleNotFoundError as error:
        message = f"--html needs the package {error.name}, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[web]"') from error
    columns = () if report.layout is None else report.layout.columns
    content = read_table(table, snapshot=snapshot, by=columns)
    is_drawn = len(columns) == PICTURE_COLUMNS
    picture = draw_inspection(report, snapshot.files) if is_drawn else None
    try:
        file.write_text(standalone_page(content, picture))
    except OSError as error:
        raise click.FileError(str(file), hint=error.strerror) from error


_BAR_WIDTH = 32


_GOOD_SCORE, _FAIR_SCORE = 90, 60


_LAYOUT_HEADS = ("overlap depth", "deepest", "files skipped", "")


_EIGHTHS = " ▏▎▍▌▋▊▉"


def inspection_screen(report: Inspection) -> Iterable[RenderableType]:
    """Show a table: its health and the reasons, its key figures, and its file sizes."""
    at = report.at.strftime("%Y-%m-%d %H:%M:%S UTC")
    yield Text(report.table, style="bold", overflow="fold")
    yield Text(f"{report.format} table, version {report.version:,} of {at}", style="dim")
    yield Text()
    yield _health(report.health)
    yield Text()
    yield _numbers(report)
    if report.file_count:
        yield Text()
        yield _histogram(report.sizes, small_bytes=report.small_file_bytes)
    if report.layout is not None:
        yield Text()
        yield _layout(report.layout)


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
    grid.add_column(style="dim", justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    # On a narrow screen only the bars shrink: their column must be allowed to wrap.
    grid.add_column()
    grid.add_row("file size", Text("files", style="dim"), Text("bytes", style="dim"), "")
    largest = max((size.file_count for size in sizes), default=0)
    for size in sizes:
        is_small = size.to_bytes is not None and size.to_bytes <= small_bytes
        style = "yellow" if is_small else "green"
        bar = Text(_bar(size.file_count, largest), style=style, no_wrap=True, overflow="crop")
        grid.add_row(
            _range_label(size), f"{size.file_count:,}", format_bytes(size.total_bytes), bar
        )
    return _indented(grid)


def _layout(layout: Layout) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for _ in range(3):
        grid.add_column(justify="right")
    grid.add_column()
    grid.add_row("overlap in", *(Text(name, style="dim") for name in _LAYOUT_HEADS))
    for each in layout.by_column:
        missing = each.files_without_bounds
        note = f"{format_count(missing, 'file')} without bounds" if missing else ""
        grid.add_row(each.column, *_depths(each), note)
    if len(layout.columns) > 1:
        grid.add_row("all columns", *_depths(layout), "")
    return _indented(grid)


def _depths(layout: Layout | ColumnLayout) -> tuple[str, str, str]:
    skipped = "unknown" if layout.skip_rate is None else f"{layout.skip_rate:.1%}"
    return f"{layout.overlap_depth:,.1f}", f"{layout.max_overlap_depth:,}", skipped


def _range_label(size: SizeRange) -> str:
    if size.to_bytes is None:
        return f"{format_bytes(size.from_bytes)} and more"
    if size.from_bytes == 0:
        return f"below {format_bytes(size.to_bytes)}"
    return f"{format_bytes(size.from_bytes)} to {format_bytes(size.to_bytes)}"


def _bar(count: int, largest: int) -> str:
    """Draw a bar in eighths of a character, at least one eighth for any nonzero value."""
    eighths = round(8 * _BAR_WIDTH * count / largest) if largest else 0
    full, part = divmod(max(eighths, 1 if count else 0), 8)
    return "█" * full + _EIGHTHS[part].strip()
