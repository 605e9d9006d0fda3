"""A sink for programs that must not wait: the same calls, to be awaited."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakehand.sink.sink import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lakehand.model.work import Receipt
    from lakehand.sink.context import SinkMetrics
    from lakehand.sink.descriptors import Descriptor

__all__ = ["AsyncDeltaSink"]

T = TypeVar("T")


class AsyncDeltaSink:
    """Writes Arrow rows into a table, epoch by epoch, from an event loop.

    Takes what DeltaSink takes. Calls are made one after the other, in the order they were awaited;
    one that is cancelled while it waits goes on behind the scenes, so await the next one anyway.
    """

    def __init__(self, uri: Any, **options: Any) -> None:
        self._sink = DeltaSink(uri, **options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-async-sink")

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def open(self) -> Self:
        """Find or create the table, and learn what it has of this writer."""
        await self._call(self._sink.open)
        return self

    async def begin_epoch(self, epoch: int) -> bool:
        """Begin an epoch; False if the table has it, so that its rows will be dropped."""
        return await self._call(self._sink.begin_epoch, epoch)

    async def write(self, data: Any) -> int:
        """Take rows of the current epoch in, and return how many."""
        return await self._call(self._sink.write, data)

    async def flush(self) -> None:
        """Wait until the rows taken so far are written; at-least-once commits them, too."""
        await self._call(self._sink.flush)

    async def pre_commit(self) -> Descriptor | None:
        """Write all rows of the epoch, and say into which files; nobody sees them yet."""
        return await self._call(self._sink.pre_commit)

    async def commit_epoch(self) -> Receipt | None:
        """Commit the epoch; None if it has no rows, or was in the table before."""
        return await self._call(self._sink.commit_epoch)

    async def rollback_epoch(self) -> None:
        """Give the current epoch up; nothing of it is in the table."""
        await self._call(self._sink.rollback_epoch)

    async def close(self) -> None:
        """End the sink: exactly-once rolls an open epoch back, at-least-once commits what waits."""
        try:
            await self._call(self._sink.close)
        finally:
            self._thread.shutdown(wait=False)

    @property
    def last_committed_epoch(self) -> int | None:
        """Newest epoch that the table has of this writer; None if none."""
        return self._sink.last_committed_epoch

    @property
    def metrics(self) -> SinkMetrics:
        """What the sink has done so far."""
        return self._sink.metrics

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
