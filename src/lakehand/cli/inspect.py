"""`lakehand inspect`: key figures of a table, and a picture of its files."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import click
import numpy as np
import pyarrow as pa
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_document, print_lines, print_screen
from lakehand.cli.shared_options import (
    open_for_command,
    setting_option,
    table_options,
    timestamp_option,
    version_option,
)
from lakehand.errors import NotInstalledError, ValidationError
from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.file_bounds import dense_ranks, extent_of_ranks, extents_of, value_bounds
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.quantiles import STEPS, quantiles_of_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from rich.console import RenderableType

    from lakehand.assess.health_score import Health
    from lakehand.assess.inspection import ColumnLayout, Inspection, Layout, SizeRange
    from lakehand.model.snapshot import Snapshot
    from lakehand.table import Table

if TYPE_CHECKING:
    Pixels = NDArray[np.float64]

#: Length of an axis; the margin is for values and labels.
_SIDE = 440
_LEFT, _TOP, _RIGHT, _BOTTOM = 104, 74, 44, 62
_TICKS = 5
_LONGEST_LABEL = 13
#: Integers from here on are written with three digits and an exponent.
_LARGE = 10**8
#: More files than this are sampled evenly.
_MAX_DRAWN = 10_000
#: A file is drawn at least this wide and high.
_SMALLEST = 1.2
#: Opacity at the average overlap depth.
_DARKNESS = 0.55
_FAINTEST, _DARKEST = 0.03, 0.5

_STYLE = """
text { font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 12px; fill: #5c6773; }
.title { font-size: 16px; font-weight: 600; fill: #1c2733; }
.axis { font-size: 13px; font-weight: 600; fill: #1c2733; }
.paper { fill: #ffffff; }
.frame { fill: none; stroke: #c9d1d9; }
.tick { stroke: #c9d1d9; }
.file { fill: #0b6bcb; stroke: #0b6bcb; stroke-width: 0.6; }
@media (prefers-color-scheme: dark) {
  text { fill: #9aa5b1; }
  .title, .axis { fill: #e6edf3; }
  .paper { fill: #0d1117; }
  .frame, .tick { stroke: #30363d; }
  .file { fill: #6cb6ff; stroke: #6cb6ff; }
}
""".strip()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Panel:
    """One picture of files: a table with `rows` and `bounds`, and its title."""

    title: str
    files: pa.Table
    #: A note below the title.
    note: str = ""


def scales_of(files: pa.Table, columns: Sequence[str]) -> dict[str, pa.Array]:
    """Return the axis values of each column, from the bounds of `files`."""
    rows = np.from_dlpack(files["rows"].fill_null(1).combine_chunks()).astype(np.int64)
    return {column: quantiles_of_bounds(value_bounds(files, column), rows) for column in columns}


def draw_inspection(report: Inspection, files: pa.Table) -> str:
    """Return the picture of the inspected table, over its two columns."""
    if report.layout is None:
        raise ValidationError("a picture is drawn over two columns", field="by")
    title = f"{report.table.rstrip('/').rpartition('/')[2]}, version {report.version:,}"
    note = f"questions skip {report.layout.skip_rate:.0%} of them"
    panel = Panel(title=title, files=files, note=note)
    return draw_files([panel], scales_of(files, report.layout.columns))


def draw_files(panels: Sequence[Panel], scales: Mapping[str, pa.Array]) -> str:
    """Return an SVG with a square for each panel, in one row, over the same two axes."""
    panel_width, height = _LEFT + _SIDE + _RIGHT, _TOP + _SIDE + _BOTTOM
    width = panel_width * len(panels)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * panel_width + _LEFT} {_TOP})">')
        parts.extend(_panel(panel, scales))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, scales: Mapping[str, pa.Array]) -> Iterator[str]:
    across, upward = scales
    spans = [_span(panel.files, column, scale) for column, scale in scales.items()]
    depth = overlap_depth(extents_of(panel.files, list(scales)))
    drawn = np.flatnonzero(depth.by_file)
    step = -(-len(drawn) // _MAX_DRAWN) or 1
    chosen = drawn[::step]
    yield f'<text class="title" x="0" y="-42">{escape(panel.title)}</text>'
    caption = _caption(panel, depth.average, len(chosen))
    yield f'<text x="0" y="-20">{escape(caption)}</text>'
    yield from _axes(across, upward, scales)
    yield f'<g class="file" fill-opacity="{_opacity(depth.average / step)}" stroke-opacity="0.35">'
    yield from _rectangles(spans[0], spans[1], chosen)
    yield "</g>"


def _caption(panel: Panel, depth: float, drawn: int) -> str:
    total = panel.files.num_rows
    shown = "" if drawn == total else f", {drawn:,} of them drawn"
    parts = [f"{format_count(total, 'file')}{shown}", f"average overlap depth {depth:,.1f}"]
    return "; ".join([*parts, panel.note] if panel.note else parts)


def _opacity(depth: float) -> str:
    return f"{np.clip(_DARKNESS / max(depth, 1), _FAINTEST, _DARKEST):.3f}"


def _span(files: pa.Table, column: str, scale: pa.Array) -> tuple[Pixels, Pixels]:
    """Return where on the axis each file starts and ends, from 0 to 1."""
    bounds = value_bounds(files, column)
    values = pa.concat_arrays([bounds.low, bounds.high, scale.cast(bounds.low.type)])
    ranks, count = dense_ranks(values)
    extent = extent_of_ranks(bounds, ranks, rank_count=max(count, 1))
    marks = ranks[2 * files.num_rows :]
    start = np.searchsorted(marks, extent.low, side="left") / STEPS
    end = np.searchsorted(marks, extent.high, side="right") / STEPS
    return np.clip(start, 0, 1), np.clip(end, 0, 1)


def _rectangles(
    across: tuple[Pixels, Pixels], upward: tuple[Pixels, Pixels], chosen: NDArray[np.int64]
) -> Iterator[str]:
    x, width = _placed(*across, chosen)
    y, height = _placed(*upward, chosen)
    top = _SIDE - y - height
    corners = np.round(np.stack([x, top, width, height], axis=1), 1)
    for left, above, wide, high in corners.tolist():
        yield f'<path d="M{left:g} {above:g}h{wide:g}v{high:g}h{-wide:g}z"/>'


def _placed(start: Pixels, end: Pixels, chosen: NDArray[np.int64]) -> tuple[Pixels, Pixels]:
    length = np.maximum((end - start)[chosen] * _SIDE, _SMALLEST)
    return np.minimum(start[chosen] * _SIDE, _SIDE - length), length


def _axes(across: str, upward: str, scales: Mapping[str, pa.Array]) -> Iterator[str]:
    yield f'<rect class="frame" width="{_SIDE}" height="{_SIDE}"/>'
    middle = _SIDE / 2
    yield _text(middle, _SIDE + 46, across, kind="axis", anchor="middle")
    turned = f'text-anchor="middle" transform="translate(-86 {middle:g}) rotate(-90)"'
    yield f'<text class="axis" {turned}>{escape(upward)}</text>'
    for place_, label in _labels(scales[across]):
        yield f'<path class="tick" d="M{place_:g} {_SIDE}v5"/>'
        yield _text(place_, _SIDE + 21, label, anchor="middle")
    for place_, label in _labels(scales[upward]):
        yield f'<path class="tick" d="M0 {_SIDE - place_:g}h-5"/>'
        yield _text(-9, _SIDE - place_ + 4, label, anchor="end")


def _labels(scale: pa.Array) -> Iterator[tuple[float, str]]:
    parts = [number / (_TICKS - 1) for number in range(_TICKS if len(scale) else 0)]
    values = [scale[round(part * (len(scale) - 1))].as_py() for part in parts]
    for part, value in zip(parts, values, strict=True):
        is_time = isinstance(value, dt.datetime)
        text = value.strftime(_time_format(values)) if is_time else _label(value)
        yield part * _SIDE, _shortened(text)


def _time_format(values: Sequence[dt.datetime]) -> str:
    """Return the time format, without parts that all times share or that are too fine."""
    span = values[-1] - values[0]
    if span > dt.timedelta(days=_TICKS):
        return "%Y-%m-%d"
    return "%m-%d %H:%M" if span > dt.timedelta(minutes=_TICKS) else "%H:%M:%S"


def _text(x: float, y: float, words: str, *, kind: str = "", anchor: str) -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _label(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}" if abs(value) < _LARGE else f"{value:.3g}"
        case float() | Decimal():
            return f"{value:.4g}"
        case bytes():
            return value.hex()
    return str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


_PICTURE_COLUMNS = 2


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
    help="Write a page that needs no service; with two columns in --by also the picture.",
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
    if picture is not None and len(columns) != _PICTURE_COLUMNS:
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
    is_drawn = len(columns) == _PICTURE_COLUMNS
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
