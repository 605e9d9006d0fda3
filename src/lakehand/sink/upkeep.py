"""What a table needs after commits, done beside the writer and never in its way."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lakehand.errors import CancelledError
from lakehand.observe.clock import SystemClock
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from lakehand.observe.clock import Clock
    from lakehand.observe.events import Progress
    from lakehand.settings import Settings
    from lakehand.sink.context import SinkMetrics
    from lakehand.sink.leftovers import Leftovers
    from lakehand.sink.target import Target

__all__ = ["Upkeep"]

_logger = get_logger(__name__)


class Upkeep:
    """Checkpoints when they are due, compaction when many files are small, and vacuum if asked for.

    What goes wrong here fails no commit: it is logged and counted.
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-upkeep")
        self._last: Future[None] | None = None
        self._is_ending = threading.Event()
        self._commits = 0
        self._checked_at = self._clock.monotonic()

    def on_commit(self, version: int) -> None:
        """Say that `version` was committed. Returns at once."""
        self._last = self._thread.submit(self._look_after, version)

    def soon(self, work: Callable[[], None]) -> None:
        """Do something else beside the commits. Returns at once."""
        self._last = self._thread.submit(self._try, work)

    def delete(self, leftovers: Leftovers) -> None:
        """Delete what dead sinks left, and count it. Only as a part of work done `soon`."""
        deleted = leftovers.delete(self._target.handle, self._settings, self._clock)
        self._metrics.leftovers_deleted += deleted

    def _look_after(self, version: int) -> None:
        self._try(lambda: self._checkpoint(version))
        self._commits += 1
        if self._settings["sink_maintenance"] and self._is_check_due():
            self._commits, self._checked_at = 0, self._clock.monotonic()
            if self._settings["auto_compact"]:
                self._try(self._compact)
            if self._settings["vacuum_interval"] is not None:
                self._try(self._vacuum)

    def _try(self, work: Callable[[], None]) -> None:
        if self._is_ending.is_set():
            return
        try:
            work()
        except CancelledError:
            log_event(_logger, logging.INFO, "upkeep_stopped", "Upkeep was stopped by its sink")
        except Exception as error:  # noqa: BLE001  upkeep is no reason to stop writing
            self._metrics.upkeep_errors += 1
            message = "Upkeep of %s failed: %s"
            url = self._target.store.url
            log_event(_logger, logging.WARNING, "upkeep_failed", message, url, error, table=url)

    def _checkpoint(self, version: int) -> None:
        self._metrics.checkpoints += self._target.handle.checkpoint_if_due(version)

    def _is_check_due(self) -> bool:
        settings = self._settings
        waited = self._clock.monotonic() - self._checked_at
        is_late = waited >= settings["maintenance_interval"].total_seconds()
        return bool(is_late or self._commits >= settings["maintenance_commits"])

    def _compact(self) -> None:
        from lakehand.due.steps import rewrite_if_due

        report = rewrite_if_due(
            self._target.handle,
            settings=self._target.in_force(self._settings).with_call(self._own_wishes()),
            spark=self._spark,
            on_progress=self._stop_if_asked,
        )
        if report.outcome == "committed":
            self._metrics.compactions += 1
            self._metrics.files_compacted += report.files_removed

    def _own_wishes(self) -> dict[str, Any]:
        """Return, for what nobody has set, what fits a process that writes all the time."""
        sources = self._settings.sources
        wishes: dict[str, Any] = {}
        # A stream would never keep quiet. Where nobody asked for it, it is kept all the same: a
        # compaction may cost other engines their changes to a partition that is being written to.
        is_asked_for = sources["sink_maintenance"] != "default"
        if is_asked_for and sources["quiet_period"] == "default":
            wishes["quiet_period"] = 0
        if self._spark is None and sources["engine"] == "default":
            wishes["engine"] = "local"
        return wishes

    def _vacuum(self) -> None:
        from lakehand.due.steps import vacuum_if_due

        report = vacuum_if_due(
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
        """Wait for what is under way; after `timeout_seconds` stop it where that is safe."""
        if timeout_seconds is not None and self._last is not None:
            try:
                self._last.exception(timeout=timeout_seconds)
            except TimeoutError:
                self._is_ending.set()
        self._thread.shutdown(wait=True)
