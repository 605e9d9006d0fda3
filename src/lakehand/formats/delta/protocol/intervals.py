"""Durations as table properties spell them: `interval 1 week`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand.errors import ValidationError
from lakehand.model.quantities import MAX_DURATION

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Mapping[str, timedelta] = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_MICROSECOND = timedelta(microseconds=1)
_MOST_SHOWN = 80
_TERM = r"([+-]?\d+)\s+([a-z]+?)s?(?=\s|$)"
_INTERVAL = re.compile(rf"(?:interval\s+)?{_TERM}(?:\s+{_TERM})*")


def parse_interval(text: str) -> timedelta:
    """Return the duration that `text` spells; ValueError if it is none or negative.

    >>> parse_interval("interval 1 week 12 hours")
    datetime.timedelta(days=7, seconds=43200)
    """
    plain = text.strip().lower()
    if _INTERVAL.fullmatch(plain) is None:
        raise ValueError(f"{text!r} is not an interval such as 'interval 7 days'")
    total = sum(_microseconds(text, *term) for term in re.findall(_TERM, plain))
    if total < 0:
        raise ValueError(f"{text!r} is a negative interval")
    return timedelta(microseconds=min(total, MAX_DURATION // _MICROSECOND))


def interval_property(properties: Mapping[str, str], name: str, default: str) -> timedelta:
    """Return the duration in the table property `name`, or `default` where it is not set."""
    text = properties.get(name, default)
    try:
        return parse_interval(text)
    except (ValueError, OverflowError) as error:
        raise ValidationError(
            f"the table property {name} cannot be read: {error}",
            field=name,
            value=text,
            hint=f"Set it to an interval of weeks or smaller units, e.g. '{default}'.",
        ) from error


def integer_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return the number in the table property `name`, or `default` where it is not set."""
    text = properties.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise ValidationError(
            f"the table property {name} is {text[:_MOST_SHOWN]!r} and not a number",
            field=name,
            value=text,
            hint=f"Set it to a number, e.g. '{default}'.",
        ) from error


def _microseconds(text: str, count: str, unit: str) -> int:
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise ValueError(f"{text!r} is no interval of fixed length: {unit} is none of {known}")
    return int(count) * (_UNITS[unit] // _MICROSECOND)
