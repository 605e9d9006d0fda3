"""Threads that move only when told to, one store request at a time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.observe.clock import ManualClock
from lakehand.storage import Fault, FaultKind, FaultStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable


class KilledError(BaseException):
    """Raised at every further request of an actor that was killed."""


class Actor:
    """A thread that waits before every request to its store for its turn."""

    def __init__(self, work: Callable[[Actor], None]) -> None:
        self._may_go = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._is_killed = False
        self.is_done = False
        #: What the work ended with, unless it was killed.
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._act, args=(work,), daemon=True)
        self._thread.start()
        self._waits.acquire()

    def _act(self, work: Callable[[Actor], None]) -> None:
        try:
            self.wait_for_turn()
            work(self)
        except KilledError:
            pass
        except Exception as error:  # noqa: BLE001  judged by the test
            self.error = error
        self.is_done = True
        self._waits.release()

    def wait_for_turn(self) -> None:
        if not self._is_killed:
            self._waits.release()
            self._may_go.acquire()
        if self._is_killed:
            raise KilledError

    def take_turn(self) -> None:
        """Let it do one request, and return when it waits again or has ended."""
        if not self.is_done:
            self._may_go.release()
            self._waits.acquire()

    def finish(self) -> None:
        while not self.is_done:
            self.take_turn()

    def kill(self) -> None:
        if not self.is_done:
            self._is_killed = True
            self._may_go.release()
        self._thread.join()

    def store(self, store: Store) -> Store:
        """Return `store` with a wait before every request of this actor."""
        every = Fault(kind=FaultKind.SLOW, times=None, delay=timedelta(seconds=1))
        stepped = FaultStore(store, [every], clock=_TurnClock(self))
        stepped._backend.parallel_requests = 1
        return stepped


class _TurnClock(ManualClock):
    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self._actor = actor

    def sleep(self, seconds: float) -> None:
        self._actor.wait_for_turn()


class TurnTaking:
    """A table whose every method waits for the actor's turn."""

    def __init__(self, table: Any, actor: Actor) -> None:
        self._table = table
        self._actor = actor
        self.store = actor.store(table.store)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)

        def in_turn(*args: Any, **kwargs: Any) -> Any:
            self._actor.wait_for_turn()
            return method(*args, **kwargs)

        return in_turn
