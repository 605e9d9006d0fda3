"""Flushes hot tables in the background: by time, by size, and within a memory budget."""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING

from lakehand.errors import BackpressureError, WriteTimeoutError
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import SystemClock
from lakehand.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.hot.hot_table import HotTable
    from lakehand.settings import Settings


class Budget:
    """A limit on memory. A caller that exceeds it waits until other changes are flushed."""

    def __init__(self, max_bytes: int, *, on_full: Callable[[], None]) -> None:
        """`on_full` is called when a caller has to wait."""
        self.max_bytes = max_bytes
        self._on_full = on_full
        self._used = 0
        # Entered by itself: a thread interrupted while it leaves a condition may keep its lock.
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        #: How often a caller had to wait, and how many wait now.
        self.waits = 0
        self.waiting = 0
        self.peak_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used

    def take(self, size: int, *, wait_seconds: float) -> None:
        """Take memory; BackpressureError if there is none in time.

        A change larger than the limit is accepted while nothing else is in memory.
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
        """Reserve memory for changes that are in memory already."""
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


_logger = get_logger(__name__)
#: How often it looks whether changes have become old.
_TICK_SECONDS = 0.25


class Flusher:
    """The thread, the thresholds and the memory that some hot tables share."""

    def __init__(self, settings: Settings) -> None:
        self._retry = RetryPolicy.of(settings)
        self._delta_entries: int = settings.hot_delta_entries
        self._delta_seconds: float = settings.hot_delta_age.total_seconds()
        self._flush_rows: int = settings.hot_flush_rows
        self._flush_bytes: int = settings.hot_flush_bytes
        self._flush_seconds: float = settings.hot_flush_age.total_seconds()
        self._sync_seconds: float = settings.hot_sync_interval.total_seconds()
        self.clock = SystemClock()
        self._wake = threading.Event()
        self.budget = Budget(settings.hot_memory_bytes, on_full=self._wake.set)
        self._tables: list[HotTable] = []
        self._lock = threading.Lock()
        self._is_ending = False
        self._synced_at = self.clock.monotonic()
        self._thread: threading.Thread | None = None

    def add(self, table: HotTable) -> None:
        """Flush a table in the background from now on."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lakehand-hot", daemon=True)
                thread.start()
                self._thread = thread
            self._tables.append(table)

    def remove(self, table: HotTable) -> None:
        """Stop flushing a table; does not wait for a flush that is running."""
        with self._lock:
            if table in self._tables:
                self._tables.remove(table)

    def close(self) -> None:
        """End the thread, after what it is doing now."""
        self._is_ending = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def note_changes(self) -> None:
        """Note that memory has grown; once per group of changes, by the thread that wrote it."""
        if self._is_over() or self._unmerged_changes() >= self._delta_entries:
            self._wake.set()

    @property
    def tables(self) -> tuple[HotTable, ...]:
        return tuple(self._tables)

    def _is_over(self) -> bool:
        rows = sum(table.hot_rows for table in self.tables)
        return rows >= self._flush_rows or self.budget.used_bytes >= self._flush_bytes

    def _unmerged_changes(self) -> int:
        return sum(table.unmerged_changes for table in self.tables)

    def _run(self) -> None:
        while not self._is_ending:
            self._wake.wait(self._tick_seconds())
            self._wake.clear()
            self._sync()
            self._merge()
            self._flush()

    def _tick_seconds(self) -> float:
        return min(
            _TICK_SECONDS, self._sync_seconds, self._flush_seconds / 2, self._delta_seconds / 2
        )

    def _sync(self) -> None:
        now = self.clock.monotonic()
        if now - self._synced_at >= self._sync_seconds:
            self._synced_at = now
            for table in self.tables:
                self._try(table, table.sync_log)

    def _merge(self) -> None:
        is_over = self._unmerged_changes() >= self._delta_entries
        for table in self.tables:
            is_old = table.unmerged_changes > 1 and table.oldest_seconds >= self._delta_seconds
            if is_over or is_old:
                self._try(table, table.merge_changes)

    def _flush(self) -> None:
        for table in self.tables:
            if table.oldest_seconds >= self._flush_seconds:
                self._try_flush(table)
        tried: set[int] = set()
        # The largest first: it frees most, and makes the fewest small files.
        while self._is_over() or self.budget.waiting:
            left = [table for table in self.tables if id(table) not in tried and table.hot_rows]
            if not left or self._is_ending:
                return
            largest = max(left, key=lambda table: table.hot_bytes)
            tried.add(id(largest))
            self._try_flush(largest)

    def _try_flush(self, table: HotTable) -> None:
        if self.clock.monotonic() >= table.retry_at:
            self._try(table, table.flush)

    def _try(self, table: HotTable, work: Callable[[], object]) -> None:
        try:
            work()
        except WriteTimeoutError as error:
            # It goes on, and the next round waits for it again, after the other tables.
            self._wake.set()
            log_event(_logger, logging.WARNING, "hot_flush_slow", "%s", error.message)
        except BaseException as error:  # noqa: BLE001  logged and retried; the thread goes on
            if table.is_closed:
                return
            delay = self._retry.delay_seconds(
                min(table.flush_failures, 10) or 1,
                chance=random.random(),  # noqa: S311  no secret
            )
            table.retry_at = self.clock.monotonic() + delay
            message = "Changes of %s stay in memory and in the log, and are flushed later: %s"
            log_event(_logger, logging.WARNING, "hot_flush_failed", message, table.url, error)
