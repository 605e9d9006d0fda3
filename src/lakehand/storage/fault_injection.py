"""Backends that wrap another one, to count requests or to inject faults."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakehand.errors import StorageError, StoreUnreachableError
from lakehand.observe.clock import Clock, SystemClock
from lakehand.storage.objects import Backend, DeleteFailure, ObjectInfo, ObjectWriter
from lakehand.storage.retry import NO_RETRY, RetryPolicy
from lakehand.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakehand.storage.scanning import Scanned, Scanner

T = TypeVar("T")


class WrappingBackend:
    """Forwards everything. Subclasses override `request` and, for listings, `objects`."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.parallel_requests = inner.parallel_requests

    def with_retry(self, policy: RetryPolicy) -> Self:  # noqa: ARG002
        """Return itself: a wrapper does not retry."""
        return self

    def request(
        self,
        operation: str,  # noqa: ARG002  for subclasses
        key: str,  # noqa: ARG002
        action: Callable[[], T],
        *,
        written_bytes: int = 0,  # noqa: ARG002
    ) -> T:
        return action()

    def objects(self, prefix: str, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:  # noqa: ARG002
        return found

    def local_path(self, key: str) -> None:
        """Return None: direct access to the file would bypass this wrapper."""

    def get(self, key: str) -> bytes:
        return self.request("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.request("get_range", key, lambda: self.inner.get_range(key, start, length))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self.request("get_ranges", key, lambda: self.inner.get_ranges(key, ranges))

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self.request("get_tail", key, lambda: self.inner.get_tail(key, length))

    def head(self, key: str) -> ObjectInfo:
        return self.request("head", key, lambda: self.inner.head(key))

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        found = self.request("list", prefix, lambda: self.inner.walk(prefix, after))
        yield from self.objects(prefix, found)

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]:
        return self.request("list_directory", prefix, lambda: self.inner.list_directory(prefix))

    @contextmanager
    def scanner(self) -> Iterator[Scanner]:
        with self.inner.scanner() as scanner:
            yield replace(scanner, scan=partial(self._scan, scanner))

    def _scan(self, scanner: Scanner, directories: Sequence[str]) -> Iterator[Scanned]:
        return self.request("list", directories[0], lambda: scanner.scan(directories))

    def remove_empty_directories(self, directories: Sequence[str]) -> int:
        return self.inner.remove_empty_directories(directories)

    def put(self, key: str, data: bytes) -> None:
        self.request(
            "put", key, lambda: self.inner.put(key, data), written_bytes=memoryview(data).nbytes
        )

    def put_if_absent(self, key: str, data: bytes) -> None:
        self.request(
            "put_if_absent",
            key,
            lambda: self.inner.put_if_absent(key, data),
            written_bytes=memoryview(data).nbytes,
        )

    def open_writer(self, key: str) -> ObjectWriter:
        writer = self.request("open_writer", key, lambda: self.inner.open_writer(key))
        return _WrappingWriter(writer, self)

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        self.inner.delete_unfinished(prefix, names)

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        return self.request("delete", keys[0], lambda: self.inner.delete(keys))


class _WrappingWriter(ObjectWriter):
    def __init__(self, inner: ObjectWriter, backend: WrappingBackend) -> None:
        super().__init__(inner.key)
        self._inner = inner
        self._backend = backend

    def _write(self, view: memoryview) -> None:
        self._inner.write(view)

    def _publish(self) -> None:
        self._inner.publish()

    def _commit(self) -> None:
        written = self._inner.tell()
        self._backend.request("close_writer", self.key, self._inner.close, written_bytes=written)

    def _discard(self) -> None:
        self._inner.abort()


class _CountingBackend(WrappingBackend):
    def __init__(self, store: Store) -> None:
        super().__init__(store._backend)  # noqa: SLF001  same package
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()
        self.bytes_written: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def request(
        self, operation: str, key: str, action: Callable[[], T], *, written_bytes: int = 0
    ) -> T:
        with self.lock:
            self.requests[operation] += 1
        answer = action()
        with self.lock:
            self.bytes_read[key] += _payload_bytes(answer)
            self.bytes_written[key] += written_bytes
        return answer


def _payload_bytes(answer: object) -> int:
    if isinstance(answer, bytes):
        return len(answer)
    if isinstance(answer, list | tuple):
        return sum(len(part) for part in answer if isinstance(part, bytes))
    return 0


class CountingStore(Store):
    """The objects of `store`, with every request and byte counted.

    `local_path` returns None, so that local files are read through the store as well.
    """

    _backend: _CountingBackend

    def __init__(self, store: Store) -> None:
        super().__init__(
            _CountingBackend(store),
            location=store._location,  # noqa: SLF001
            connection=store._connection,  # noqa: SLF001
            retry=store._retry,  # noqa: SLF001
            clock=store._clock,  # noqa: SLF001
        )

    @property
    def requests(self) -> Counter[str]:
        """Number of requests by operation."""
        return Counter(self._backend.requests)

    @property
    def bytes_read(self) -> int:
        return self._backend.bytes_read.total()

    @property
    def bytes_written(self) -> int:
        return self._backend.bytes_written.total()

    def bytes_read_of(self, key: str) -> int:
        return self._backend.bytes_read[key]

    def reset(self) -> None:
        self._backend.reset()


class FaultKind(StrEnum):
    """A kind of fault."""

    #: The request never reaches the store.
    FAIL_BEFORE = "fail before"
    #: The store did what was requested, then reports a failure.
    FAIL_AFTER = "fail after"
    #: The store did what was requested; its answer never arrives.
    LOST_ANSWER = "lost answer"
    #: A listing fails after `objects`.
    PARTIAL_LIST = "partial list"
    #: A listing ends after `objects` as if there were no more.
    SHORT_LIST = "short list"
    #: The answer takes `delay` longer.
    SLOW = "slow"


_LISTINGS = {FaultKind.PARTIAL_LIST, FaultKind.SHORT_LIST}


@dataclass(kw_only=True)
class Fault:
    """Which requests fail, how, and how often."""

    kind: FaultKind
    #: Name of the Store method, or `close_writer`; `*` matches all.
    operation: str = "*"
    #: Pattern of keys, as in a shell.
    key: str = "*"
    #: Matching requests before the first fault.
    skip: int = 0
    #: Number of faults; None: unlimited.
    times: int | None = 1
    #: Raised instead of the default error.
    error: Exception | None = None
    delay: timedelta = timedelta(0)
    objects: int = 0
    #: Faults so far.
    hits: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def strikes(self, operation: str, key: str) -> bool:
        """Return whether this request fails, and count it."""
        if self.operation not in {"*", operation} or not fnmatchcase(key, self.key):
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True

    def raised(self, operation: str, key: str) -> Exception:
        if self.error is not None:
            return self.error
        kind = StorageError if self.kind is FaultKind.FAIL_AFTER else StoreUnreachableError
        return kind(f"{operation} of {key!r}: {self.kind}", path=key, operation=operation)


class _FaultBackend(WrappingBackend):
    def __init__(self, store: Store, faults: list[Fault], clock: Clock) -> None:
        super().__init__(store._backend)  # noqa: SLF001  same package
        self._faults = faults
        self._clock = clock
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _struck(self, operation: str, key: str, *, listings: bool) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if (fault.kind in _LISTINGS) == listings and fault.strikes(operation, key):
                    return fault
        return None

    def request(
        self,
        operation: str,
        key: str,
        action: Callable[[], T],
        *,
        written_bytes: int = 0,  # noqa: ARG002
    ) -> T:
        fault = self._struck(operation, key, listings=False)
        if fault is None:
            return action()
        if fault.kind is FaultKind.FAIL_BEFORE:
            raise fault.raised(operation, key)
        self._clock.sleep(fault.delay.total_seconds())
        answer = action()
        if fault.kind is FaultKind.SLOW:
            return answer
        raise fault.raised(operation, key)

    def objects(self, prefix: str, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        fault = self._struck("list", prefix, listings=True)
        if fault is None:
            yield from found
            return
        yield from islice(found, fault.objects)
        if fault.kind is FaultKind.PARTIAL_LIST:
            raise fault.raised("list", prefix)


class FaultStore(Store):
    """The objects of `store`, with injected faults, which the caller sees.

    So nothing is retried, unless a `retry` policy is given.
    """

    def __init__(
        self,
        store: Store,
        faults: Iterable[Fault],
        *,
        retry: RetryPolicy = NO_RETRY,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(
            _FaultBackend(store, list(faults), clock),
            location=store._location,  # noqa: SLF001
            connection=store._connection,  # noqa: SLF001
            retry=retry,
            clock=clock,
        )
