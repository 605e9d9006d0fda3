"""A backend that forwards to another one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from lakehand.storage.objects import Backend, DeleteFailure, ObjectInfo, ObjectWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from lakehand.storage.retry import RetryPolicy
    from lakehand.storage.s3_composer import S3Composer
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

    def composer(self) -> S3Composer:
        return self.inner.composer()

    def open_writer(self, key: str) -> ObjectWriter:
        writer = self.request("open_writer", key, lambda: self.inner.open_writer(key))
        return _WrappingWriter(writer, self)

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        self.request(
            "put_if_match",
            key,
            lambda: self.inner.put_if_match(key, data, etag),
            written_bytes=memoryview(data).nbytes,
        )

    def keeping_reads(self) -> AbstractContextManager[None]:
        return self.inner.keeping_reads()

    def finish_puts(self, directory: str) -> None:
        self.inner.finish_puts(directory)

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
