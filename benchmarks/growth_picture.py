"""Growth as a picture: one panel per curve, both axes logarithmic, in plain SVG."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from chart import STYLE

_WIDTH, _MARGIN, _GAP = 860, 24, 30
_PANEL_WIDTH, _PANEL_HEIGHT, _TITLE, _AXIS = 250, 150, 44, 34
_ACROSS = 3
_LINES = """
  .line { fill: none; stroke: #1a7f64; stroke-width: 2 }
  .linear { stroke: #8c959f; stroke-dasharray: 3 4 }
  .point { fill: #1a7f64 }
  @media (prefers-color-scheme: dark) { .line { stroke: #3fb68b } .point { fill: #3fb68b } }
"""


def draw_curves(curves: list[tuple[str, str, list[dict]]]) -> str:
    """Return a panel for each: what grows, what is done, and the points."""
    rows = math.ceil(len(curves) / _ACROSS)
    step = _TITLE + _PANEL_HEIGHT + _AXIS + _GAP
    height = 2 * _MARGIN + rows * step - _GAP + 20
    parts = []
    for number, (unit, work, points) in enumerate(curves):
        left = _MARGIN + 20 + (number % _ACROSS) * (_PANEL_WIDTH + _GAP)
        parts += _panel(left, _MARGIN + number // _ACROSS * step, unit, work, points)
    legend = "Seconds (medians), both axes logarithmic. Dashed: growth that is linear."
    parts.append(f'<text class="quiet" x="{_MARGIN}" y="{height - 12}">{legend}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'width="{_WIDTH}" height="{height}">\n<title>How time grows</title>\n'
        f"<style>{STYLE}{_LINES}</style>\n"
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="6"/>\n{body}\n</svg>\n'
    )


def _panel(left: float, top: float, unit: str, work: str, points: list[dict]) -> list[str]:
    width, height = _PANEL_WIDTH - 40, _PANEL_HEIGHT
    first, last = (math.log10(points[end]["size"]) for end in (0, -1))
    seconds = [point["seconds"] for point in points]
    # The dashed line begins at the first point, and must fit as well.
    linear = seconds[0] * points[-1]["size"] / points[0]["size"]
    low = math.floor(math.log10(min(seconds)))
    high = max(low + 1, math.ceil(math.log10(max(seconds))))
    ground = top + _TITLE + height

    def x(size: float) -> float:
        return round(left + (math.log10(size) - first) / (last - first) * width, 1)

    def y(value: float) -> float:
        return round(ground - (math.log10(value) - low) / (high - low) * height, 1)

    parts = [
        f'<text class="title" x="{left - 20}" y="{top + 14}">{escape(work)}</text>',
        f'<text class="quiet" x="{left - 20}" y="{top + 31}">by {escape(unit)}</text>',
    ]
    for power in range(low, high + 1):
        at, text = y(10.0**power), f"{10.0**power:g}"
        parts.append(f'<path class="grid" d="M{left} {at}H{left + width}"/>')
        parts.append(f'<text class="quiet end" x="{left - 5}" y="{at + 4}">{text}</text>')
    end = min(points[-1]["size"], points[0]["size"] * 10.0**high / seconds[0])
    parts.append(
        f'<path class="line linear" d="M{x(points[0]["size"])} {y(seconds[0])}'
        f'L{x(end)} {y(min(linear, 10.0**high))}"/>'
    )
    route = "L".join(f"{x(point['size'])} {y(point['seconds'])}" for point in points)
    parts.append(f'<path class="line" d="M{route}"/>')
    for point in points:
        at = x(point["size"])
        parts.append(f'<circle class="point" r="3.5" cx="{at}" cy="{y(point["seconds"])}"/>')
        parts.append(
            f'<text class="quiet middle" x="{at}" y="{ground + 18}">{_short(point["size"])}</text>'
        )
    return parts


def _short(number: int) -> str:
    for size, letter in ((10**6, " M"), (1000, " k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return str(number)
