"""What a store needs from the thing that holds its objects: disk, memory, object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lakehand.storage.objects import DeleteFailure, ObjectInfo, ObjectWriter
    from lakehand.storage.retry import RetryPolicy
    from lakehand.storage.scanning import Scanner

__all__ = ["Backend"]


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
