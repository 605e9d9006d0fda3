"""A picture of a table's files over two columns: how much they overlap."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakehand.errors import ValidationError
from lakehand.model.quantities import format_count
from lakehand.planning.file_bounds import dense_ranks, extent_of_ranks, extents_of, value_bounds
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.quantiles import STEPS, quantiles_of_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakehand.assess.inspection import Inspection

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
#: Columns of a picture.
PICTURE_COLUMNS = 2
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


def draw_inspection(
    report: Inspection, files: pa.Table, *, max_drawn: int = _MAX_DRAWN, with_style: bool = True
) -> str:
    """Return the picture of the inspected table, over its two columns.

    Without its style, it has that of the page around it.
    """
    if report.layout is None:
        raise ValidationError("a picture is drawn over two columns", field="by")
    title = f"{report.table.rstrip('/').rpartition('/')[2]}, version {report.version:,}"
    note = f"questions skip {report.layout.skip_rate:.0%} of them"
    panel = Panel(title=title, files=files, note=note)
    scales = scales_of(files, report.layout.columns)
    return draw_files([panel], scales, max_drawn=max_drawn, with_style=with_style)


def draw_files(
    panels: Sequence[Panel],
    scales: Mapping[str, pa.Array],
    *,
    max_drawn: int = _MAX_DRAWN,
    with_style: bool = True,
) -> str:
    """Return an SVG with a square for each panel, in one row, over the same two axes."""
    panel_width, height = _LEFT + _SIDE + _RIGHT, _TOP + _SIDE + _BOTTOM
    width = panel_width * len(panels)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
        f"<style>{_STYLE}</style>" if with_style else "",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * panel_width + _LEFT} {_TOP})">')
        parts.extend(_panel(panel, scales, max_drawn))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, scales: Mapping[str, pa.Array], max_drawn: int) -> Iterator[str]:
    across, upward = scales
    spans = [_span(panel.files, column, scale) for column, scale in scales.items()]
    depth = overlap_depth(extents_of(panel.files, list(scales)))
    drawn = np.flatnonzero(depth.by_file)
    step = -(-len(drawn) // max_drawn) or 1
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
