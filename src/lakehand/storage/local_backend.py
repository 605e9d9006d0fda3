"""Objects as local files: durable, with the key as the path, byte for byte.

Many files at once are listed in separate processes, and deleted by directory.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import stat
import subprocess
import sys
from array import array
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, Self, cast

from lakehand import errors
from lakehand.storage import tree_listing
from lakehand.storage.local_files import (
    TEMPORARY_NAME,
    TemporaryFile,
    is_temporary,
    sync_directory,
    translated,
)
from lakehand.storage.location import join_key
from lakehand.storage.objects import DeleteFailure, NotComposable, ObjectInfo, ObjectWriter
from lakehand.storage.scanning import Scanned, Scanner
from lakehand.storage.tree_listing import Listing, list_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.storage.retry import RetryPolicy

# Many files at once

#: Fewer directories are listed in this process: a request to another one takes as long.
_WORTH_ASKING = 8


class TreeProcesses:
    """Lists directories; many at a time in worker processes, which end with the block."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._idle: queue.LifoQueue[_TreeProcess] = queue.LifoQueue()

    def list(self, directories: Sequence[str]) -> Listing:
        """List the entries of `directories`. Thread-safe; each thread uses its own process."""
        if len(directories) < _WORTH_ASKING:
            return list_directories(self._root, list(directories))
        process = self._take()
        try:
            found = process.list(self._root, directories)
        except OSError:
            process.close()
            raise
        self._idle.put(process)
        return found

    def _take(self) -> _TreeProcess:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return _TreeProcess()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


class _TreeProcess:
    def __init__(self) -> None:
        # Isolated and without site packages, so that no user code is imported.
        command = [sys.executable, "-I", "-S", tree_listing.__file__]
        self._process = subprocess.Popen(  # noqa: S603  lakehand's own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def list(self, root: str, directories: Sequence[str]) -> Listing:
        request = {"root": root, "directories": list(directories)}
        requests, answers = cast("IO[bytes]", self._process.stdin), self._answers
        requests.write(json.dumps(request).encode() + b"\n")
        requests.flush()
        header = answers.readline()
        if not header:
            raise OSError(f"the process that lists {root} has ended: {self._process.wait()}")
        return self._listing(json.loads(header))

    @property
    def _answers(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def _listing(self, header: dict[str, Any]) -> Listing:
        if failure := header.get("failure"):
            raise OSError(failure["errno"], os.strerror(failure["errno"]), failure["path"])
        listing = Listing()
        columns = [self._answers.read(length) for length in header["lengths"]]
        listing.keys = bytearray(columns[0])
        listing.ends = array("i", columns[1])
        listing.sizes = array("q", columns[2])
        listing.modified = array("q", columns[3])
        listing.hidden = header["hidden"]
        listing.directories = header["directories"]
        listing.links = header["links"]
        return listing

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()


#: A file that could not be deleted, and why.
Refusal = tuple[str, OSError | errors.StorageError]


def unlink_all(keys: Sequence[str], open_directory: Callable[[str], int]) -> list[Refusal]:
    """Delete files, directory by directory; return those that could not be deleted.

    Sequentially: file systems serialize deletions, and parallel ones only wait for each other.
    Deletions are not synced: a file that reappears after a power failure is found again.
    """
    groups = groupby(keys, key=lambda key: key.rpartition("/")[0])
    return [
        failure
        for directory, group in groups
        for failure in _unlink_in(directory, list(group), open_directory)
    ]


def _unlink_in(
    directory: str, keys: list[str], open_directory: Callable[[str], int]
) -> Iterator[Refusal]:
    skip = len(directory) + 1 if directory else 0
    try:
        descriptor = open_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, errors.StorageError) as error:
        yield from ((key, error) for key in keys)
        return
    try:
        for key in keys:
            try:
                os.unlink(key[skip:], dir_fd=descriptor)
            except FileNotFoundError:
                pass
            except OSError as error:
                yield key, error
    finally:
        os.close(descriptor)


def remove_empty_directories(root: str, directories: Sequence[str]) -> int:
    """Remove empty `directories`, and parents that become empty; return how many.

    Only `rmdir` is used, which never removes a directory in which a file was just created.
    """
    removed = 0
    for directory in sorted(directories, reverse=True):
        removed += sum(1 for _ in _remove_upwards(Path(root), Path(root) / directory))
    return removed


def _remove_upwards(root: Path, directory: Path) -> Iterator[Path]:
    while directory != root:
        try:
            directory.rmdir()
        except OSError:
            return
        yield directory
        directory = directory.parent


# The backend

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Large enough to outweigh a request to another process, small enough to keep all of them busy.
_DIRECTORIES_AT_ONCE = 64
#: More than cores: if directories are not cached, most of the time is spent waiting for the disk.
_SCANS_AT_ONCE = 4
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def _below(after: str | None, prefix: str) -> str:
    """Return the part of a key below a directory; "" if it is not below it."""
    directory = f"{prefix.rstrip('/')}/" if prefix else ""
    return after[len(directory) :] if after is not None and after.startswith(directory) else ""


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        bytes=status.st_size,
        modified_at=_EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000),
        etag=f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
    )


