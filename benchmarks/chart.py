"""The results as a picture: bars on a logarithmic scale, in plain SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from labels import OURS, label_of, seconds_text, times_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcomes import Comparison, Report, Result

_WIDTH, _MARGIN, _LABEL_WIDTH, _BAR_WIDTH = 860, 24, 180, 480
_TITLE_HEIGHT, _ROW_HEIGHT, _BAR_HEIGHT, _GAP, _AXIS_HEIGHT = 30, 26, 16, 18, 38
_LEFT = _MARGIN + _LABEL_WIDTH
_BASELINES = ("duckdb", "bytes")
_LEGEND = (
    f"Median, with a mark at the worst run; in times of {label_of(OURS[0])}. Logarithmic scale."
)

# The picture brings its own ground, so that it reads on pages of any colour.
STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px } .quiet { fill: #59636e; font-size: 12px }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .grid { stroke: #d0d7de } .worst { stroke: #1f2328; stroke-width: 1.5 }
  .ours { fill: #1a7f64 } .peer { fill: #8c959f } .baseline { fill: #c7cdd4 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .quiet { fill: #9198a1 }
    .grid { stroke: #2f353d } .worst { stroke: #e6edf3 }
    .ours { fill: #3fb68b } .peer { fill: #6e7681 } .baseline { fill: #434a53 }
  }
"""


def picture(report: Report) -> str:
    """Return one panel a workload, all on one scale of seconds."""
    scale = _Scale(report)
    parts, top = [], _MARGIN
    for comparison in report.comparisons:
        parts += _panel(comparison, scale, top)
        top += _panel_height(comparison) + _GAP
    height = top + _AXIS_HEIGHT
    body = "\n".join([*_axis(scale, top), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'width="{_WIDTH}" height="{height}">\n'
        f"<title>{escape(_summary(report))}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="6"/>\n'
        f"{body}\n</svg>\n"
    )


class _Scale:
    """Places seconds on the axis, in whole powers of ten."""

    def __init__(self, report: Report) -> None:
        results = [one for comparison in report.comparisons for one in comparison.results]
        shortest = min(one.median_seconds for one in results if one.runs)
        longest = max(one.worst_seconds for one in results if one.runs)
        # Half a bar at least: on this scale no bar has a true beginning.
        self.first = math.floor(math.log10(shortest / 2))
        self.last = math.log10(longest)

    def x(self, seconds: float) -> float:
        part = (math.log10(seconds) - self.first) / (self.last - self.first)
        return round(_LEFT + part * _BAR_WIDTH, 1)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.first, math.floor(self.last) + 1)]


def _panel_height(comparison: Comparison) -> int:
    return _TITLE_HEIGHT + len(comparison.results) * _ROW_HEIGHT


def _panel(comparison: Comparison, scale: _Scale, top: int) -> Iterator[str]:
    yield _text(_MARGIN, top + 14, comparison.title, "title")
    for seconds in scale.ticks:
        start, length = top + _TITLE_HEIGHT - 6, len(comparison.results) * _ROW_HEIGHT
        yield f'<path class="grid" d="M{scale.x(seconds)} {start}v{length}"/>'
    base = comparison.result(OURS[0]) or comparison.result(OURS[1])
    for number, result in enumerate(comparison.results):
        middle = top + _TITLE_HEIGHT + number * _ROW_HEIGHT + _BAR_HEIGHT // 2
        yield _text(_LEFT - 10, middle + 4, label_of(result.name), "end")
        if result.runs and result.after is not None:
            yield from _bar(result, scale, middle, base)
        else:
            yield _text(_LEFT + 4, middle + 4, "cannot", "quiet")


def _bar(result: Result, scale: _Scale, middle: int, base: Result | None) -> Iterator[str]:
    kind = "ours" if result.name in OURS else "baseline" if result.name in _BASELINES else "peer"
    end, worst = scale.x(result.median_seconds), scale.x(result.worst_seconds)
    yield (
        f'<rect class="{kind}" x="{_LEFT}" y="{middle - _BAR_HEIGHT // 2}" '
        f'width="{end - _LEFT:.1f}" height="{_BAR_HEIGHT}" rx="2"/>'
    )
    yield f'<path class="worst" d="M{end} {middle}H{worst}M{worst} {middle - 4}v8"/>'
    yield _text(worst + 8, middle + 4, _value(result, base), "")


def _value(result: Result, base: Result | None) -> str:
    words = [f"{seconds_text(result.median_seconds)} s"]
    if base is not None and result is not base:
        words.append(times_text(result.median_seconds / base.median_seconds))
    if result.is_same_rows is False:
        words.append("wrong rows")
    return " · ".join(words)


def _axis(scale: _Scale, bottom: int) -> Iterator[str]:
    for seconds in scale.ticks:
        yield _text(scale.x(seconds), bottom, f"{seconds:g} s", "quiet middle")
    yield _text(_LEFT, bottom + 22, _LEGEND, "quiet")


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def _summary(report: Report) -> str:
    """Say what the picture shows to those who cannot see it."""
    return "; ".join(
        f"{comparison.title}: "
        + ", ".join(
            f"{label_of(result.name)} {seconds_text(result.median_seconds)} s"
            for result in comparison.results
            if result.runs
        )
        for comparison in report.comparisons
    )
