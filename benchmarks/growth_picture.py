"""Growth as a picture: one panel per curve, both axes from zero, in plain SVG."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from chart import STYLE

_WIDTH, _MARGIN, _GAP = 860, 24, 30
_PANEL_WIDTH, _PANEL_HEIGHT, _TITLE, _AXIS = 250, 150, 44, 34
_ACROSS = 3
_LABEL_WIDTH = 34
_LINES = """
  .line { fill: none; stroke: #1a7f64; stroke-width: 2 }
  .point { fill: #1a7f64 }
  @media (prefers-color-scheme: dark) { .line { stroke: #3fb68b } .point { fill: #3fb68b } }
"""
_LEGEND = (
    "CPU seconds of all processes (medians). Both axes begin at zero; on a straight line, work"
    " grows with the table."
)


def draw_curves(curves: list[tuple[str, str, list[dict]]]) -> str:
    """Return a panel for each: what grows, what is done, and the points."""
    rows = math.ceil(len(curves) / _ACROSS)
    step = _TITLE + _PANEL_HEIGHT + _AXIS + _GAP
    height = 2 * _MARGIN + rows * step - _GAP + 20
    parts = []
    for number, (unit, work, points) in enumerate(curves):
        left = _MARGIN + 20 + (number % _ACROSS) * (_PANEL_WIDTH + _GAP)
        parts += _panel(left, _MARGIN + number // _ACROSS * step, unit, work, points)
    parts.append(f'<text class="quiet" x="{_MARGIN}" y="{height - 12}">{_LEGEND}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'width="{_WIDTH}" height="{height}">\n<title>How work grows with the table</title>\n'
        f"<style>{STYLE}{_LINES}</style>\n"
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="6"/>\n{body}\n</svg>\n'
    )


def _panel(left: float, top: float, unit: str, work: str, points: list[dict]) -> list[str]:
    width, ground = _PANEL_WIDTH - 40, top + _TITLE + _PANEL_HEIGHT
    most = points[-1]["size"]
    step = _step(max(point["cpu_seconds"] for point in points))
    lines = math.ceil(max(point["cpu_seconds"] for point in points) / step)

    def x(size: float) -> float:
        return round(left + size / most * width, 1)

    def y(value: float) -> float:
        return round(ground - value / (lines * step) * _PANEL_HEIGHT, 1)

    parts = [
        f'<text class="title" x="{left - 20}" y="{top + 14}">{escape(work)}</text>',
        f'<text class="quiet" x="{left - 20}" y="{top + 31}">by {escape(unit)}</text>',
    ]
    for number in range(lines + 1):
        at = y(number * step)
        parts.append(f'<path class="grid" d="M{left} {at}H{left + width}"/>')
        parts.append(
            f'<text class="quiet end" x="{left - 5}" y="{at + 4}">{number * step:g}</text>'
        )
    route = "L".join(f"{x(point['size'])} {y(point['cpu_seconds'])}" for point in points)
    parts.append(f'<path class="line" d="M{route}"/>')
    labelled = -_LABEL_WIDTH
    for point in points:
        at = x(point["size"])
        parts.append(f'<circle class="point" r="3.5" cx="{at}" cy="{y(point["cpu_seconds"])}"/>')
        if at - labelled >= _LABEL_WIDTH:
            text = _short(point["size"])
            parts.append(f'<text class="quiet middle" x="{at}" y="{ground + 18}">{text}</text>')
            labelled = at
    return parts


def _step(most: float) -> float:
    """Return a round number that fits two to five times into `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(power * part for part in (0.2, 0.5, 1, 2) if most / (power * part) <= 5)


def _short(number: int) -> str:
    for size, letter in ((10**6, " M"), (1000, " k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return str(number)