class _LocalWriter(ObjectWriter):
    def __init__(self, key: str, path: str) -> None:
        with translated("put", path):
            self._file = TemporaryFile(path)
        super().__init__(key)

    def _write(self, view: memoryview) -> None:
        with translated("put", self._file.target):
            self._file.write(view)

    def _publish(self) -> None:
        with translated("put", self._file.target):
            self._file.show()

    def _commit(self) -> None:
        with translated("put", self._file.target):
            self._file.replace_target()

    def _discard(self) -> None:
        self._file.remove()


class LocalBackend:
    """A directory on the local disk."""

    parallel_requests = 1

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def with_retry(self, policy: RetryPolicy) -> Self:  # noqa: ARG002
        """Return itself: local operations are not retried."""
        return self

    def _path(self, key: str) -> str:
        """Return the path of `key`; a symbolic link on it must not lead out of the root."""
        path = self.root
        for segment in key.split("/") if key else ():
            path = os.path.join(path, segment)
            if os.path.islink(path):
                self._require_inside(path)
        return path

    def _require_inside(self, link: str) -> None:
        target = os.path.realpath(link)
        if target != self.root and not target.startswith(self.root.rstrip("/") + "/"):
            raise errors.UnsafePathError(
                f"{link} is a symbolic link that leads out of {self.root}",
                path=link,
                hint="keep the files of a table below its root",
            )

    def local_path(self, key: str) -> Path:
        return Path(self._path(key))

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with translated("get", path), open(path, "rb") as file:
            return file.read()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path = self._path(key)
        with translated("get", path), open(path, "rb", buffering=0) as file:
            return [_read_at(file.fileno(), start, length) for start, length in ranges]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        path = self._path(key)
        with translated("get", path), open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(size - length, 0)
            return _read_at(file.fileno(), start, size - start), size

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with translated("head", path):
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return _info(key, status)

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        for key, entry in self._walk(prefix, after):
            # A file that is deleted during the listing does not exist.
            with suppress(FileNotFoundError):
                yield _info(key, entry.stat())

    def _walk(self, prefix: str, after: str | None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield files ordered by key, with one directory in memory at a time."""
        floor = _below(after, prefix)
        for order, entry in sorted(self._entries(prefix, floor), key=lambda pair: pair[0]):
            key = join_key(prefix, order)
            if order.endswith("/"):
                if after is None or key > after or after.startswith(key):
                    yield from self._walk(key[:-1], after)
            elif after is None or key > after:
                yield key, entry

    def _entries(self, prefix: str, floor: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield file names, and directory names with a trailing slash.

        Names that sort before `floor` are skipped first: a log has many, and each commit lists only
        the new ones.
        """
        path = self._path(prefix)
        with translated("list", path):
            try:
                entries = os.scandir(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            with entries:
                for entry in entries:
                    if entry.name < floor and not floor.startswith(entry.name):
                        continue
                    if entry.is_symlink():
                        self._require_inside(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        yield entry.name + "/", entry
                    elif entry.is_file() and not is_temporary(entry.name):
                        yield entry.name, entry

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]:
        directories: list[str] = []
        objects: list[ObjectInfo] = []
        for order, entry in sorted(self._entries(prefix), key=lambda pair: pair[0]):
            key = join_key(prefix, order)
            if order.endswith("/"):
                directories.append(key[:-1])
                continue
            with suppress(FileNotFoundError):
                objects.append(_info(key, entry.stat()))
        return directories, objects

    def put(self, key: str, data: bytes) -> None:
        with self.open_writer(key) as writer:
            writer.write(data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with translated("put-if-absent", path):
            file = TemporaryFile(path)
            try:
                file.write(memoryview(data))
                file.seal()
                _link(file)
            finally:
                file.remove()
        try:
            sync_directory(file.directory)
        except OSError as error:
            raise errors.StoreUnreachableError(
                f"{path} was written, but may not be durable",
                path=path,
                operation="put-if-absent",
            ) from error

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:  # noqa: ARG002
        raise errors.ConditionalPutError(
            f"{self._path(key)} cannot be replaced on a condition: file systems know none",
            path=self._path(key),
            operation="put-if-match",
        )

    def composer(self) -> NoReturn:
        raise NotComposable("stores of file:// do not offer it")

    def open_writer(self, key: str) -> ObjectWriter:
        return _LocalWriter(key, self._path(key))

    @contextmanager
    def scanner(self) -> Iterator[Scanner]:
        with TreeProcesses(self.root) as processes:
            scan = partial(self._scan, processes)
            yield Scanner(scan=scan, width=_DIRECTORIES_AT_ONCE, parallel=_SCANS_AT_ONCE)

    def _scan(self, processes: TreeProcesses, directories: Sequence[str]) -> Iterator[Scanned]:
        from lakehand.storage.scan_columns import scanned

        with translated("list", self.root):
            found = processes.list(directories)
        yield scanned(self.root, found, is_unfinished=is_temporary)

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        failures = unlink_all(keys, self._open_directory)
        return [self._failure(key, error) for key, error in failures]

    def remove_empty_directories(self, directories: Sequence[str]) -> int:
        return remove_empty_directories(self.root, directories)

    def keeping_reads(self) -> AbstractContextManager[None]:
        """Keep nothing: reading again costs nothing."""
        return nullcontext()

    def finish_puts(self, directory: str) -> None:
        """Do nothing: a put of this store is done, or it is not."""

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        path = self._path(prefix)
        with translated("delete", path), suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(path):
                match = TEMPORARY_NAME.fullmatch(name)
                if match and match["target"].startswith(names):
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(path, name))

    def _open_directory(self, directory: str) -> int:
        return os.open(self._path(directory), os.O_RDONLY | os.O_DIRECTORY)

    def _failure(self, key: str, error: OSError | errors.StorageError) -> DeleteFailure:
        try:
            with translated("delete", os.path.join(self.root, key)):
                raise error
        except errors.StorageError as typed:
            return DeleteFailure(key=key, error=typed)


def _read_at(descriptor: int, start: int, length: int) -> bytes:
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    while data and (length := length - len(data)):
        start += len(data)
        data = os.pread(descriptor, length, start)
        parts.append(data)
    return b"".join(parts)


def _link(file: TemporaryFile) -> None:
    """Hard-link the file to its target's name, unless that exists."""
    try:
        os.link(file.path, file.target)
    except FileExistsError:
        if os.path.lexists(file.target) and not os.path.isfile(file.target):
            # No reader could find an object there: a retry would never end.
            raise errors.StorageError(
                f"{file.target} exists and is not a file",
                path=file.target,
                operation="put-if-absent",
                hint="nothing was written; remove the directory or link with that name",
            ) from None
        raise errors.ObjectExistsError(
            f"{file.target} exists", path=file.target, operation="put-if-absent"
        ) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise errors.ConditionalPutError(
            f"the file system of {file.directory} has no hard links, so two writers could both"
            " believe that they wrote a commit first",
            path=file.target,
            operation="put-if-absent",
            hint="keep the table on a POSIX file system such as ext4, xfs or btrfs",
        ) from error
