"""What a store holds, and the files through which objects are read and written."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import TracebackType

    from typing_extensions import Buffer

    from lakehand.errors import StorageError

__all__ = ["DeleteFailure", "ObjectInfo", "ObjectReader", "ObjectWriter"]


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
