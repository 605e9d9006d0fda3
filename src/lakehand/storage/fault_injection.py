"""Backends that wrap another one, to count requests or to inject faults."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lakehand.errors import StorageError, StoreUnreachableError
from lakehand.observe.clock import Clock, SystemClock
from lakehand.storage.retry import NO_RETRY, RetryPolicy
from lakehand.storage.store import Store
from lakehand.storage.wrapping_backend import WrappingBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakehand.storage.objects import ObjectInfo


T = TypeVar("T")


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
