"""Times as users give them."""

from __future__ import annotations

from datetime import UTC, datetime

from lakehand.errors import ValidationError

__all__ = ["one_moment"]


def one_moment(version: int | None, timestamp: datetime | str | None) -> datetime | None:
    """Return the time that was given, if any; ValidationError if a version was, too."""
    if version is not None and timestamp is not None:
        raise ValidationError("give a version or a timestamp, not both", field="timestamp")
    return _as_moment(timestamp)


def _as_moment(timestamp: datetime | str | None) -> datetime | None:
    """Read a time; one without a zone is UTC."""
    if timestamp is None:
        return None
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    except ValueError as error:
        raise ValidationError(
            f"{timestamp!r} is not a time",
            field="timestamp",
            value=timestamp,
            hint="write it as 2026-01-31, 2026-01-31T12:00:00 or 2026-01-31T12:00:00+02:00",
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
