"""Local scratch space of tasks: copies of objects, and spilled data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakehand.errors import StoreQuotaError
from lakehand.model.batches import divide
from lakehand.storage.objects import fetch_ahead
from lakehand.temporary import scratch_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakehand.storage.store import Store

_PARALLEL_DOWNLOADS = 8
#: Maximum number of portions on disk: one in use, one being copied.
_PORTIONS = 2
_PORTION_BYTES = 256 * 2**20
_WILDCARDS = frozenset("*?[]{}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Portion:
    """Some of the objects, as local files."""

    #: Their positions among all objects.
    positions: range
    #: None: they are too large to copy.
    paths: list[Path] | None


def local_portions(
    objects: Sequence[tuple[Store, str, int]], scratch: Path, *, max_copied_bytes: int
) -> Iterator[Portion]:
    """Yield the objects (store, key, bytes) in their order, each with a local path.

    Objects that are not local files are copied into `scratch`, portion by portion: the next one
    while one is in use; each is deleted after use. All copies together stay below
    `max_copied_bytes`.
    """
    largest = max_copied_bytes // _PORTIONS
    copies = [0 if store.local_path(key) is not None else size for store, key, size in objects]
    if max(copies, default=0) > largest:
        yield Portion(positions=range(len(objects)), paths=None)
        return

    def fetch(positions: range) -> Portion:
        numbered = ((objects[number], scratch, number) for number in positions)
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            paths = list(pool.map(lambda item: _local_file(*item), numbered))
        return Portion(positions=positions, paths=paths)

    numbers, most_bytes = range(len(objects)), min(largest, _PORTION_BYTES)
    divided = divide(numbers, size_of=copies.__getitem__, most_bytes=most_bytes)
    portions = (range(portion[0], portion[-1] + 1) for portion in divided)
    for portion in fetch_ahead(portions, fetch, window=_PORTIONS):
        yield portion
        for path in portion.paths or ():
            if path.parent == scratch:
                path.unlink()


def holds_wildcards(path: Path) -> bool:
    """Return whether DuckDB would expand the path as a pattern; it then reads through a link."""
    return not _WILDCARDS.isdisjoint(str(path))


def _local_file(object_: tuple[Store, str, int], scratch: Path, number: int) -> Path:
    store, key, _ = object_
    local = store.local_path(key)
    if local is not None and not holds_wildcards(local):
        return local.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    copy = scratch / f"{number}.parquet"
    if local is not None:
        copy.symlink_to(local.absolute())
    else:
        _download(store, key, copy)
    return copy


def _download(store: Store, key: str, copy: Path) -> None:
    with scratch_errors(copy, f"{store.url}/{key} cannot be copied to scratch"):
        store.download(key, copy)


class SpoolFile:
    """A new file to which data is appended.

    Raises StoreQuotaError if it exceeds its limit or the free disk space.
    """

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._size = 0
        self._file = path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._within_room():
            self._file.close()

    def append(self, piece: pa.Buffer) -> int:
        """Append data and return its offset."""
        start = self._size
        if start + piece.size > self._most_bytes:
            raise self._no_room(f"the limit is {self._most_bytes:,} bytes")
        with self._within_room():
            self._file.write(piece)
        self._size += piece.size
        return start

    def flush(self) -> None:
        """Make the written data visible to readers."""
        with self._within_room():
            self._file.flush()

    @contextmanager
    def _within_room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._no_room(str(error.strerror)) from error

    def _no_room(self, reason: str) -> StoreQuotaError:
        return StoreQuotaError(
            f"rows to be sorted do not fit into scratch space: {reason}",
            path=str(self.path),
            operation="put",
            hint="set scratch_directory to a disk with more free space, and raise scratch_bytes",
        )
