"""Makes any store fail in chosen ways at chosen requests."""

from __future__ import annotations

import threading
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
from lakehand.storage.wrapping import WrappingBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakehand.storage.objects import ObjectInfo

__all__ = ["Fault", "FaultKind", "FaultStore"]

T = TypeVar("T")


class FaultKind(StrEnum):
    """A way to fail."""

    #: The request never reaches the store.
    FAIL_BEFORE = "fail before"
    #: The store did what was asked, then says that it failed.
    FAIL_AFTER = "fail after"
    #: The store did what was asked; its answer never arrives.
    LOST_ANSWER = "lost answer"
    #: A listing breaks off after `objects`.
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
    #: Keys, as a shell pattern.
    key: str = "*"
    #: Matching requests that pass before the first fault.
    skip: int = 0
    #: Faults before everything works again; None: for ever.
    times: int | None = 1
    #: What is raised instead of the usual error.
    error: Exception | None = None
    delay: timedelta = timedelta(0)
    objects: int = 0
    #: Requests hit so far.
    hits: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def strikes(self, operation: str, key: str) -> bool:
        """Say whether this request is hit, and count it."""
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
        super().__init__(store._backend)  # noqa: SLF001  a wrapper of the same package
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
    """The same objects as `store`, with faults. What is injected is what the caller sees.

    So nothing is tried again, unless a `retry` policy is given.
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
            options=store._options,  # noqa: SLF001
            retry=retry,
            clock=clock,
        )
