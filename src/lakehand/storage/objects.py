"""What a store holds, how objects are read and written, and what a backend must do."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Buffer

    from lakehand.errors import StorageError
    from lakehand.storage.retry import RetryPolicy
    from lakehand.storage.scanning import Scanner

__all__ = ["Backend", "DeleteFailure", "ObjectInfo", "ObjectReader", "ObjectWriter", "fetch_ahead"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """One object, as a listing or a head request tells it."""

    key: str
    bytes: int
    #: Aware, in UTC.
    modified_at: datetime
    #: Changes whenever the object does; None where the store has none.
    etag: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteFailure:
    """An object that is still there although it was to be deleted."""

    key: str
    error: StorageError


class ObjectWriter(ABC):
    """Writes one object. It becomes visible, whole and durable, when `close` returns.

    An exception inside `with` aborts: nothing becomes visible. So does forgetting to close. Whoever
    wants to read the object while it becomes durable calls `publish` before.
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
        self._write(view)
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:  # noqa: B027  files have one
        """Do nothing: nothing of an object is visible before `close`."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def publish(self) -> None:
        """Make the object visible, whole; that it is durable is known when `close` returns.

        Nothing can be written any more. To abort from here on leaves the object where it is.
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
        """Do what can be done before `close`; where a store knows no difference, all of it."""
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
        """Throw away what was written."""
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
    """Reads one object as a seekable file. Each read is one ranged request; nothing is buffered."""

    def __init__(self, key: str, *, size: int, read_range: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self.key = key
        #: Bytes of the whole object.
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
    """Primitive operations on checked keys, without retries. Errors are those of lakehand.errors.

    Picklable: a live connection is dropped and opened again on the other side.
    """

    #: How many requests are worth making at the same time.
    parallel_requests: int

    def with_retry(self, policy: RetryPolicy) -> Self:
        """Return the same objects; what is repeated below this interface follows `policy`."""
        ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return the range, cut at the end of the object. `length` is above zero."""
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]: ...

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]: ...

    def head(self, key: str) -> ObjectInfo: ...

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]: ...

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]: ...

    def put(self, key: str, data: bytes) -> None: ...

    def put_if_absent(self, key: str, data: bytes) -> None: ...

    def open_writer(self, key: str) -> ObjectWriter: ...

    def scanner(self) -> AbstractContextManager[Scanner]:
        """Open what lists whole trees."""
        ...

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]: ...

    def remove_empty_directories(self, directories: Sequence[str]) -> int:
        """Remove directories that hold nothing, and their parents then; return how many."""
        ...

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        """Delete what writers that died left in a directory of objects whose names start so."""
        ...

    def local_path(self, key: str) -> Path | None: ...


T = TypeVar("T")
R = TypeVar("R")


def fetch_ahead(items: Iterable[T], fetch: Callable[[T], R], *, window: int) -> Iterator[R]:
    """Yield `fetch(item)` in the order of `items`, with up to `window` fetches in flight.

    An error surfaces when its item's turn comes. Fetches not yet begun are dropped when the caller
    stops early.
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
