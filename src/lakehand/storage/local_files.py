"""Local files: written durably under temporary names, read in blocks."""

from __future__ import annotations

import errno
import os
import re
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakehand.errors import AccessDeniedError, ObjectNotFoundError, StorageError, StoreQuotaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import FileIO
    from pathlib import Path

# Hidden from listings. A crash may leave such a file; no reader sees it. It starts with the name of
# its target, so that the owner of that name can find and delete it.
TEMPORARY_NAME = re.compile(r"\.(?P<target>.+)\.lakehand-[0-9a-f]{32}\.tmp", re.DOTALL)
_MAX_TARGET_BYTES = 160

#: Written data is synced in portions of this size, while writing continues.
_SYNCED_BYTES = 64 * 2**20

_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
#: Hints by error number.
_DENIED = {
    errno.EACCES: "check its owner and mode, and those of its parent directories",
    errno.EPERM: "check its owner and attributes, and those of its parent directories",
    errno.EROFS: "the disk is mounted read-only",
}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise translation(error, operation, path) from error


def translation(error: OSError, operation: str, path: str) -> StorageError:
    """Return what the store's callers are told about an error of the system."""
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
    return kind(message, hint=hint, path=path, operation=operation, store_code=code)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str, *, mode: int = 0o777) -> None:
    """Create `path` and its parents; each new directory entry is synced in its parent.

    `mode`, less the umask, is that of `path` alone, if it is new.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    sync_directory(parent)


class _EarlySync:
    """Syncs a long file while it is still being written, so that `close` need not wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unsynced_bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def count(self, written_bytes: int) -> None:
        """Add to the number of bytes written."""
        self._unsynced_bytes += written_bytes
        if self._unsynced_bytes < _SYNCED_BYTES:
            return
        if self._running and not self._running[-1].done():
            return
        self._raise_failures()
        self.begin()

    def begin(self) -> None:
        """Start to sync what is written so far."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._running.append(self._thread.submit(os.fdatasync, self._descriptor))
        self._unsynced_bytes = 0

    def finish(self) -> None:
        """Wait for all syncs."""
        self._raise_failures()
        self.give_up()

    def _raise_failures(self) -> None:
        """Raise a failed sync: the system reports it only once, so it must not be missed."""
        while self._running:
            self._running.pop(0).result()

    def give_up(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()


class TemporaryFile:
    """A temporary file next to its target, which is renamed to the target or deleted."""

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
            # Vacuum has removed the directory because it was empty; retry once.
            make_directory(self.directory)
            return open(self.path, "xb", buffering=0)

    def write(self, view: memoryview) -> None:
        while view.nbytes:
            written = self._file.write(view)
            self._syncing.count(written)
            view = view[written:]

    def seal(self) -> None:
        """Make the content durable under the temporary name."""
        self._syncing.finish()
        os.fsync(self._file.fileno())
        self._file.close()

    def show(self) -> None:
        """Rename the file to its target, and start to make its content durable."""
        self._syncing.begin()
        os.replace(self.path, self.target)
        self._is_shown = True

    def replace_target(self) -> None:
        """Replace the target by this file, durably."""
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
    """Yield the bytes of `ranges` (start and length) in blocks; an empty one at the end of file.

    All blocks share one buffer: each is valid until the next one is requested. New memory for every
    block would take three times the processor time of the read itself.
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
