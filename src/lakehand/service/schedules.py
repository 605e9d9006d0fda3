"""Cron expressions: when a scheduled verb is due, in a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakehand.errors import NotInstalledError

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression of five fields."""

    expression: str

    @classmethod
    def parse(cls, expression: str) -> Self:
        """Check an expression; ValueError says what is wrong with it."""
        from datetime import UTC, datetime

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
        in autumn is due once.
        """
        from cronsim import CronSim

        times = CronSim(self.expression, moment.astimezone(zone))
        return next(times, None)

    def explain(self) -> str:
        """Return the expression in words.

        >>> Schedule("0 4 * * 0").explain()
        'At 04:00 on Sunday'
        """
        from datetime import UTC, datetime

        from cronsim import CronSim

        words: str = CronSim(self.expression, datetime(2026, 1, 1, tzinfo=UTC)).explain()
        return words
