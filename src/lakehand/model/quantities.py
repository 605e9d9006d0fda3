"""Parses and formats sizes, counts, durations and times."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60
_HOURS_PER_DAY = 24
#: A shorter time ago, in seconds, is now.
_JUST_NOW = 1.0


def format_bytes(count: float) -> str:
    """Format a size with the unit that keeps it short.

    >>> format_bytes(134_217_728)
    '128 MiB'
    >>> format_bytes(1536)
    '1.5 KiB'
    """
    value = float(count)
    for unit in _BYTE_UNITS[:-1]:
        # 1023.95 would be printed as 1024.0: use the next unit.
        if round(value, 1) < _STEP:
            return f"{_short(value)} {unit}"
        value /= _STEP
    return f"{_short(value)} {_BYTE_UNITS[-1]}"


def format_count(count: int, noun: str) -> str:
    """Format a number of things.

    >>> format_count(1, "file"), format_count(12_000, "file")
    ('1 file', '12,000 files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_duration(duration: timedelta) -> str:
    """Format a duration with its two largest units.

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


def format_ago(at: float | None, now: float) -> str:
    """Format a time as how long ago it was, or how long it is until then, by its largest unit.

    >>> format_ago(100.0, 170.0), format_ago(None, 160.0)
    ('1 min ago', '-')
    """
    if at is None:
        return "-"
    seconds = now - at
    if abs(seconds) < _JUST_NOW:
        return "just now"
    duration = " ".join(format_duration(timedelta(seconds=abs(round(seconds)))).split()[:2])
    return f"{duration} ago" if seconds > 0 else f"in {duration}"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


#: Longer durations are reduced to this: they would exceed the range of dates and waits.
MAX_DURATION = timedelta(days=100_000)
#: Engines read sizes and counts as signed 64-bit integers.
_MAX_BYTES = _MAX_COUNT = 2**63 - 1
_UTC = "UTC"
_OFFSET = re.compile(r"[+-]([01][0-9]|2[0-3]):?[0-5][0-9]")
KIB, MIB, GIB = 2**10, 2**20, 2**30
_SPELLINGS_BYTE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": KIB, "m": MIB, "g": GIB, "t": 2**40,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 2**40,
}  # fmt: skip
_SECOND_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SECOND_UNITS |= {"w": 604800.0}
#: `s3://bucket/path`, `file:/path`, `dbfs:/path`.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*)(?=/|$)|(?=/))(?P<path>.*)",
    re.DOTALL,
)
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def _quantity(text: str, units: Mapping[str, float], what: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in units:
        known = ", ".join(name for name in units if name)
        raise ValueError(f"{text!r} is not {what} (units: {known})")
    return float(match.group(1)) * units[unit]


def parse_count(value: str | float) -> int:
    """Parse an integer; a fraction is an error, and is not truncated.

    >>> parse_count("12"), parse_count(3.0)
    (12, 3)
    """
    if not isinstance(value, str) and abs(value) > _MAX_COUNT:
        raise ValueError(f"it is more than {_MAX_COUNT}")
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value!r} is not a whole number")
    if abs(number) > _MAX_COUNT:
        raise ValueError(f"it is more than {_MAX_COUNT}")
    return number


def parse_number(value: str | float) -> float:
    """Parse a finite number.

    >>> parse_number("0.5")
    0.5
    """
    number = float(value)
    if not math.isfinite(number):  # A minimum does not exclude NaN, and JSON has no infinity.
        raise ValueError(f"{value!r} is not a finite number")
    return number


def parse_bytes(value: str | int) -> int:
    """Parse a size such as `128MiB`, `512 mb` or a plain number of bytes.

    >>> parse_bytes("128MiB")
    134217728
    """
    size = (
        value if isinstance(value, int) else int(_quantity(value, _SPELLINGS_BYTE_UNITS, "a size"))
    )
    if size > _MAX_BYTES:
        raise ValueError(f"{value!r} is more than {_MAX_BYTES} bytes")
    return size


def parse_duration(value: str | float | timedelta) -> timedelta:
    """Parse a duration such as `7d`, `24h` or `500ms`; a number other than 0 needs a unit.

    The unit of a plain number differs between tools: 168 may mean hours or seconds.

    >>> parse_duration("24h")
    datetime.timedelta(days=1)
    """
    if isinstance(value, timedelta):
        return _bounded(value.total_seconds(), value)
    text = str(value).strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is None:
        return _bounded(_quantity(text, _SECOND_UNITS, "a duration"), text)
    if float(text):
        units = ", ".join(_SECOND_UNITS)
        raise ValueError(f"it has no unit: write {text}h for hours, {text}s for seconds ({units})")
    return timedelta(0)


def _bounded(seconds: float, given: object) -> timedelta:
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(f"{given} is more than {MAX_DURATION.days:,} days")
    return timedelta(seconds=seconds)


def parse_string(value: str) -> str:
    """Return a string unchanged; TypeError for other types."""
    if not isinstance(value, str):
        raise TypeError("it is not a string")
    return value


def parse_http_url(value: str) -> str:
    """Return the URL of an HTTP server; ValueError for others, and for one with credentials.

    >>> parse_http_url("http://127.0.0.1:8484")
    'http://127.0.0.1:8484'
    """
    parts = urlsplit(parse_string(value))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it is not a URL such as http://127.0.0.1:8484")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("it must have no credentials, query or fragment")
    _ = parts.port  # ValueError if it is not a number.
    return value


def parse_time_zone(value: str) -> str:
    """Parse the name of a time zone, or an offset from UTC.

    >>> parse_time_zone("Europe/Berlin"), parse_time_zone("+02:00")
    ('Europe/Berlin', '+02:00')
    """
    if parse_string(value) == _UTC or _OFFSET.fullmatch(value):
        return value
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(value).key
    except (ValueError, OSError, LookupError):
        message = f"{value!r} is no time zone: write a name such as Europe/Berlin, UTC or +02:00"
        raise ValueError(message) from None


def parse_bool(value: str | bool) -> bool:  # noqa: FBT001  a value from the user
    """Parse a boolean.

    >>> parse_bool("yes")
    True
    """
    spellings = {"true": True, "yes": True, "on": True, "1": True}
    spellings |= {"false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if str(value).strip().lower() not in spellings:
        raise ValueError(f"{value!r} is neither true nor false")
    return spellings[str(value).strip().lower()]


def parse_auto(value: str | bool) -> bool:  # noqa: FBT001  a value from the user
    """Parse a boolean, or the names that engines use for kinds of true.

    >>> parse_auto("auto"), parse_auto("false")
    (True, False)
    """
    return str(value).strip().lower() in {"auto", "legacy"} or parse_bool(value)


def parse_names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Parse names, in a list or separated by commas, without empty ones.

    >>> parse_names("a, b,"), parse_names(["a,b"])
    (('a', 'b'), ('a,b',))
    """
    names = value.split(",") if isinstance(value, str) else value
    return tuple(name.strip() for name in names if name.strip())


def parse_part(value: str | float) -> float:
    """Parse a number between 0 and 1, both excluded.

    >>> parse_part("0.01")
    0.01
    """
    number = float(value)
    if not 0 < number < 1:
        raise ValueError(f"{value!r} is not between 0 and 1")
    return number


def parse_local_path(value: str | os.PathLike[str]) -> str:
    """Parse a local path or a `file:` URL; other URLs are rejected.

    >>> parse_local_path("file:///var/log%20s"), parse_local_path("a/b")
    ('/var/log s', 'a/b')
    """
    text = str(value)
    # Also a Path: Path("s3://bucket") would be a relative directory `s3:`.
    match = _URL.fullmatch(text)
    if match is None:
        if not text:
            raise ValueError("the path is empty")
        return text
    scheme, authority, path = match["scheme"].lower(), match["authority"], match["path"]
    if scheme != "file" or authority not in {None, "", "localhost"} or not path:
        raise ValueError(f"{text!r} is not a local path: use a path or file:///path")
    return unquote(path)


class OneOf:
    """Parses one of a fixed set of names."""

    def __init__(self, *choices: str, synonyms: Mapping[str, str] | None = None) -> None:
        self.choices = choices
        self.synonyms = synonyms or {}

    def __call__(self, value: str) -> str:
        value = self.synonyms.get(value, value)
        if value not in self.choices:
            raise ValueError(f"{value!r} is not one of {', '.join(self.choices)}")
        return value


def check_version(version: int | None, *, field: str = "version") -> None:
    """Raise ValidationError unless a version, if there is one, is an integer.

    `table.version` is a method: without its parentheses it is easily passed by mistake.
    """
    if version is None or (isinstance(version, Integral) and not isinstance(version, bool)):
        return
    hint = "call it: version()" if callable(version) else None
    message = f"{field} must be an integer, not {version!r}"
    raise ValidationError(message, field=field, hint=hint)


def resolve_timestamp(version: int | None, timestamp: datetime | str | None) -> datetime | None:
    """Return the given timestamp, if any; ValidationError if a version is given as well."""
    check_version(version)
    if version is not None and timestamp is not None:
        raise ValidationError("pass a version or a timestamp, not both", field="timestamp")
    return _parse_timestamp(timestamp)


def _parse_timestamp(timestamp: datetime | str | None) -> datetime | None:
    """Parse a timestamp; without a time zone it is UTC."""
    if timestamp is None:
        return None
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    except ValueError as error:
        raise ValidationError(
            f"{timestamp!r} is not a timestamp",
            field="timestamp",
            value=timestamp,
            hint="write it as 2026-01-31, 2026-01-31T12:00:00 or 2026-01-31T12:00:00+02:00",
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
