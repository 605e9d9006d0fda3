"""Files that the log names and storage does not have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehand.formats.delta.files.deletion_vectors import DvDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = ["missing_files"]

_AT_ONCE = 16


def missing_files(store: Store, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Return the data files and deletion vectors of `files` that are not there, by path."""
    paths = list(dict.fromkeys(_paths(files)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda path: _exists(store, path), paths)
        return tuple(path for path, is_there in zip(paths, found, strict=True) if not is_there)


def _paths(files: Iterable[DataFile]) -> Iterator[str]:
    for file in files:
        yield file.path
        vector = file.native["add"].get("deletionVector")
        path = None if vector is None else DvDescriptor.from_json(vector).path
        if path is not None:
            yield path


def _exists(store: Store, path: str) -> bool:
    place, key = store.resolve(path)
    return place.exists(key)
