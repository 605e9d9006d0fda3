"""Windows by a check of every minute: slow, and simple enough to be believed."""

from __future__ import annotations

import functools
from datetime import timedelta

HOURS, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@functools.cache
def values_of(field, most):
    """Return the values of a field of a cron expression."""
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = ("0", "-", str(most)) if span == "*" else span.partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def is_shown(expression, shown):
    """Whether an expression names a time that a clock shows."""
    minute, hour, _, _, weekday = expression.split()
    return (
        shown.minute in values_of(minute, 59)
        and shown.hour in values_of(hour, 23)
        and shown.isoweekday() % 7 in values_of(weekday, 6)
    )


def is_due(expression, zone, moment):
    """Whether an expression is due in a minute: by the clock, and what it has skipped."""
    shown = moment.astimezone(zone)
    if expression.split()[0].startswith("*") or expression.split()[1].startswith("*"):
        return is_shown(expression, shown)
    before = (moment - MINUTE).astimezone(zone).replace(tzinfo=None)
    skipped = int((shown.replace(tzinfo=None) - before) / MINUTE)
    is_second_time = shown.fold == 1
    return not is_second_time and any(
        is_shown(expression, shown.replace(tzinfo=None) - back * MINUTE)
        for back in range(max(skipped, 1))
    )


def open_minutes(windows, start, end):
    """Return whether each minute of a period is open, by looking at every minute before."""
    before = int(25 * HOURS / MINUTE)
    minutes = int((end - start) / MINUTE)
    states = [not windows.open] * minutes
    for group, state in ((windows.open, True), (windows.quiet, False)):
        for one in group:
            for first in range(-before, minutes):
                if is_due(one.opens.expression, windows.zone, start + first * MINUTE):
                    last = min(first + int(one.duration / MINUTE), minutes)
                    for minute in range(max(first, 0), last):
                        states[minute] = state
    return states
