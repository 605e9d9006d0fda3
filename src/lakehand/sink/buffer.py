"""Rows that wait to be written: not more of them than memory is meant to hold."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakehand.errors import BackpressureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["Buffer"]


class Buffer:
    """Batches between who brings them and who writes them. Those that are being written count."""

    def __init__(self, *, max_rows: int, max_bytes: int) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._taken_rows = self._taken_bytes = 0
        self._has_room = threading.Condition()

    @property
    def rows(self) -> int:
        """Rows that nobody has taken yet."""
        return self._rows - self._taken_rows

    @property
    def bytes(self) -> int:
        """Memory of the rows that nobody has taken yet."""
        return self._bytes - self._taken_bytes

    def put(self, batches: Sequence[pa.RecordBatch], *, wait_seconds: float = 0) -> None:
        """Take in all batches; BackpressureError if there is no room for them in time.

        What is larger than the buffer is let in when it is alone.
        """
        rows, size = _measure(batches)
        with self._has_room:
            if not self._has_room.wait_for(lambda: self._fits(rows, size), timeout=wait_seconds):
                raise self._full(rows)
            self._waiting += batches
            self._rows += rows
            self._bytes += size

    def take(self) -> list[pa.RecordBatch]:
        """Hand out all that waits. It counts until it is released."""
        with self._has_room:
            taken, self._waiting = self._waiting, []
            self._taken_rows, self._taken_bytes = self._rows, self._bytes
            return taken

    def release(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Forget batches that are written, or given up."""
        with self._has_room:
            rows, size = _measure(batches)
            self._rows, self._taken_rows = self._rows - rows, self._taken_rows - rows
            self._bytes, self._taken_bytes = self._bytes - size, self._taken_bytes - size
            self._has_room.notify_all()

    def _fits(self, rows: int, size: int) -> bool:
        if not self._rows:
            return True
        return self._rows + rows <= self._max_rows and self._bytes + size <= self._max_bytes

    def _full(self, rows: int) -> BackpressureError:
        return BackpressureError(
            f"{self._rows:,} rows ({self._bytes:,} bytes) wait to be written; {rows:,} more have no"
            f" room: at most {self._max_rows:,} rows and {self._max_bytes:,} bytes may wait",
            hint="try again when storage has caught up, or set on_backpressure to wait",
        )


def _measure(batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
    return sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
