"""Threads of a sink: one writes and commits, others maintain the table after commits."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

from lakehand.errors import CancelledError, WriteTimeoutError
from lakehand.formats.optional import checkpoint_if_due
from lakehand.observe import Progress, get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.settings import Settings
    from lakehand.sink.epochs import Leftovers
    from lakehand.sink.sink_options import SinkMetrics
    from lakehand.sink.target import Target

T = TypeVar("T")


class WriterThread:
    """Runs writes and commits of one sink, one after the other."""

    def __init__(self, *, timeout_seconds: float, table: str, writer_id: str | None = None) -> None:
        """`table` and `writer_id` are for the error of work that times out."""
        self._timeout_seconds: float | None = timeout_seconds
        self._table = table
        self._writer_id = writer_id
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-sink")

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work)

    def wait(self, work: Future[T], *, operation: str, epoch: int | None = None) -> T:
        """Return the result of `work`; WriteTimeoutError if it does not end in time.

        The work goes on, and may be waited for again.
        """
        try:
            return work.result(timeout=self._timeout_seconds)
        except FutureTimeoutError as error:
            if work.done() or self._timeout_seconds is None:
                return work.result()  # it ended just now, or it is the work that raised this
            raise timed_out(
                operation,
                table=self._table,
                seconds=self._timeout_seconds,
                writer_id=self._writer_id,
                epoch=epoch,
            ) from error

    def lift_limit(self) -> None:
        """Wait for as long as work takes from now on."""
        self._timeout_seconds = None

    def close(self) -> None:
        """Wait until all work is done."""
        self._thread.shutdown(wait=True)


def timed_out(
    operation: str, *, table: str, seconds: float, writer_id: str | None, epoch: int | None
) -> WriteTimeoutError:
    """Return the error for work that goes on after its caller timed out."""
    of_epoch = "" if epoch is None else f" of epoch {epoch}"
    return WriteTimeoutError(
        f"the {operation}{of_epoch} is not done after {seconds:g} s: {table}",
        table=table,
        writer_id=writer_id,
        epoch=epoch,
        operation=operation,
        timeout_seconds=seconds,
        hint="the work continues: make the same call again to wait for it, or raise write_timeout",
    )


_logger = get_logger(__name__)
#: So that a clock that does not move causes no busy loop.
_SHORTEST_WAIT = 0.01


class BackgroundMaintenance:
    """Checkpoints when they are due, compaction or clustering when files need it, and vacuum.

    The table is checked after `maintenance_commits` commits and every `maintenance_interval`.
    Checkpoints run on a separate thread: they do not wait for a compaction. A failure fails no
    commit: it is logged and counted.
    """

    def __init__(
        self,
        target: Target,
        metrics: SinkMetrics,
        settings: Settings,
        *,
        spark: Any = None,
        clock: Clock | None = None,
    ) -> None:
        self._target = target
        self._metrics = metrics
        self._settings = settings
        self._spark = spark
        self._clock = clock or SystemClock()
        self._short = ThreadPoolExecutor(1, thread_name_prefix="lakehand-checkpoints")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="lakehand-maintenance")
        self._looks: list[Future[None]] = []
        self._is_ending = threading.Event()
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._commits = 0
        self._checked_at = self._clock.monotonic()

    def start(self) -> None:
        """Check the table every `maintenance_interval` until this is closed."""
        if self._settings.sink_maintenance:
            # A daemon: it only waits and submits work, so a program may end without it.
            name = "lakehand-maintenance-clock"
            threading.Thread(target=self._keep_time, name=name, daemon=True).start()

    def _keep_time(self) -> None:
        while not self._is_closed.wait(max(self._seconds_left(), _SHORTEST_WAIT)):
            self._look_if_due()

    def on_commit(self, version: int) -> None:
        """Say that `version` was committed. Returns at once."""
        self._short.submit(self._try, lambda: self._checkpoint(version))
        with self._lock:
            self._commits += 1
        self._look_if_due()

    def soon(self, work: Callable[[], None]) -> None:
        """Run something short in the background. Returns at once."""
        self._short.submit(self._try, work)

    def delete(self, leftovers: Leftovers) -> None:
        """Delete files that crashed sinks left, and count them. Only within work done `soon`."""
        deleted = leftovers.delete(self._target.handle, self._settings, self._clock)
        self._metrics.leftovers_deleted += deleted

    def _look_if_due(self) -> None:
        """Check the table, unless a check is queued already."""
        with self._lock:
            self._looks = [look for look in self._looks if not look.done()]
            is_late = self._seconds_left() <= 0
            is_due = is_late or self._commits >= self._settings.maintenance_commits
            if not (self._settings.sink_maintenance and is_due) or len(self._looks) > 1:
                return
            self._commits, self._checked_at = 0, self._clock.monotonic()
            if not self._is_closed.is_set():
                self._looks.append(self._long.submit(self._look))

    def _seconds_left(self) -> float:
        interval: float = self._settings.maintenance_interval.total_seconds()
        return self._checked_at + interval - self._clock.monotonic()

    def _look(self) -> None:
        if not self._target.is_known:
            return
        if self._settings.auto_compact:
            self._try(self._compact)
        self._try(self._vacuum)

    def _try(self, work: Callable[[], None]) -> None:
        if self._is_ending.is_set():
            return
        try:
            work()
        except CancelledError:
            log_event(_logger, logging.INFO, "upkeep_stopped", "The sink stopped its maintenance")
        except Exception as error:  # noqa: BLE001  a failed maintenance step fails no write
            with self._lock:
                self._metrics.upkeep_errors += 1
            message = "Maintenance of %s failed: %s"
            url = self._target.store.url
            log_event(_logger, logging.WARNING, "upkeep_failed", message, url, error, table=url)

    def _checkpoint(self, version: int) -> None:
        self._metrics.checkpoints += checkpoint_if_due(self._target.handle, version)

    def _compact(self) -> None:
        from lakehand.maintenance.due_steps import rewrite_if_due, settings_of_writers

        report = rewrite_if_due(
            self._target.handle,
            settings=settings_of_writers(self._target.in_force(self._settings), self._spark),
            spark=self._spark,
            on_progress=self._stop_if_asked,
            clock=self._clock,
        )
        if report.outcome == "committed":
            self._metrics.compactions += 1
            self._metrics.files_compacted += report.files_removed
            self._metrics.bytes_before_compaction += report.bytes_removed
            self._metrics.bytes_after_compaction += report.bytes_added
            self._metrics.compaction_ms += report.duration_ms

    def _vacuum(self) -> None:
        from lakehand.maintenance.due_steps import vacuum_beside_writers

        report = vacuum_beside_writers(
            self._target.handle,
            settings=self._target.in_force(self._settings),
            clock=self._clock,
            on_progress=self._stop_if_asked,
        )
        if report is not None:
            self._metrics.vacuums += 1
            self._metrics.files_vacuumed += report.files_deleted

    def _stop_if_asked(self, _progress: Progress) -> None:
        if self._is_ending.is_set():
            raise CancelledError("the sink is being closed")

    def close(self, *, timeout_seconds: float | None = None) -> None:
        """Wait for running work; after `timeout_seconds` stop it where that is safe."""
        with self._lock:
            self._is_closed.set()
            looks = list(self._looks)
        if timeout_seconds is not None and wait(looks, timeout=timeout_seconds).not_done:
            self._is_ending.set()
        self._long.shutdown(wait=True)
        self._short.shutdown(wait=True)
