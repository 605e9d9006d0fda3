"""Pictures of pages, as SVG that the server draws: they need no script, and follow the page's CSS.

Shapes have classes, never styles: the policy of the pages allows none. Words stand in HTML around
strips, so that they keep their size on a narrow screen.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from lakehand.model.quantities import format_bytes
from lakehand.service.store.listings import health_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.service.store.listings import Area, Attempt, HealthDay, Measurement
    from lakehand.service.store.records import Job
    from lakehand.web.service_views import WindowTime

#: What templates call.
__all__ = (
    "bar",
    "health_columns",
    "job_strip",
    "score_line",
    "stacked_bar",
    "treemap",
    "week_strip",
)
_DAY_SECONDS = 86_400.0
_WEEK_SECONDS = 7 * _DAY_SECONDS
#: Days of the health of all tables.
_DAYS = 14
#: A label needs an area of this size, in units of the picture.
_LABEL_WIDTH, _LABEL_HEIGHT, _LETTER_WIDTH = 56, 22, 7.2
_SCORE_HEIGHT = 40


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


def bar(part: float, *, kind: str = "accent") -> Markup:
    """Return a horizontal bar that is filled to a part from 0 to 1."""
    width = f"{100 * min(1.0, max(0.0, part)):.2f}"
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/>'
        '<rect class="{}" width="{}" height="8"/></svg>'
    ).format(f"fill-{kind}", width)


def stacked_bar(parts: Mapping[str, float]) -> Markup:
    """Return one bar of several parts, each with the class of its name."""
    total = sum(parts.values()) or 1.0
    x, shapes = 0.0, []
    for kind, value in parts.items():
        width = 100 * value / total
        if width:
            shape = Markup('<rect class="{}" x="{}" width="{}" height="8"><title>{}</title></rect>')
            title = f"{kind}: {value:,.0f}"
            shapes.append(shape.format(f"fill-{kind}", f"{x:.2f}", f"{width:.2f}", title))
        x += width
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/>{}</svg>'
    ).format(Markup().join(shapes))


def health_columns(days: Sequence[HealthDay], now: float) -> Markup:
    """Return a column for each of the last days: how many tables were good, fair and poor."""
    most = max((day.good + day.fair + day.poor for day in days), default=1) or 1
    today = now // _DAY_SECONDS
    shapes = []
    for day in days:
        number, y = _DAYS - 1 - (today - day.day_at // _DAY_SECONDS), 100.0
        for kind in ("good", "fair", "poor"):
            value = getattr(day, kind)
            height = 100 * value / most
            y -= height
            if value:
                shape = Markup(
                    '<rect class="{}" x="{}" y="{}" width="0.84" height="{}">'
                    "<title>{}</title></rect>"
                )
                place = (f"{number + 0.08:.2f}", f"{y:.2f}", f"{height:.2f}")
                shapes.append(shape.format(f"fill-{kind}", *place, f"{value:,} {kind}"))
    return Markup(
        '<svg class="columns" viewBox="0 0 {} 100" preserveAspectRatio="none" role="img" '
        'aria-label="Tables by health and day">{}</svg>'
    ).format(_DAYS, Markup().join(shapes))


def score_line(measurements: Sequence[Measurement], marks: Sequence[float] = ()) -> Markup:
    """Return the health of a table over time; marks are times of jobs."""
    points = [(one.measured_at, one.health_score) for one in measurements]
    known = [(at, score) for at, score in points if score is not None]
    if len(known) < 2:  # noqa: PLR2004  a line has two ends
        return Markup()
    start, end = known[0][0], known[-1][0]
    span = max(end - start, 1.0)

    def place(at: float, score: float) -> str:
        return f"{100 * (at - start) / span:.2f} {_SCORE_HEIGHT * (1 - score / 100):.2f}"

    line = "L".join(place(at, score) for at, score in known)
    shapes = [
        Markup('<path class="mark" d="M{} 0v{}"/>').format(
            f"{100 * (at - start) / span:.2f}", _SCORE_HEIGHT
        )
        for at in marks
        if start <= at <= end
    ]
    return Markup(
        '<svg class="line" viewBox="0 0 100 {}" preserveAspectRatio="none" role="img" '
        'aria-label="Health over time"><path class="grid" d="M0 4h100M0 16h100"/>'
        '{}<path class="area" d="M0 {}L{}L100 {}z"/><path class="stroke" d="M{}"/></svg>'
    ).format(_SCORE_HEIGHT, Markup().join(shapes), _SCORE_HEIGHT, line, _SCORE_HEIGHT, line)


def week_strip(
    windows: Sequence[WindowTime], starts_at: float, now: float, *, enabled: bool
) -> Markup:
    """Return the times of seven days in which jobs may run, from now on."""
    kind = "fill-good" if enabled else "fill-unknown"
    shapes = []
    for window in windows:
        x = 100 * (window.opens_at - starts_at) / _WEEK_SECONDS
        width = 100 * (window.closes_at - window.opens_at) / _WEEK_SECONDS
        shape = Markup('<rect class="{}" x="{}" width="{}" height="8"/>')
        shapes.append(shape.format(kind, f"{x:.3f}", f"{max(width, 0.15):.3f}"))
    days = "".join(f"M{100 * day / 7:.3f} 0v8" for day in range(1, 7))
    return Markup(
        '<svg class="bar week" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        'aria-label="Open {} times in seven days"><rect class="track" width="100" height="8"/>'
        '{}<path class="grid" d="{}"/><path class="now" d="M{} 0v8"/></svg>'
    ).format(
        len(windows),
        Markup().join(shapes),
        days,
        f"{100 * (now - starts_at) / _WEEK_SECONDS:.3f}",
    )


def job_strip(job: Job, attempts: Sequence[Attempt], now: float) -> Markup:
    """Return the time of a job from its request to its end: it waits, and attempts run."""
    start, end = job.queued_at, max(job.ended_at or now, job.queued_at + 0.001)
    shapes = []
    for attempt in attempts:
        x = 100 * (attempt.started_at - start) / (end - start)
        width = 100 * ((attempt.ended_at or end) - attempt.started_at) / (end - start)
        kind = "fill-poor" if attempt.error else "fill-accent"
        shape = Markup('<rect class="{}" x="{}" width="{}" height="8"><title>{}</title></rect>')
        title = f"{attempt.worker_id}: {attempt.outcome or 'running'}"
        shapes.append(shape.format(kind, f"{x:.3f}", f"{max(width, 0.3):.3f}", title))
    return Markup(
        '<svg class="bar week" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        'aria-label="Attempts over time"><rect class="track" width="100" height="8"/>{}</svg>'
    ).format(Markup().join(shapes))


def treemap(
    areas: Sequence[Area], other_bytes: float, *, width: int, height: int, kind: str
) -> Markup:
    """Return all tables as areas: in proportion to their size, coloured by their health."""
    return _treemap(tuple(areas), other_bytes, width, height, kind)


# Pages are made far more often than sizes and health change.
@functools.lru_cache(maxsize=16)
def _treemap(
    areas: tuple[Area, ...], other_bytes: float, width: int, height: int, kind: str
) -> Markup:
    sizes = [area.total_bytes for area in areas]
    if other_bytes > 0:
        sizes.append(other_bytes)
    if not sizes or sum(sizes) <= 0:
        return Markup()
    # Areas are laid out the largest first; the rest of all tables may be larger than all others.
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    boxes = list(_squarified([sizes[number] for number in order], _Box(0, 0, width, height)))
    shapes = [
        _area(areas[number], box) if number < len(areas) else _others(other_bytes, box)
        for number, box in zip(order, boxes, strict=True)
    ]
    return Markup(
        '<svg class="treemap {}" viewBox="0 0 {} {}" role="img" '
        'aria-label="Tables by size and health">{}</svg>'
    ).format(kind, width, height, Markup("".join(shapes)))  # noqa: S704  made above


# Templates of Markup would take most of the time of a page with hundreds of areas: here values are
# numbers, or escaped by hand.
def _area(area: Area, box: _Box) -> str:
    score = "unknown" if area.health_score is None else f"{area.health_score}"
    title = escape(f"{area.name}: {format_bytes(area.total_bytes)}, health {score}")
    kind = health_bucket(area.health_score)
    return (
        f'<a href="/tables/{area.id:d}"><rect class="fill-{kind}" {_inset(box)}>'
        f"<title>{title}</title></rect>{_label(area.name, box)}</a>"
    )


def _others(size: float, box: _Box) -> str:
    return (
        f'<g><rect class="fill-unknown" {_inset(box)}>'
        f"<title>all other tables: {format_bytes(size)}</title></rect>{_label('others', box)}</g>"
    )


def _inset(box: _Box) -> str:
    width, height = max(box.width - 2, 0.5), max(box.height - 2, 0.5)
    place = f'x="{box.x + 1:.1f}" y="{box.y + 1:.1f}"'
    return f'{place} width="{width:.1f}" height="{height:.1f}"'


def _label(name: str, box: _Box) -> str:
    if box.width < _LABEL_WIDTH or box.height < _LABEL_HEIGHT:
        return ""
    letters = int((box.width - 14) / _LETTER_WIDTH)
    short = name if len(name) <= letters else name[: max(letters - 1, 1)] + "…"
    return f'<text x="{box.x + 8:.1f}" y="{box.y + 18:.1f}">{escape(short)}</text>'


def _squarified(sizes: Sequence[float], box: _Box) -> Iterator[_Box]:
    """Yield a box for each size, the largest first, as near to squares as is simple.

    Rows are filled along the shorter side while that makes their boxes squarer.
    """
    left = list(sizes)
    total = sum(left)
    while left:
        side = min(box.width, box.height)
        scale = box.width * box.height / total if total else 0.0
        row = [left[0]]
        while len(row) < len(left) and _worst([*row, left[len(row)]], side, scale) <= _worst(
            row, side, scale
        ):
            row.append(left[len(row)])
        depth = sum(row) * scale / side if side else 0.0
        yield from _row(row, box, depth, scale)
        total -= sum(row)
        left = left[len(row) :]
        box = _rest(box, depth)


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    depth = sum(row) * scale / side if side else 0.0
    if not depth:
        return 1.0
    longest, shortest = (max(size * scale / depth, 1e-9) for size in (row[0], row[-1]))
    return max(depth / shortest, longest / depth)


def _row(row: Sequence[float], box: _Box, depth: float, scale: float) -> Iterator[_Box]:
    at = 0.0
    for size in row:
        length = size * scale / depth if depth else 0.0
        if box.width >= box.height:
            yield _Box(box.x, box.y + at, depth, length)
        else:
            yield _Box(box.x + at, box.y, length, depth)
        at += length


def _rest(box: _Box, depth: float) -> _Box:
    if box.width >= box.height:
        return _Box(box.x + depth, box.y, max(box.width - depth, 0.0), box.height)
    return _Box(box.x, box.y + depth, box.width, max(box.height - depth, 0.0))
