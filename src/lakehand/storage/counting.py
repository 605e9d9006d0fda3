"""Counts what a store is asked for: the proof that something was not read."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from lakehand.storage.store import Store
from lakehand.storage.wrapping import WrappingBackend

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CountingStore"]

T = TypeVar("T")


class _CountingBackend(WrappingBackend):
    def __init__(self, store: Store) -> None:
        super().__init__(store._backend)  # noqa: SLF001  a wrapper of the same package
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
    """The same objects as `store`, with every request and byte counted.

    `local_path` gives None, so that readers of local files go through the store as well.
    """

    _backend: _CountingBackend

    def __init__(self, store: Store) -> None:
        super().__init__(
            _CountingBackend(store),
            location=store._location,  # noqa: SLF001
            options=store._options,  # noqa: SLF001
            retry=store._retry,  # noqa: SLF001
            clock=store._clock,  # noqa: SLF001
        )

    @property
    def requests(self) -> Counter[str]:
        """How often each operation was asked for."""
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
