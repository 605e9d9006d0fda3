"""Objects as local files, for engines that read nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehand.errors import StoreQuotaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakehand.storage.store import Store

__all__ = ["local_files"]

_PARALLEL_DOWNLOADS = 8
# DuckDB reads these as wildcards, so a path that holds one is reached through a link.
_WILDCARDS = frozenset("*?[]{}")


def local_files(
    objects: Sequence[tuple[Store, str, int]], scratch: Path, *, max_copied_bytes: int
) -> list[Path] | None:
    """Return a local path of each object (store, key, bytes): its own, or of a copy in `scratch`.

    None, and nothing is copied, if the copies would take more than `max_copied_bytes`.
    """
    remote = [size for store, key, size in objects if store.local_path(key) is None]
    if sum(remote) > max_copied_bytes:
        return None
    numbered = enumerate(objects)
    with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
        return list(pool.map(lambda item: _local_file(item[1], scratch, item[0]), numbered))


def _local_file(object_: tuple[Store, str, int], scratch: Path, number: int) -> Path:
    store, key, _ = object_
    local = store.local_path(key)
    if local is not None and not _WILDCARDS & set(str(local)):
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
