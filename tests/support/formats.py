"""Tables of every format, written and read by the format's own library: the judge of lakehand."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

import lakehand
from lakehand.formats.registry import load_format
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import vacuum
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakehand.model.retention import VacuumReport
    from lakehand.table import Table

FILES, ROWS = 8, 8
WORDS = ("a", "b", None, "d")


def some_rows(start: int, count: int = ROWS, *, at: int = 0) -> pa.Table:
    """Return rows whose values follow from their numbers, and from `at`."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": pa.array([WORDS[number % 4] for number in ids], pa.string()),
            "at": pa.array([at] * count, pa.int64()),
            # Does not shrink, so that files are as large as their rows.
            "noise": pa.array([_noise(number) for number in ids], pa.string()),
        }
    )


def _noise(number: int) -> str:
    return base64.b85encode(random.Random(number).randbytes(200)).decode()


@dataclass(frozen=True, kw_only=True)
class Kit:
    """What tests need of a format that is not lakehand's."""

    name: str
    #: Adds rows in one file and one version.
    append: Callable[[str, pa.Table], object]
    #: Deletes rows for which a condition is true.
    delete: Callable[[str, str], object]
    read: Callable[[str], pa.Table]
    #: Paths of the files of the newest version, below the root.
    files: Callable[[str], list[str]]

    def make(self, path: Path, *, files: int = FILES) -> str:
        """Write a table of small files, one version each, and return where it is."""
        for number in range(files):
            self.append(str(path), some_rows(number * ROWS))
        return str(path)

    def rows(self, path: str) -> list[tuple[Any, ...]]:
        """Return all rows, in order."""
        columns = self.read(path).to_pydict().values()
        return sorted(zip(*columns, strict=True), key=repr)

    def ids(self, path: str) -> list[int]:
        return sorted(self.read(path)["id"].to_pylist())


def _delta_append(path: str, rows: pa.Table) -> None:
    write_deltalake(path, rows, mode="append")


def _lance_append(path: str, rows: pa.Table) -> None:
    lance.write_dataset(rows, path, mode="append")


def _lance_files(path: str) -> list[str]:
    return [f"data/{f.metadata.files[0].path}" for f in lance.dataset(path).get_fragments()]


def _delta_files(path: str) -> list[str]:
    return [file.rpartition("/")[2] for file in DeltaRsTable(path).file_uris()]


KITS: Mapping[str, Kit] = {
    "delta": Kit(
        name="delta",
        append=_delta_append,
        delete=lambda path, where: DeltaRsTable(path).delete(where),
        read=lambda path: DeltaRsTable(path).to_pyarrow_table(),
        files=_delta_files,
    ),
    "lance": Kit(
        name="lance",
        append=_lance_append,
        delete=lambda path, where: lance.dataset(path).delete(where),
        read=lambda path: lance.dataset(path).to_table(),
        files=_lance_files,
    ),
}


def open_here(path: str, **settings: Any) -> Table:
    return lakehand.open_table(path, engine="local", **settings)


def vacuum_later(
    path: str, *, days: int = 30, dry_run: bool = False, **settings: Any
) -> VacuumReport:
    """Vacuum as if it were `days` from now."""
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    chosen = Settings({"grace": "0", **settings}, environment={})
    name = lakehand.open_table(path).format
    handle = load_format(name).open(open_store(path), settings=chosen)
    return vacuum(handle, settings=chosen, dry_run=dry_run, clock=clock)


def compact_and_die(path: str) -> None:
    """Compact into some files, with all tasks in this process; to be killed on the way."""
    with tasks_inline():
        open_here(path, target_file_bytes=two_files(path), min_files=2).compact()


def upsert_and_die(path: str) -> None:
    """Replace the row 0 and add the row 1000, with all tasks in this process; to be killed."""
    rows = pa.concat_tables([some_rows(0, 1, at=9), some_rows(1000, 1, at=9)])
    with tasks_inline():
        open_here(path).upsert(rows, key=["id"])


def two_files(path: str) -> int:
    """Return the target size at which the small files of a table become two or more."""
    return open_here(path).inspect().total_bytes * 2 // 5
