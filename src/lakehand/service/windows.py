"""Windows: when jobs of a policy may run, by cron expression and duration in a time zone.

A window opens at each time of its expression and stays open for its duration, in elapsed time. A
quiet window closes what the others have opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import parse_duration
from lakehand.service.schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from lakehand.service.config import Policy

#: Steps from one window to the next before it is taken for granted that none opens.
_MAX_STEPS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Opens at the times of a cron expression, for a duration."""

    opens: Schedule
    duration: timedelta
    #: What it is for, as `end of month`.
    reason: str | None = None

    def end_of_open(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return when a window that is open at `moment` closes; None if none is open."""
        opened = self.opens.last_until(moment, zone)
        if opened is None:
            return None
        closes = opened + self.duration
        return closes if closes > moment else None

    def next_opening(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return when it opens next after `moment`."""
        return self.opens.next_after(moment, zone)


def parse_windows(given: Any) -> tuple[Window, ...]:
    """Read windows as a file has them; ValueError says what is wrong.

    >>> parse_windows([{"cron": "0 22 * * *", "for": "7h"}])[0].duration
    datetime.timedelta(seconds=25200)
    """
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise TypeError('windows are written as [{ cron = "0 22 * * 1-5", for = "7h" }]')
    return tuple(_parse_window(one) for one in given)


def _parse_window(given: Mapping[str, Any]) -> Window:
    unknown = min(given.keys() - {"cron", "for", "why"}, default=None)
    if unknown is not None or not given.keys() >= {"cron", "for"}:
        raise ValueError("a window has the keys cron, for and why")
    duration = parse_duration(given["for"])
    if duration <= timedelta(0):
        raise ValueError("a window is open for longer than nothing")
    return Window(opens=Schedule.parse(given["cron"]), duration=duration, reason=given.get("why"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """A time from which jobs may run, and the time until which they may; None: without end."""

    opens_at: datetime
    closes_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """The windows of a policy. Without any, jobs may run at all times but the quiet ones."""

    open: Sequence[Window] = ()
    quiet: Sequence[Window] = ()
    zone: ZoneInfo

    def is_open(self, moment: datetime) -> bool:
        """Whether jobs may run at a time."""
        if _last_end(self.quiet, moment, self.zone) is not None:
            return False
        return not self.open or _last_end(self.open, moment, self.zone) is not None

    def next_opening(self, moment: datetime) -> Opening | None:
        """Return the first opening at or after `moment`; None if there is none."""
        if not (self.open or self.quiet):
            return Opening(opens_at=moment, closes_at=None)
        at: datetime | None = moment
        for _ in range(_MAX_STEPS):
            if at is None:
                return None
            if (quiet_end := _last_end(self.quiet, at, self.zone)) is not None:
                at = quiet_end
            elif self.open and _last_end(self.open, at, self.zone) is None:
                at = _first_opening(self.open, at, self.zone)
            else:
                return Opening(opens_at=at, closes_at=self._closes_at(at))
        return None

    def _closes_at(self, moment: datetime) -> datetime | None:
        """Return when a time that is open ends: at a quiet window, or when no other goes on."""
        quiet = _first_opening(self.quiet, moment, self.zone)
        if not self.open:
            return quiet
        end = moment
        for _ in range(_MAX_STEPS):
            later = _last_end(self.open, end, self.zone)
            if later is None or (quiet is not None and quiet <= end):
                break
            end = later
        return end if quiet is None else min(end, quiet)


def windows_of(policy: Policy, zone: ZoneInfo) -> Windows:
    """Return the windows of a policy in the time zone of the service."""
    return Windows(open=policy.windows, quiet=policy.quiet, zone=zone)


def _last_end(windows: Iterable[Window], moment: datetime, zone: ZoneInfo) -> datetime | None:
    """Return when the last of the windows closes that are open at `moment`."""
    ends = [end for window in windows if (end := window.end_of_open(moment, zone)) is not None]
    return max(ends, default=None)


def _first_opening(windows: Iterable[Window], moment: datetime, zone: ZoneInfo) -> datetime | None:
    times = [at for window in windows if (at := window.next_opening(moment, zone)) is not None]
    return min(times, default=None)
