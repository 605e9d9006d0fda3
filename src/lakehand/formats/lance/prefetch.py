"""Reads and counts rows in a thread, ahead of their consumer.

Lance decodes only while a caller waits for rows, so hashing or encoding them would keep it idle.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue
from threading import Event
from typing import TYPE_CHECKING

from lakehand.formats.lance.comparable_types import plain_batch
from lakehand.formats.lance.reading import FEW_ROWS, joined
from lakehand.model.batches import Feed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakehand.prove.digest import Digester

#: Batches that are read ahead: at least one, and room for the end.
_READ_BATCHES = 4
#: Of batches that are longer one is read ahead: they hold the fewest rows there are in a batch.
_LONG_BYTES = 8 * 2**20
_LOOK_SECONDS = 0.005
#: Batches that were passed on and are not hashed yet.
_WAITING_BATCHES = 16


@contextmanager
def read_ahead(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Return the same batches, read ahead in a thread until the block ends."""
    read: Queue[pa.RecordBatch | None] = Queue(maxsize=_READ_BATCHES)
    is_over = Event()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read") as beside:
        reading = beside.submit(_read, batches, read, is_over)
        try:
            yield _taken(read, reading)
        finally:
            is_over.set()
            # The reader may wait for room, and needs it for one more batch and for the end.
            while not read.empty():
                read.get_nowait()


def _read(
    batches: Iterable[pa.RecordBatch], read: Queue[pa.RecordBatch | None], is_over: Event
) -> None:
    try:
        for batch in batches:
            read.put(batch)
            if is_over.is_set():
                return
            if _is_long(batch):
                _wait_until_taken(read, is_over)
    finally:
        read.put(None)


def _is_long(batch: pa.RecordBatch) -> bool:
    # Batches of many rows are cut by their bytes, which take a while to be counted.
    return bool(batch.num_rows <= FEW_ROWS and batch.nbytes > _LONG_BYTES)


def _wait_until_taken(read: Queue[pa.RecordBatch | None], is_over: Event) -> None:
    while not read.empty() and not is_over.wait(_LOOK_SECONDS):
        pass


def _taken(read: Queue[pa.RecordBatch | None], reading: Future[None]) -> Iterator[pa.RecordBatch]:
    yield from iter(read.get, None)
    # What reading has failed with.
    reading.result()


def counted(
    batches: Iterable[pa.RecordBatch], digester: Digester, *, columns: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and count their first `columns`, else all, in a thread."""

    def count(found: Iterator[pa.RecordBatch]) -> None:
        digester.add_all(plain_batch(_first(batch, columns)) for batch in joined(found))

    with read_ahead(batches) as read, ThreadPoolExecutor(max_workers=1) as beside:
        feed = Feed(beside, count, ahead=_WAITING_BATCHES)
        try:
            for batch in read:
                feed.put(batch)
                yield batch
        finally:
            feed.end()
        feed.result()


def _first(batch: pa.RecordBatch, columns: int | None) -> pa.RecordBatch:
    return batch if columns is None else batch.select(list(range(columns)))
