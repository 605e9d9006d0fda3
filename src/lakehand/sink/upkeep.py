"""What a table needs after commits, done beside the writer and never in its way."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from lakehand.sink.context import SinkMetrics
    from lakehand.sink.target import Target

__all__ = ["Upkeep"]

_logger = get_logger(__name__)


class Upkeep:
    """Writes checkpoints when they are due. What goes wrong here fails no commit."""

    def __init__(self, target: Target, metrics: SinkMetrics) -> None:
        self._target = target
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-upkeep")

    def on_commit(self, version: int) -> None:
        """Say that `version` was committed. Returns at once."""
        self._thread.submit(self._look_after, version)

    def _look_after(self, version: int) -> None:
        try:
            self._metrics.checkpoints += self._target.handle.checkpoint_if_due(version)
        except Exception as error:  # noqa: BLE001  upkeep is no reason to stop writing
            self._metrics.upkeep_errors += 1
            message = "Upkeep after version %s of %s failed: %s"
            log_event(
                _logger,
                logging.WARNING,
                "upkeep_failed",
                message,
                version,
                self._target.store.url,
                error,
            )

    def close(self) -> None:
        """Wait for what is under way."""
        self._thread.shutdown(wait=True)
