"""Work cut to size: small batches joined, files divided among tasks, batches fed to a thread."""

from __future__ import annotations

from contextlib import suppress
from queue import Full, Queue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


class Batch(Protocol):
    """A record batch, or a table."""

    @property
    def num_rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


B = TypeVar("B", bound=Batch)


class Gathering(Generic[B]):
    """Batches that wait until there are enough rows or bytes of them.

    Whatever is done to a batch costs about the same for one row as for many.
    """

    def __init__(self, *, rows: int | None = None, size: int | None = None) -> None:
        self._most_rows = rows
        self._most_bytes = size
        self._waiting: list[B] = []
        self._bytes = 0
        #: Rows that wait.
        self.rows = 0

    def add(self, batch: B) -> bool:
        """Take a batch; return whether there are enough now."""
        self._waiting.append(batch)
        self.rows += batch.num_rows
        if self._most_rows is not None and self.rows >= self._most_rows:
            return True
        if self._most_bytes is None:
            return False
        self._bytes += batch.nbytes
        return self._bytes >= self._most_bytes

    def take(self) -> list[B]:
        """Hand out all that waits."""
        taken, self._waiting = self._waiting, []
        self.rows = self._bytes = 0
        return taken


def gathered(
    batches: Iterable[B], *, rows: int | None = None, size: int | None = None
) -> Iterator[list[B]]:
    """Yield batches in lists, each of about `rows` rows or `size` bytes."""
    waiting = Gathering[B](rows=rows, size=size)
    for batch in batches:
        if waiting.add(batch):
            yield waiting.take()
    if last := waiting.take():
        yield last


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return several batches as one."""
    if len(batches) == 1:
        return batches[0]
    import pyarrow as pa  # tasks that only copy bytes load no Arrow

    return pa.concat_batches(batches)


def divide(
    items: Iterable[T],
    *,
    size_of: Callable[[T], int],
    most_bytes: int,
    most_items: int | None = None,
) -> Iterator[list[T]]:
    """Divide items, in their order, into portions of limited size; a larger item is alone.

    >>> list(divide([5, 1, 1, 9, 2], size_of=int, most_bytes=6))
    [[5, 1], [1], [9], [2]]
    """
    portion: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if portion and (len(portion) == most_items or total + size > most_bytes):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size
    if portion:
        yield portion


def sliced(table: pa.Table, rows: int) -> list[pa.Table]:
    """Return a table in slices of `rows` rows."""
    return [table.slice(start, rows) for start in range(0, table.num_rows, rows)]


class Feed(Generic[T, R]):
    """The way of items to a thread that takes them one by one."""

    _LOOK_SECONDS = 0.1

    def __init__(
        self, pool: ThreadPoolExecutor, take: Callable[[Iterator[T]], R], *, ahead: int
    ) -> None:
        """Have `take` run in `pool`; up to `ahead` items wait for it."""
        self._queue: Queue[T | None] = Queue(ahead)
        self._error: BaseException | None = None
        self._taking: Future[R] = pool.submit(lambda: take(self._items()))

    def _items(self) -> Iterator[T]:
        while (item := self._queue.get()) is not None and self._error is None:
            yield item
        if self._error is not None:
            raise self._error

    def put(self, item: T) -> None:
        """Hand an item over; raises what the thread failed with."""
        self._put(item)

    def end(self) -> None:
        """Say that no more items come."""
        self._put(None)

    def fail(self, error: BaseException) -> None:
        """Have the thread fail as well; it is either at work or waits for one more item."""
        self._error = error
        if self._queue.empty():
            self._queue.put(None)

    def result(self) -> R:
        """Wait for the thread, and return what it returned."""
        return self._taking.result()

    def _put(self, item: T | None) -> None:
        while not self._taking.done():
            with suppress(Full):
                self._queue.put(item, timeout=self._LOOK_SECONDS)
                return
        self._taking.result()
