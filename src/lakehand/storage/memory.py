"""Objects in memory, shared by name within the process: a complete store for tests."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, Self

from lakehand.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreQuotaError,
)
from lakehand.observe.clock import Clock, SystemClock
from lakehand.storage.location import join_key, parse_location
from lakehand.storage.objects import DeleteFailure, NotComposable, ObjectInfo, ObjectWriter
from lakehand.storage.scanning import Scanned, Scanner
from lakehand.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.storage.retry import RetryPolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One request to a memory store."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


@dataclass(kw_only=True)
class _Bucket:
    """State that all memory stores of one name share."""

    objects: dict[str, _Object] = field(default_factory=dict)
    history: list[Operation] = field(default_factory=list)
    latency: timedelta = timedelta(0)
    quota_bytes: int | None = None
    clock: Clock = field(default_factory=SystemClock)
    writes: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def used_bytes(self) -> int:
        return sum(entry.info.bytes for entry in self.objects.values())

    def store(self, key: str, data: bytes) -> None:
        replaced = self.objects[key].info.bytes if key in self.objects else 0
        used = self.used_bytes() - replaced + len(data) if self.quota_bytes is not None else 0
        if self.quota_bytes is not None and used > self.quota_bytes:
            raise StoreQuotaError(
                f"{len(data)} bytes for {key} do not fit into {self.quota_bytes}",
                path=key,
                operation="put",
            )
        self.writes += 1
        info = ObjectInfo(
            key=key, bytes=len(data), modified_at=self.clock.now(), etag=str(self.writes)
        )
        self.objects[key] = _Object(data=data, info=info)


_BUCKETS: dict[str, _Bucket] = {}
_BUCKETS_LOCK = threading.Lock()


def _bucket(name: str) -> _Bucket:
    with _BUCKETS_LOCK:
        return _BUCKETS.setdefault(name, _Bucket())


class MemoryBackend:
    """A directory of a bucket in memory. Pickling keeps only its name."""

    parallel_requests = 4

    def __init__(self, name: str, root: str = "") -> None:
        self._bucket_name = name
        self._root = root
        self.bucket = _bucket(name)

    def with_retry(self, policy: RetryPolicy) -> Self:  # noqa: ARG002
        """Return itself: operations in memory are not retried."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (MemoryBackend, (self._bucket_name, self._root))

    def _name(self, key: str) -> str:
        return join_key(self._root, key) if key else self._root

    def _request(self, operation: str, key: str) -> str:
        self.bucket.history.append(Operation(name=operation, key=key))
        if self.bucket.latency:
            self.bucket.clock.sleep(self.bucket.latency.total_seconds())
        return self._name(key)

    def _find(self, operation: str, key: str) -> _Object:
        try:
            return self.bucket.objects[self._request(operation, key)]
        except KeyError:
            raise ObjectNotFoundError(
                f"object {key} does not exist", path=key, operation=operation
            ) from None

    def keeping_reads(self) -> AbstractContextManager[None]:
        """Keep nothing: reading again costs nothing."""
        return nullcontext()

    def finish_puts(self, directory: str) -> None:
        """Do nothing: a put of this store is done, or it is not."""

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        """Do nothing: incomplete uploads are not visible in this store."""

    def local_path(self, key: str) -> None:  # noqa: ARG002
        return None

    def get(self, key: str) -> bytes:
        return self._find("get", key).data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._find("get", key).data[start : start + length]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        data = self._find("get", key).data
        return [data[start : start + length] for start, length in ranges]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        data = self._find("get", key).data
        return data[max(len(data) - length, 0) :], len(data)

    def head(self, key: str) -> ObjectInfo:
        return self._relative(self._find("head", key).info)

    def _relative(self, info: ObjectInfo) -> ObjectInfo:
        key = info.key.removeprefix(f"{self._root}/") if self._root else info.key
        return ObjectInfo(key=key, bytes=info.bytes, modified_at=info.modified_at, etag=info.etag)

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        directory = self._request("list", prefix)
        start = self._name(after) if after else ""
        below = f"{directory}/" if directory else ""
        with self.bucket.lock:
            found = [
                entry.info
                for name, entry in self.bucket.objects.items()
                if name.startswith(below) and name > start
            ]
        yield from map(self._relative, sorted(found, key=lambda info: info.key))

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]:
        directories: set[str] = set()
        objects: list[ObjectInfo] = []
        for info in self.walk(prefix, None):
            below = info.key[len(prefix) + 1 if prefix else 0 :]
            child, slash, _ = below.partition("/")
            if slash:
                directories.add(join_key(prefix, child))
            else:
                objects.append(info)
        return sorted(directories), objects

    def scanner(self) -> AbstractContextManager[Scanner]:
        return nullcontext(Scanner(scan=self._scan, parallel=1))

    def _scan(self, directories: Sequence[str]) -> Iterator[Scanned]:
        from lakehand.storage.scan_columns import batch_of_objects

        (directory,) = directories
        yield Scanned(objects=batch_of_objects(self.walk(directory, None)))

    def remove_empty_directories(self, directories: Sequence[str]) -> int:  # noqa: ARG002
        return 0

    def put(self, key: str, data: bytes) -> None:
        name = self._request("put", key)
        with self.bucket.lock:
            self.bucket.store(name, bytes(data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        name = self._request("put_if_absent", key)
        with self.bucket.lock:
            if name in self.bucket.objects:
                raise ObjectExistsError(f"{key} exists", path=key, operation="put-if-absent")
            self.bucket.store(name, bytes(data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        name = self._request("put_if_match", key)
        with self.bucket.lock:
            found = self.bucket.objects.get(name)
            if found is None or found.info.etag != etag:
                message = f"{key} changed, or is gone"
                raise ObjectChangedError(message, path=key, operation="put-if-match")
            self.bucket.store(name, bytes(data))

    def composer(self) -> NoReturn:
        raise NotComposable("stores of memory:// do not offer it")

    def open_writer(self, key: str) -> ObjectWriter:
        return _MemoryWriter(key, self)

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        with self.bucket.lock:
            for key in keys:
                self.bucket.objects.pop(self._request("delete", key), None)
        return []


class _MemoryWriter(ObjectWriter):
    def __init__(self, key: str, backend: MemoryBackend) -> None:
        super().__init__(key)
        self._backend = backend
        self._buffer = bytearray()

    def _write(self, view: memoryview) -> None:
        self._buffer += view

    def _commit(self) -> None:
        self._backend.put(self.key, bytes(self._buffer))

    def _discard(self) -> None:
        self._buffer.clear()


class MemoryStore(Store):
    """A store in memory that can be slow, full or rolled back, and records every request.

    Stores with the same name share their objects, including `open_store("memory://name")`.
    """

    _backend: MemoryBackend

    def __init__(
        self,
        name: str = "default",
        *,
        path: str = "",
        latency: timedelta | None = None,
        quota_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        location = parse_location(f"memory://{name}/{path}")
        backend = MemoryBackend(location.container, location.path)
        super().__init__(backend, location=location, clock=clock)
        if latency is not None:
            backend.bucket.latency = latency
        if quota_bytes is not None:
            backend.bucket.quota_bytes = quota_bytes
        if clock is not None:
            backend.bucket.clock = clock

    @property
    def file_count(self) -> int:
        return len(self._backend.bucket.objects)

    @property
    def used_bytes(self) -> int:
        return self._backend.bucket.used_bytes()

    @property
    def history(self) -> tuple[Operation, ...]:
        """All requests so far, oldest first."""
        return tuple(self._backend.bucket.history)

    def snapshot(self) -> Mapping[str, object]:
        """Return the current content, for `restore`."""
        return dict(self._backend.bucket.objects)

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Replace the content by that of `snapshot`."""
        with self._backend.bucket.lock:
            self._backend.bucket.objects = dict(snapshot)  # type: ignore[arg-type]

    def clear(self) -> None:
        """Delete all objects and recorded requests."""
        with self._backend.bucket.lock:
            self._backend.bucket.objects.clear()
            self._backend.bucket.history.clear()
