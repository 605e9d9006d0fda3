"""Objects, their readers and writers, and the interface of a backend."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from lakehand.storage.pacing import take_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Buffer

    from lakehand.errors import StorageError
    from lakehand.storage.retry import RetryPolicy
    from lakehand.storage.s3_composer import S3Composer
    from lakehand.storage.scanning import Scanner


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """One object, as returned by a listing or a HEAD request."""

    key: str
    bytes: int
    #: Timezone-aware, in UTC.
    modified_at: datetime
    #: Changes whenever the object does; None if the store has none.
    etag: str | None = None


class NotComposable(Exception):  # noqa: N818  as NotCopyable: a reason, not a failure
    """Why a store cannot make a new object of ranges of others, or cannot prove it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteFailure:
    """An object that could not be deleted."""

    key: str
    error: StorageError


class ObjectWriter(ABC):
    """Writes one object. It becomes visible and durable, as a whole, when `close` returns.

    An exception inside `with` aborts the write: nothing becomes visible. A writer that is never
    closed writes nothing, too. To read the object while it becomes durable, call `publish` first.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.closed = False
        self._is_published = False
        self._position = 0

    def write(self, buffer: Buffer) -> int:
        if self.closed or self._is_published:
            raise ValueError(f"the writer of {self.key} is closed")
        view = memoryview(buffer).cast("B")
        take_bytes(view.nbytes)
        self._write(view)
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:  # noqa: B027  file objects have it
        """Do nothing: no part of an object is visible before `close`."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def publish(self) -> None:
        """Make the object visible as a whole; it is durable when `close` returns.

        No more data can be written. An abort after this does not delete the object.
        """
        if self.closed or self._is_published:
            return
        self._is_published = True
        try:
            self._publish()
        except BaseException:
            self.abort()
            raise

    def _publish(self) -> None:
        """Do what is possible before `close`: everything, if the store makes no difference."""
        self.close()

    def close(self) -> None:
        """Make the object visible and durable."""
        if self.closed:
            return
        self.closed = True
        try:
            self._commit()
        except BaseException:
            self._discard()
            raise

    def abort(self) -> None:
        """Discard what was written."""
        if not self.closed:
            self.closed = True
            self._discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.abort()

    @abstractmethod
    def _write(self, view: memoryview) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None: ...


class ObjectReader(io.RawIOBase):
    """Reads one object as a seekable file. Each read is one ranged request, without a buffer."""

    def __init__(self, key: str, *, size: int, read_range: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self.key = key
        #: Size of the whole object.
        self.size = size
        self._read_range = read_range
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset} in {self.key}")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        remaining = max(self.size - self._position, 0)
        length = remaining if size is None or size < 0 else min(size, remaining)
        data = self._read_range(self._position, length) if length else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(view.nbytes)
        view[: len(data)] = data
        return len(data)


class Backend(Protocol):
    """Primitive operations on validated keys, without retries. Raises only lakehand.errors.

    Picklable: a connection is not pickled, but opened again.
    """

    #: Useful number of parallel requests.
    parallel_requests: int

    def with_retry(self, policy: RetryPolicy) -> Self:
        """Return the same backend; requests that it retries itself follow `policy`."""
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return the range, truncated at the end of the object. `length` is above zero."""
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]: ...

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]: ...

    def head(self, key: str) -> ObjectInfo: ...

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]: ...

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]: ...

    def put(self, key: str, data: bytes) -> None: ...

    def keeping_reads(self) -> AbstractContextManager[None]:
        """Request each data file once within the block, if requests cost something."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> None: ...

    def put_if_match(self, key: str, data: bytes, etag: str) -> None: ...

    def finish_puts(self, directory: str) -> None:
        """Finish puts of versions in a directory that dead writers left half done."""
        ...

    def open_writer(self, key: str) -> ObjectWriter: ...

    def composer(self) -> S3Composer:
        """Return what composes objects of ranges of others; NotComposable if nothing does."""
        ...

    def scanner(self) -> AbstractContextManager[Scanner]:
        """Open a scanner of whole trees."""
        ...

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]: ...

    def remove_empty_directories(self, directories: Sequence[str]) -> int:
        """Remove empty directories, and parents that become empty; return how many."""
        ...

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        """Delete incomplete objects of dead writers in a directory, by the start of their names."""
        ...

    def local_path(self, key: str) -> Path | None: ...


#: Where lakehand keeps its own objects in a table.
OWN_DIRECTORY = "_lakehand"
#: Objects by which a process finds out whether a store has conditional puts, and deletes at once.
PROBE_PREFIX = f"{OWN_DIRECTORY}/probe-"

T = TypeVar("T")
R = TypeVar("R")


def fetch_ahead(items: Iterable[T], fetch: Callable[[T], R], *, window: int) -> Iterator[R]:
    """Yield `fetch(item)` in the order of `items`, with up to `window` fetches in flight.

    An error is raised at its item's position. Fetches that have not started are cancelled if the
    caller stops early.
    """
    pool = ThreadPoolExecutor(max_workers=window, thread_name_prefix="fetch")
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(fetch, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
