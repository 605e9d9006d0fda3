"""One thread that does what takes time, in the order in which it was asked for."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

from lakehand.errors import WriteTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Background", "timed_out"]

T = TypeVar("T")


class Background:
    """Runs one piece of work after the other."""

    def __init__(self, *, timeout_seconds: float, table: str, writer_id: str | None = None) -> None:
        """`table` and `writer_id` are named by the error of work that takes too long."""
        self._timeout_seconds: float | None = timeout_seconds
        self._table = table
        self._writer_id = writer_id
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-sink")

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work)

    def wait(self, work: Future[T], *, operation: str, epoch: int | None = None) -> T:
        """Return what came of `work`; WriteTimeoutError if that is not known in time.

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
    """Return the error for work that goes on after it was waited for in vain."""
    of_epoch = "" if epoch is None else f" of epoch {epoch}"
    return WriteTimeoutError(
        f"the {operation}{of_epoch} is not done after {seconds:g} s: {table}",
        table=table,
        writer_id=writer_id,
        epoch=epoch,
        operation=operation,
        timeout_seconds=seconds,
        hint="nothing was given up, and the work goes on: make the same call again to wait for it,"
        " or raise write_timeout",
    )
