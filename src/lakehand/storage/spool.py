"""Bytes that wait on local disk until they are read again, no more of them than are allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Self

from lakehand.errors import StoreQuotaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["SpoolFile", "held_directory"]

#: Of a directory that nobody holds: its maker may be about to.
_ABANDONED_SECONDS = 60


@contextmanager
def held_directory(parent: str | None, *, purpose: str) -> Iterator[str]:
    """Give a directory for the block; remove those that killed processes left.

    Whoever uses a directory holds its lock, which goes with the process.
    """
    prefix = f"lakehand-{purpose}-"
    _remove_abandoned(Path(parent or gettempdir()), prefix)
    # A task that was stopped may still write for a moment: no reason to hide why it was.
    with (
        TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as directory,
        ExitStack() as held,
    ):
        # Where a disk knows no locks, nobody gets one, and so nobody removes anything.
        with suppress(OSError):
            held.enter_context(_locked(Path(directory)))
        yield directory


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for directory in parent.glob(f"{prefix}*"):
        try:
            is_old = directory.stat().st_mtime < time.time() - _ABANDONED_SECONDS
            if is_old:
                with _locked(directory):
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # in use, somebody else's, or gone


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; BlockingIOError if another process has it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class SpoolFile:
    """A new file that pieces are written into, one behind the other.

    StoreQuotaError if they are more than may be, or than the disk has room for.
    """

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._size = 0
        self._file = path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._within_room():
            self._file.close()

    def append(self, piece: pa.Buffer) -> int:
        """Write a piece and return where it begins."""
        start = self._size
        if start + piece.size > self._most_bytes:
            raise self._no_room(f"no more than {self._most_bytes:,} bytes are allowed")
        with self._within_room():
            self._file.write(piece)
        self._size += piece.size
        return start

    def flush(self) -> None:
        """Let others read what was written."""
        with self._within_room():
            self._file.flush()

    @contextmanager
    def _within_room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._no_room(str(error.strerror)) from error

    def _no_room(self, reason: str) -> StoreQuotaError:
        return StoreQuotaError(
            f"rows that wait to be sorted do not fit into scratch: {reason}",
            path=str(self.path),
            operation="put",
            hint="set scratch_directory to a disk with more room, and raise scratch_bytes",
        )
