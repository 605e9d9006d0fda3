"""Files of the local disk: written durably under hidden names, read in blocks."""

from __future__ import annotations

import errno
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakehand.errors import AccessDeniedError, ObjectNotFoundError, StorageError, StoreQuotaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from io import FileIO
    from pathlib import Path

__all__ = [
    "TEMPORARY_NAME",
    "TemporaryFile",
    "is_temporary",
    "make_directory",
    "read_file_blocks",
    "sync_directory",
    "translated",
]

# Hidden from listings. A crash may leave such a file behind; it holds nothing that is visible. It
# begins as its target does, so that whoever owns the target's name can find and delete it.
TEMPORARY_NAME = re.compile(r"\.(?P<target>.+)\.lakehand-[0-9a-f]{32}\.tmp", re.DOTALL)
_MAX_TARGET_BYTES = 160

#: What is written goes to the disk in such portions, while more is written.
_SYNCED_BYTES = 64 * 2**20

_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
#: What helps, by the error.
_DENIED = {
    errno.EACCES: "look at owner and mode of it, and of the directories above",
    errno.EPERM: "look at owner and attributes of it, and of the directories above",
    errno.EROFS: "the disk is mounted for reading only",
}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind: type[StorageError] = StorageError
        if error.errno in _MISSING and not operation.startswith("put"):
            kind = ObjectNotFoundError
        elif error.errno in _DENIED:
            kind = AccessDeniedError
        elif error.errno in _FULL:
            kind = StoreQuotaError
        code = errno.errorcode.get(error.errno or 0)
        message = f"{operation} failed on {path}: {error.strerror}"
        hint = _DENIED.get(error.errno or 0)
        raise kind(message, hint=hint, path=path, operation=operation, store_code=code) from error


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """Create `path` and its parents; each new name is made durable in its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(parent)


class _EarlySync:
    """Sends a long file to the disk while it is still written, so that the end need not wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unsynced_bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def count(self, written_bytes: int) -> None:
        """Say that so much was written."""
        self._unsynced_bytes += written_bytes
        if self._unsynced_bytes < _SYNCED_BYTES:
            return
        if self._running and not self._running[-1].done():
            return
        self._hear()
        self.begin()

    def begin(self) -> None:
        """Begin to send what is written so far."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._running.append(self._thread.submit(os.fdatasync, self._descriptor))
        self._unsynced_bytes = 0

    def finish(self) -> None:
        """Wait for all that was begun."""
        self._hear()
        self.give_up()

    def _hear(self) -> None:
        """Raise what went wrong: a failure is told once only, so it must not be overheard."""
        while self._running:
            self._running.pop(0).result()

    def give_up(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()


class TemporaryFile:
    """A hidden file beside its target, which becomes the target or vanishes."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.directory = os.path.dirname(target)
        self.path = os.path.join(self.directory, _temporary_name(os.path.basename(target)))
        self._file = self._create()
        self._is_shown = False
        self._syncing = _EarlySync(self._file.fileno())

    def _create(self) -> FileIO:
        make_directory(self.directory)
        try:
            return open(self.path, "xb", buffering=0)
        except FileNotFoundError:
            # Vacuum has removed the directory since, because it was empty; once is bad luck.
            make_directory(self.directory)
            return open(self.path, "xb", buffering=0)

    def write(self, view: memoryview) -> None:
        while view.nbytes:
            written = self._file.write(view)
            self._syncing.count(written)
            view = view[written:]

    def seal(self) -> None:
        """Make the bytes durable. The file still has its hidden name."""
        self._syncing.finish()
        os.fsync(self._file.fileno())
        self._file.close()

    def show(self) -> None:
        """Give the file its target's name, and begin to make its bytes durable."""
        self._syncing.begin()
        os.replace(self.path, self.target)
        self._is_shown = True

    def replace_target(self) -> None:
        """Return when the target is this file, whatever happens to the machine."""
        self.seal()
        if not self._is_shown:
            os.replace(self.path, self.target)
        sync_directory(self.directory)

    def remove(self) -> None:
        self._syncing.give_up()
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)


def _temporary_name(target: str) -> str:
    # A file name has at most 255 bytes.
    start = os.fsdecode(os.fsencode(target)[:_MAX_TARGET_BYTES])
    return f".{start}.lakehand-{uuid.uuid4().hex}.tmp"


def is_temporary(name: str) -> bool:
    return TEMPORARY_NAME.fullmatch(name) is not None


def read_file_blocks(
    path: Path, ranges: Iterable[tuple[int, int]], *, block_bytes: int
) -> Iterator[memoryview]:
    """Yield the bytes of `ranges` (start and length) in blocks; an empty one where the file ends.

    All blocks share one buffer: each is gone when the next is asked for. Fresh memory for every
    block would cost three times the processor time of the reading itself.
    """
    buffer = memoryview(bytearray(block_bytes))
    with translated("get", str(path)), open(path, "rb", buffering=0) as file:
        for start, length in ranges:
            file.seek(start)
            left = length
            while left:
                found = file.readinto(buffer[: min(block_bytes, left)])
                yield buffer[:found]
                left -= found or left
