"""What was read of data files, kept for the rest of an operation: a request costs time and money.

A rewrite looks at a file several times: at its footer to plan, at some rows to divide them, and at
all of it to decode it. Data files never change under their name, so their bytes are requested once.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Files up to this size are kept whole; of larger ones the end, with the footer.
_WHOLE_BYTES = 4 * 2**20
_END_BYTES = 64 * 1024
#: All that is kept at a time.
_MOST_BYTES = 64 * 2**20
_DATA_FILE = ".parquet"
#: Logs, and what lakehand keeps for itself, are in directories that start so.
_HIDDEN = "_"


class KeptReads:
    """Ends of data files by key. Empty, and stays so, outside of `keeping`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._bytes = 0
        #: The end of each file, and the size of all of it.
        self._ends: dict[str, tuple[bytes, int]] = {}

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what is read until the outermost block ends."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._ends.clear()
                    self._bytes = 0

    def add(self, key: str, end: bytes, size: int) -> None:
        """Keep the end of a file, or all of it, if there is room."""
        kept = end if size <= _WHOLE_BYTES else end[-_END_BYTES:]
        if not key.endswith(_DATA_FILE) or key.startswith(_HIDDEN):
            return
        with self._lock:
            known = len(self._ends.get(key, (b"", 0))[0])
            if self._users and known < len(kept) <= known + _MOST_BYTES - self._bytes:
                self._ends[key] = kept, size
                self._bytes += len(kept) - known

    def tail(self, key: str, length: int) -> tuple[bytes, int] | None:
        """Return the last bytes of a file and its size; None unless all of them are kept."""
        with self._lock:
            end, size = self._ends.get(key, (b"", 0))
        if not end or len(end) < min(length, size):
            return None
        return end[-length:], size

    def part(self, key: str, start: int, length: int) -> bytes | None:
        """Return a range of a file, cut at its end; None unless all of it is kept."""
        with self._lock:
            end, size = self._ends.get(key, (b"", 0))
        first = start - (size - len(end))
        return end[first : first + length] if end and first >= 0 else None

    def forget(self, key: str) -> None:
        """Forget a file that is about to be written."""
        with self._lock:
            end, _ = self._ends.pop(key, (b"", 0))
            self._bytes -= len(end)
