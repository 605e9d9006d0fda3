"""Tables that lose a value, days that pass over them, and a search for what is left of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakehand
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.lance.table import LanceTable
from lakehand.maintenance.purge import purge
from lakehand.observe.clock import ManualClock
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakehand.model.maintenance import PurgeReport

#: The value that is erased; it sorts between the others, and after all of them in its own file.
SECRET = "nobody@secret.example"
#: How late `Days.on_schedule` comes, which is as late as files are deleted.
LATENESS = timedelta(days=0.2)
SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string())])


def rows(*emails: str, start: int = 0) -> pa.Table:
    ids = range(start, start + len(emails))
    return pa.table({"id": list(ids), "email": list(emails)}, schema=SCHEMA)


def make_with_secret(path: Path, **options: Any) -> Path:
    """Make a table of two files, of which the second holds the value in one of its rows."""
    table = lakehand.create_table(path, SCHEMA, **options)
    table.append(rows("a@example", "b@example"))
    table.append(rows("c@example", SECRET, start=2))
    return path


class Days:
    """A table on disk over many days: files that appear get the date of their day."""

    def __init__(self, path: Path, *, of: type[DeltaTable | LanceTable] = DeltaTable) -> None:
        self.path = path
        self.start = datetime.now(UTC)
        self.now = self.start
        self._format = of
        self._known = self._files()

    def _files(self) -> dict[Path, int]:
        found = (file for file in self.path.rglob("*") if file.is_file())
        return {file: file.stat().st_mtime_ns for file in found}

    def date_files(self) -> None:
        """Give every file that is new, or was written again, the time of this day."""
        for file, modified in self._files().items():
            if self._known.get(file) != modified:
                os.utime(file, (self.now.timestamp(), self.now.timestamp()))
        self._known = self._files()

    def open(self) -> tuple[Any, ManualClock]:
        clock = ManualClock(self.now)
        store = open_store(self.path)
        is_delta = self._format is DeltaTable
        return (DeltaTable(store, clock=clock) if is_delta else LanceTable(store)), clock

    def purge(self, *, days: float = 0, **settings: Any) -> PurgeReport:
        """Let `days` pass and purge."""
        self.now += timedelta(days=days)
        table, clock = self.open()
        with tasks_inline():
            report = purge(table, settings=Settings(settings, environment={}), clock=clock)
        self.date_files()
        return report

    def on_schedule(self, *, until: datetime) -> Iterator[datetime]:
        """Let time pass, and stop where something is due: after the retention, after the grace."""
        stops = [self.start + timedelta(days=day) for day in (7.1, 8.2, 20)]
        for stop in (*(at for at in stops if at < until), until):
            self.now = stop
            yield stop


def codes(report: PurgeReport) -> list[str]:
    return [place.code for place in report.remaining]


def places_with(path: Path, value: str = SECRET) -> list[str]:
    """Return every file and directory below `path` that tells a value, however it is encoded."""
    below = ((file, file.relative_to(path).as_posix()) for file in sorted(path.rglob("*")))
    return [name for file, name in below if value in name or _holds(file, value)]


def _holds(file: Path, value: str) -> bool:
    if not file.is_file():
        return False
    if value.encode() in file.read_bytes():
        return True
    return file.suffix == ".parquet" and value in str(pq.ParquetFile(file).read().to_pylist())
