"""Measures how the time of a task is spent."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.observe.clock import Clock

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
