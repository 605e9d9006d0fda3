"""A limit of the bytes per second that the processes of one job write to data files, all together.

Each write waits until its bytes are allowed, so the limit holds in the middle of a file. Rows come
from readers that are no faster than those who write, but for a few buffers::

    with paced(Pace(bytes_per_second=50 * 2**20, path="/tmp/job-7")):
        table.compact()
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds of unused rate that are kept for later: blocks come in bursts.
_BURST_SECONDS = 0.1
_STATE = struct.Struct("<d")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """A token bucket in a file, so that processes of one machine share it.

    The file has the time until which the rate is used up, by the monotonic clock of the machine.
    """

    bytes_per_second: float
    path: str

    def take(self, count: int) -> None:
        """Wait until `count` more bytes are allowed."""
        seconds = self._reserve(count, time.monotonic())
        if seconds > 0:
            time.sleep(seconds)

    def _reserve(self, count: int, now: float) -> float:
        """Take bytes from the bucket; return how long it is until they are in it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            known = os.pread(descriptor, _STATE.size, 0)
            used_until = _STATE.unpack(known)[0] if len(known) == _STATE.size else 0.0
            used_until = max(used_until, now - _BURST_SECONDS) + count / self.bytes_per_second
            os.pwrite(descriptor, _STATE.pack(used_until), 0)
        finally:
            os.close(descriptor)
        return float(used_until - now)


#: Of this process, and not of a thread: rows are written by several.
_current: Pace | None = None


@contextmanager
def paced(pace: Pace | None) -> Iterator[None]:
    """Limit what this process, and tasks that it starts on this machine, write in the block."""
    global _current  # noqa: PLW0603  see above
    before, _current = _current, pace
    try:
        yield
    finally:
        _current = before


def current_pace() -> Pace | None:
    """Return the limit of this process; None: there is none."""
    return _current


def take_bytes(count: int) -> None:
    """Wait until this process may write `count` more bytes."""
    if _current is not None:
        _current.take(count)
