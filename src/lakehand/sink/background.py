"""One thread that does what takes time, in the order in which it was asked for."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

from lakehand.errors import StoreUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs one piece of work after the other."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-sink")

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work)

    def wait(self, work: Future[T]) -> T:
        """Return what came of `work`; StoreUnreachableError if that is not known in time.

        The work goes on, and may be waited for again.
        """
        try:
            return work.result(timeout=self._timeout_seconds)
        except FutureTimeoutError as error:
            if work.done():
                raise
            raise StoreUnreachableError(
                f"storage has not done its part within {self._timeout_seconds:g} s",
                operation="write",
                hint="the work goes on: call again to wait for it, or raise write_timeout",
            ) from error

    def close(self) -> None:
        """Wait until all work is done."""
        self._thread.shutdown(wait=True)
