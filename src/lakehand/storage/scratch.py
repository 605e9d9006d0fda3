"""Objects as local files, for engines that read nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import StoreQuotaError
from lakehand.storage.prefetch import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakehand.storage.store import Store

__all__ = ["Portion", "holds_wildcards", "local_portions"]

_PARALLEL_DOWNLOADS = 8
#: Portions that are there at most: one in use, one on its way.
_PORTIONS = 2
_PORTION_BYTES = 256 * 2**20
_WILDCARDS = frozenset("*?[]{}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Portion:
    """Some of the objects, as local files."""

    #: Where they stand among all objects.
    positions: range
    #: None: they are too large to be copied.
    paths: list[Path] | None


def local_portions(
    objects: Sequence[tuple[Store, str, int]], scratch: Path, *, max_copied_bytes: int
) -> Iterator[Portion]:
    """Yield the objects (store, key, bytes) in their order, with a local path of each.

    Objects that are no local files are copied into `scratch`, portion by portion: the next one
    while one is used, and each is deleted after its use. All copies together stay below
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

    portions = _divided(copies, max_bytes=min(largest, _PORTION_BYTES))
    for portion in fetch_ahead(portions, fetch, window=_PORTIONS):
        yield portion
        for path in portion.paths or ():
            if path.parent == scratch:
                path.unlink()


def _divided(sizes: Sequence[int], *, max_bytes: int) -> Iterator[range]:
    """Divide numbers into runs of so many bytes; a larger one is a run of its own."""
    start = total = 0
    for number, size in enumerate(sizes):
        if total and total + size > max_bytes:
            yield range(start, number)
            start, total = number, 0
        total += size
    if sizes:
        yield range(start, len(sizes))


def holds_wildcards(path: Path) -> bool:
    """Say whether DuckDB would look for other files than this one; it is given a link then."""
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
    try:
        store.download(key, copy)
    except OSError as error:
        raise StoreQuotaError(
            f"{store.url}/{key} cannot be copied to scratch in {copy.parent}: {error.strerror}",
            path=str(copy),
            operation="get",
            hint="set scratch_directory to a disk with more room, or rewrite less at a time",
        ) from error
