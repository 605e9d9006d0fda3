"""Memory that the changes of all hot tables may take together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakehand.errors import BackpressureError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """So many bytes. Who wants more waits until others are flushed."""

    def __init__(self, max_bytes: int, *, on_full: Callable[[], None]) -> None:
        """`on_full` is told when somebody has to wait."""
        self.max_bytes = max_bytes
        self._on_full = on_full
        self._used = 0
        # Entered by itself: who is interrupted on the way out of a condition may keep its lock.
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        #: How often somebody had to wait, and how many do now.
        self.waits = 0
        self.waiting = 0
        self.peak_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used

    def take(self, size: int, *, wait_seconds: float) -> None:
        """Take memory; BackpressureError if there is none in time.

        What is larger than all of it is let in when it is alone.
        """
        with self._lock:
            if not self._fits(size):
                self._wait(size, wait_seconds)
            self._add(size)

    def _wait(self, size: int, seconds: float) -> None:
        self.waits += 1
        self.waiting += 1
        self._on_full()
        try:
            if not self._freed.wait_for(lambda: self._fits(size), timeout=seconds):
                raise self._full(size)
        finally:
            self.waiting -= 1

    def force(self, size: int) -> None:
        """Take memory for what is there already."""
        with self._lock:
            self._add(size)

    def _add(self, size: int) -> None:
        self._used += size
        self.peak_bytes = max(self.peak_bytes, self._used)

    def release(self, size: int) -> None:
        with self._lock:
            self._used -= size
            self._freed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self.max_bytes

    def _full(self, size: int) -> BackpressureError:
        return BackpressureError(
            f"{self._used:,} bytes of changes wait to be flushed; {size:,} more have no room: at"
            f" most {self.max_bytes:,} may wait",
            hint="nothing of this change was taken; try again when the tables have been flushed, or"
            " raise hot_memory_bytes",
        )
