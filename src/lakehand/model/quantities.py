"""Sizes, counts and durations as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60
_HOURS_PER_DAY = 24


def format_bytes(count: float) -> str:
    """Write a size with the unit that keeps it short.

    >>> format_bytes(134_217_728)
    '128 MiB'
    >>> format_bytes(1536)
    '1.5 KiB'
    """
    value = float(count)
    for unit in _BYTE_UNITS[:-1]:
        # 1023.95 would be printed as 1024.0: the next unit says it better.
        if round(value, 1) < _STEP:
            return f"{_short(value)} {unit}"
        value /= _STEP
    return f"{_short(value)} {_BYTE_UNITS[-1]}"


def format_count(count: int, noun: str) -> str:
    """Write a number of things.

    >>> format_count(1, "file"), format_count(12_000, "file")
    ('1 file', '12,000 files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_duration(duration: timedelta) -> str:
    """Write a duration with the two units that matter.

    >>> from datetime import timedelta
    >>> format_duration(timedelta(milliseconds=250)), format_duration(timedelta(hours=25))
    ('250 ms', '1 d 1 h')
    """
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _SECONDS_PER_MINUTE:
        return f"{_short(seconds)} s"
    minutes, rest = divmod(round(seconds), _SECONDS_PER_MINUTE)
    if minutes < _MINUTES_PER_HOUR:
        return _pair(minutes, "min", rest, "s")
    hours, minutes = divmod(minutes, _MINUTES_PER_HOUR)
    if hours < _HOURS_PER_DAY:
        return _pair(hours, "h", minutes, "min")
    days, hours = divmod(hours, _HOURS_PER_DAY)
    return _pair(days, "d", hours, "h")


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
