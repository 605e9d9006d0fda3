"""Deleting files for good, and counting what went and what would not go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakehand.storage import DeleteFailure, Store

__all__ = ["Deleter"]


class Deleter:
    """Deletes files in batches. A file that cannot be deleted does not stop the others."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.files = 0
        self.bytes = 0
        self.directories = 0
        self.errors: list[Mapping[str, Any]] = []

    def delete(self, files: pa.Table, *, beside: Collection[str] = ()) -> None:
        """Delete the files of a table with the columns key and bytes, and what lies `beside` them.

        Directories that hold nothing afterwards go, too.
        """
        keys = files["key"].to_pylist()
        failures = self._store.delete(keys)
        self._store.delete(beside)
        gone = _without(files, failures) if failures else files
        self.files += gone.num_rows
        self.bytes += pc.sum(gone["bytes"]).as_py() or 0
        self.errors += [failure.error.to_json() | {"path": failure.key} for failure in failures]
        self.directories += self._store.remove_empty_directories(_directories(keys))


def _without(files: pa.Table, failures: Sequence[DeleteFailure]) -> pa.Table:
    kept = pa.array([failure.key for failure in failures], pa.string())
    return files.filter(pc.invert(pc.is_in(files["key"], value_set=kept)))


def _directories(keys: Iterable[str]) -> set[str]:
    return {key.rpartition("/")[0] for key in keys} - {""}
