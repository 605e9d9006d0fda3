"""Deleting files for good, and counting what went and what would not go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lakehand.storage import Store

__all__ = ["Deleted", "Deleter", "delete_keys", "failures_of"]

#: So many failures are told one by one; all of them are counted.
MOST_ERRORS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Deleted:
    """What came of deleting some files: those that are not told of are gone."""

    #: Errors as JSON, each with the `path` of a file that may still be there.
    failures: Sequence[Mapping[str, Any]]
    #: Files that nobody got to in time.
    late: pa.Table


class Deleter:
    """Deletes files in batches. A file that cannot be deleted does not stop the others."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.files = 0
        self.bytes = 0
        self.directories = 0
        self.files_failed = 0
        #: The first failures: a store that refuses every deletion does so a million times.
        self.errors: list[Mapping[str, Any]] = []

    def delete(
        self,
        files: pa.Table,
        *,
        beside: Callable[[pa.Table], Collection[str]],
        by: Callable[[pa.Table], Deleted] | None = None,
    ) -> pa.Table:
        """Delete the files of a table with the columns key and bytes.

        What lies `beside` those that are gone goes with them, and so do directories that hold
        nothing afterwards. Returns the files that nobody got to in time, which can only happen to
        those who delete them elsewhere, `by` order.
        """
        keys = files["key"].to_pylist()
        done = by(files) if by else _deleted_here(self._store, files, keys)
        left = [failure["path"] for failure in done.failures]
        gone = _without(files, pa.array(left, pa.string()), done.late["key"])
        self._store.delete(beside(gone))
        self.files += gone.num_rows
        self.bytes += pc.sum(gone["bytes"]).as_py() or 0
        self._fail(done.failures)
        self.directories += self._store.remove_empty_directories(_directories(keys))
        return done.late

    def give_up(self, files: pa.Table) -> None:
        """Note that nobody got to `files` in time, however often that was tried."""
        error = StorageError(
            f"no task came to delete these files of {self._store.url} within its time",
            path=self._store.url,
            operation="delete",
            hint="vacuum again when executors are free; their clocks and the driver's must agree",
        )
        self._fail(failures_of(files, error.to_json()))

    def _fail(self, failures: Sequence[Mapping[str, Any]]) -> None:
        self.files_failed += len(failures)
        self.errors += failures[: MOST_ERRORS - len(self.errors)]


def delete_keys(store: Store, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Delete objects; return the errors of those that are still there."""
    return [failure.error.to_json() | {"path": failure.key} for failure in store.delete(keys)]


def failures_of(files: pa.Table, error: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an error as that of every single file."""
    return [{**error, "path": key} for key in files["key"].to_pylist()]


def _deleted_here(store: Store, files: pa.Table, keys: Sequence[str]) -> Deleted:
    return Deleted(failures=delete_keys(store, keys), late=files.slice(0, 0))


def _without(files: pa.Table, *lists: pa.Array | pa.ChunkedArray) -> pa.Table:
    for keys in lists:
        if len(keys):
            files = files.filter(pc.invert(pc.is_in(files["key"], value_set=keys)))
    return files


def _directories(keys: Iterable[str]) -> set[str]:
    return {key.rpartition("/")[0] for key in keys} - {""}
