"""A thread that says, as long as a run works, that it is alive."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

from lakehand.errors import RunTakenError, StorageError
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType

    from lakehand.runs.ledger import Run

logger = get_logger(__name__)


class Heartbeat:
    """Beats every `interval` inside `with`; calls `on_stop` once if the run is to stop.

    It is to stop when somebody requested it in the ledger, or when another run has dropped the
    ledger. A beat that fails is only logged: whether the run may commit is decided by its fate.
    """

    def __init__(
        self, run: Run, *, interval: timedelta, on_stop: Callable[[], None] | None = None
    ) -> None:
        self._run = run
        self._interval_seconds = interval.total_seconds()
        self._on_stop = on_stop or (lambda: None)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_end, daemon=True)

    def __enter__(self) -> Self:
        self._run.beat()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat_until_end(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            if self._must_stop():
                self._on_stop()
                return

    def _must_stop(self) -> bool:
        try:
            self._run.require_ledger()
            self._run.beat()
            return self._run.is_cancel_requested()
        except RunTakenError:
            return True
        except StorageError as error:
            log_event(
                logger, logging.WARNING, "heartbeat_failed", "%s", error.message, run=self._run.id
            )
            return False
