"""The clock, which code that needs the time gets injected, and the stopwatch of a task."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Clock(Protocol):
    """A source of time that can also wait."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock for tests that advances only on request, so that tests never wait."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.elapsed = 0.0
        #: Every requested wait, in seconds.
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.elapsed += seconds


T = TypeVar("T")


class Stopwatch:
    """Adds up time by stage. Time in a nested stage does not count for the outer stage."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._started = clock.monotonic()
        self._seconds: dict[str, float] = {}
        self._stages: list[str] = []
        self._since = 0.0

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time inside the block as `stage`."""
        self._turn()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._turn()
            self._stages.pop()

    def iterate(self, stage: str, items: Iterable[T]) -> Iterator[T]:
        """Yield `items`, and count the time that the iterator takes as `stage`."""
        iterator = iter(items)
        while True:
            with self.measure(stage):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def milliseconds(self) -> dict[str, float]:
        return {stage: seconds * 1000 for stage, seconds in self._seconds.items()}

    def total_milliseconds(self) -> float:
        """Return the time since the stopwatch was created."""
        return (self.clock.monotonic() - self._started) * 1000

    def _turn(self) -> None:
        now = self.clock.monotonic()
        if self._stages:
            stage = self._stages[-1]
            self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._since
        self._since = now
