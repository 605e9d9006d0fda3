"""Cron expressions: when a scheduled verb is due, in a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from lakehand.errors import NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
#: How far away a change of the clock can be that matters: a zone once skipped a whole day.
_NEAR = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression of five fields."""

    expression: str

    @classmethod
    def parse(cls, expression: str) -> Self:
        """Check an expression; ValueError says what is wrong with it."""
        if not isinstance(expression, str):
            raise TypeError("it is not a cron expression such as '0 4 * * 0'")
        try:
            from cronsim import CronSim, CronSimError
        except ModuleNotFoundError as error:
            message = "schedules need the package cronsim, which is not installed"
            raise NotInstalledError(message, hint='pip install "lakehand[service]"') from error
        try:
            CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            message = f"it is not a cron expression such as '0 4 * * 0': {error}"
            raise ValueError(message) from error
        return cls(expression)

    def next_after(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first time after `moment` at which it is due; None if there is none.

        A time that the clock skips in spring is due when the clock has moved; one that comes twice
        in autumn is due once. Expressions that begin with `*` in the minutes or hours follow the
        clock instead: they are due whenever it shows such a time.
        """
        found = self._found(moment, zone, direction=1)
        return min((at for at in found if at > moment), default=None)

    def last_until(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the last time up to `moment` at which it was due; None if there is none."""
        found = self._found(moment, zone, direction=-1)
        return max((at for at in found if at <= moment), default=None)

    def _found(self, moment: datetime, zone: ZoneInfo, *, direction: int) -> Iterator[datetime]:
        """Return times in UTC around the wanted one.

        cronsim is given times without a zone: with one it skips times where the clock is moved by
        half an hour (Australia/Lord_Howe). Where the clock is moved, the times on it and those that
        pass are in another order, by up to the `spread`.
        """
        from cronsim import CronSim

        spread = _spread(moment, zone)
        start = moment.astimezone(zone).replace(tzinfo=None, microsecond=0) - direction * spread
        if direction < 0:
            start += _SECOND  # Only times before it are found.
        times = CronSim(self.expression, start, reverse=direction < 0)
        wanted: datetime | None = None
        while (shown := next(times, None)) is not None:
            if wanted is not None and direction * (shown - wanted) > spread:
                return
            for at in self._instants(shown, zone):
                yield at
                is_wanted = at > moment if direction > 0 else at <= moment
                if wanted is None and is_wanted:
                    wanted, spread = shown, max(spread, _spread(at, zone))

    def _instants(self, shown: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
        """Return when the clock of a zone shows a time: once, twice, or never."""
        minute, hour = self.expression.split()[:2]
        follows_clock = minute.startswith("*") or hour.startswith("*")
        first = shown.replace(tzinfo=zone).astimezone(UTC)
        while first.astimezone(zone).replace(tzinfo=None) != shown:  # The clock skips it.
            if follows_clock:
                return ()
            shown += _MINUTE
            first = shown.replace(tzinfo=zone).astimezone(UTC)
        second = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
        return (first, second) if follows_clock and first != second else (first,)

    def explain(self) -> str:
        """Return the expression in words.

        >>> Schedule("0 4 * * 0").explain()
        'At 04:00 on Sunday'
        """
        from cronsim import CronSim

        words: str = CronSim(self.expression, datetime(2026, 1, 1, tzinfo=UTC)).explain()
        return words


def _spread(moment: datetime, zone: ZoneInfo) -> timedelta:
    """Return by how much the clock of a zone is moved near a time."""
    offsets = [
        (moment + near).astimezone(zone).utcoffset() or timedelta(0)
        for near in (-_NEAR, timedelta(0), _NEAR)
    ]
    return max(offsets) - min(offsets)
