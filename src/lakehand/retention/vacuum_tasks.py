"""Listing and deleting files: here, or in Spark tasks where they are too many for one process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine import is_spark_asked_for
from lakehand.engine.exchange import pack_columns, unpack_columns
from lakehand.engine.inline import HERE
from lakehand.engine.runner_contract import results_of
from lakehand.errors import StorageError, StoreUnreachableError
from lakehand.model.batches import sliced
from lakehand.runs.operation import Call, Tasks
from lakehand.storage.scan_columns import SCAN_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.optional import DataNames
    from lakehand.storage import Store

#: Maximum failures that are listed; all of them are counted.
MOST_ERRORS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Deleted:
    """The outcome of deleting some files: all that are not listed are deleted."""

    #: Errors as JSON, each with the `path` of a file that may still be there.
    failures: Sequence[Mapping[str, Any]]
    #: Files that no task reached in time.
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

        Files that `beside` returns are deleted with theirs, and so are directories that are empty
        afterwards. Returns the files that were not reached in time, which can only happen
        if tasks delete them (`by`).
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
        """Record that no task reached `files` in time, after all attempts."""
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


#: The results of one round of listing are in memory at once: tasks, and files of each.
_TASKS_A_ROUND = 32
_FILES_LISTED_A_TASK = 50_000
_DIRECTORIES_A_TASK = 500
_FILES_DELETED_A_TASK = 2_000
#: Files that are deleted before a task looks at its clock again.
_FILES_AT_A_TIME = 1_000
#: How long tasks may delete what was found at the beginning to be needed by no version.
_WINDOW_SECONDS = 120.0
#: How much the clock of an executor may be behind.
_CLOCK_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """When tasks may delete: an attempt that Spark has given up may come back any time later."""

    opens_at: float
    closes_at: float

    @classmethod
    def from_now(cls) -> Self:
        now = time.time()
        return cls(opens_at=now - _CLOCK_SECONDS, closes_at=now + _WINDOW_SECONDS)

    @property
    def is_open(self) -> bool:
        return self.opens_at <= time.time() <= self.closes_at


@dataclass(frozen=True, kw_only=True, slots=True)
class ListTask:
    """A function from directories to the files below them. Picklable."""

    store: Store
    names: DataNames

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        _require_root(self.store)
        scan = self.store.scan(
            enter=self.names.may_hold_data,
            directories=payload["directories"],
            most_objects=payload["most_objects"],
        )
        found = pa.Table.from_batches(scan, SCAN_SCHEMA)
        return {"files": pack_columns(found), "left": scan.left}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteTask:
    """Deletes the objects of some keys. Picklable, and idempotent."""

    store: Store
    window: Window

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        _require_root(self.store)
        keys = unpack_columns(payload["files"])["key"].to_pylist()
        tried, failures = 0, list[dict[str, Any]]()
        while tried < len(keys) and self.window.is_open:
            failures += delete_keys(self.store, keys[tried : tried + _FILES_AT_A_TIME])
            tried = min(tried + _FILES_AT_A_TIME, len(keys))
        return {"tried": tried, "failures": failures}


def _require_root(store: Store) -> None:
    """Raise where the table's directory is not there: what is missing would seem to be deleted."""
    path = store.local_path("any")
    if path is not None and not path.parent.is_dir():
        raise StoreUnreachableError(
            f"{store.url} is a directory that this executor does not see",
            path=store.url,
            operation="list",
            hint="mount it on every executor in the same place, or vacuum with --engine local",
        )


class VacuumTasks:
    """Tasks on Spark, if Spark is asked for and there is much to do.

    Spark is started when the first task is due.
    """

    def __init__(self, call: Call) -> None:
        self._store = call.table.store
        is_wanted = is_spark_asked_for(call.settings, spark=call.spark)
        self._tasks = Tasks(call, call.runner(read_bytes=0) if is_wanted else HERE)
        #: Up to this many files are listed and deleted without tasks; None: all are.
        self.files_without: int | None = call.settings.vacuum_tasks_above if is_wanted else None

    def is_needed(self, files: int) -> bool:
        return self.files_without is not None and files > self.files_without

    def list(self, directories: Sequence[str], *, names: DataNames) -> Iterator[pa.RecordBatch]:
        """Stream all files below `directories`, as `Store.scan` does; a failed task is raised."""
        task, pending = ListTask(store=self._store, names=names), [*directories]
        while pending:
            # Few directories are only opened, so that more tasks share what is below them.
            most = _FILES_LISTED_A_TASK if len(pending) >= _TASKS_A_ROUND else 1
            portions = [*_round(pending)]
            del pending[: sum(map(len, portions))]
            payloads = [{"directories": portion, "most_objects": most} for portion in portions]
            for result in results_of(self._tasks.outcomes(task, payloads)):
                pending += result["left"]
                yield from unpack_columns(result["files"]).to_batches()

    def delete(self, files: pa.Table) -> Deleted:
        """Delete the files of a table with the column key, all within a window from now on."""
        portions = sliced(files, _FILES_DELETED_A_TASK)
        payloads = [{"files": pack_columns(portion.select(["key"]))} for portion in portions]
        task = DeleteTask(store=self._store, window=Window.from_now())
        failures: list[Mapping[str, Any]] = []
        late = [files.slice(0, 0)]
        for outcome, portion in zip(self._tasks.outcomes(task, payloads), portions, strict=True):
            if outcome.result is None:
                failures += failures_of(portion, outcome.failure or {})
            else:
                failures += outcome.result["failures"]
                late.append(portion.slice(outcome.result["tried"]))
        return Deleted(failures=failures, late=pa.concat_tables(late))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tasks.runner.close()


def _round(directories: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide directories among the tasks of one round; if they are many, some are left."""
    size = min(-(-len(directories) // _TASKS_A_ROUND), _DIRECTORIES_A_TASK)
    for start in range(0, min(len(directories), size * _TASKS_A_ROUND), size):
        yield directories[start : start + size]
