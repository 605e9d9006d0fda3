"""A table over time beside a model of it: the rows of every version, and when it ended."""

from __future__ import annotations

import io
import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakehand.errors import LakehandError, RefusedError
from lakehand.formats.delta.deletion_vectors.format import (
    DvDescriptor,
    read_deletion_vector,
    write_deletion_vectors,
)
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.scan import scan
from lakehand.observe.clock import ManualClock
from lakehand.retention.log_maintenance import clean_logs, restore
from lakehand.retention.pinning import make_pin
from lakehand.retention.pins import unpin
from lakehand.retention.quarantine import list_quarantines
from lakehand.retention.vacuum import VacuumRequest, vacuum
from lakehand.rewrite import run as rewrite_run
from lakehand.settings import Settings
from lakehand.storage import MemoryStore
from support.compactions import tasks_inline
from support.hand_written_logs import add, field, metadata, protocol, put_commit, remove

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path
    from random import Random

    from lakehand.model.work import DataFile

RETENTION = timedelta(days=7)
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "4",
    # Just above the retention of files, so that cleanups find something.
    "delta.logRetentionDuration": "interval 8 days",
}
Ids = frozenset[int]
_names = itertools.count()


class ModelledTable:
    """A table that grows and shrinks as told; chance, which is handed in, chooses the rows."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.store = MemoryStore(f"modelled-{next(_names)}", clock=self.clock)
        self.table = DeltaTable(self.store, clock=self.clock)
        #: Visible ids, version by version.
        self.rows: list[Ids] = []
        #: When each version but the newest was replaced.
        self.ended: list[datetime] = []
        #: Change data by the version that wrote it.
        self.changes: dict[int, str] = {}
        self.pins: dict[str, int] = {}
        #: Files that were written and not committed, or not yet.
        self._unfinished: list[tuple[datetime, str, Ids]] = []
        #: Objects when readers were asked last, and versions that they have read since.
        self._seen: dict[str, tuple] = {}
        self._read: set[int] = set()
        self._written = itertools.count()
        self._ids = itertools.count()
        self._commit(
            frozenset(),
            protocol("changeDataFeed", reader=["deletionVectors"]),
            metadata(field("id", "long"), properties=PROPERTIES),
        )

    # Writers

    def append(self, chance: Random) -> None:
        self._commit_file(*self._write_file(chance))

    def begin_append(self, chance: Random) -> None:
        """Write a file as a writer does that is slow to commit it, or dies."""
        self._unfinished.append((self.clock.now(), *self._write_file(chance)))

    def end_append(self, chance: Random) -> None:
        """Commit such a file, unless it has taken its writer longer than anybody waits."""
        if self._unfinished:
            began, name, ids = self._unfinished.pop(chance.randrange(len(self._unfinished)))
            if self.clock.now() - began < RETENTION:
                self._commit_file(name, ids)

    def delete(self, chance: Random) -> None:
        """Hide rows behind vectors, all in one file; a file without rows is removed."""
        if not self.rows[-1]:
            return
        most = min(4, len(self.rows[-1]))
        gone = frozenset(chance.sample(sorted(self.rows[-1]), chance.randint(1, most)))
        name = f"_change_data/cdc-{len(self.rows)}.parquet"
        size = self._put_rows(name, gone)
        change = {"cdc": {"path": name, "partitionValues": {}, "size": size, "dataChange": False}}
        actions = [*self._deleting(gone), change]
        self.changes[len(self.rows)] = name
        self._commit(self.rows[-1] - gone, *actions)

    def compact(self) -> None:
        settings = Settings({"min_files": 2, "deleted_row_ratio": 0}, environment={})
        with tasks_inline():
            rewrite_run.compact(self.table, settings=settings, clock=self.clock)
        self._note_versions(self.rows[-1])

    def restore(self, chance: Random) -> None:
        """Go back to any version; one that is not promised may be gone."""
        version = chance.randrange(len(self.rows))
        try:
            restore(self.table, version=version, clock=self.clock)
        except LakehandError:
            assert version not in self.promised()
        else:
            self._note_versions(self.rows[version])

    # Upkeep

    def wait(self, hours: float) -> None:
        self.clock.advance(hours * 3600)

    def vacuum(self, *, entries: str = "never", **asked: Any) -> None:
        grace = asked.pop("grace", "24h")
        try:
            vacuum(
                self.table,
                settings=Settings({"grace": grace, "vacuum_entries": entries}, environment={}),
                request=VacuumRequest(**asked),
                clock=self.clock,
            )
        except RefusedError:
            # Without the first commits nobody knows what they removed.
            assert asked.get("mode") == "lite"
            assert self._commits()[0] > 0
        self._note_versions(self.rows[-1])

    def undo(self, chance: Random) -> None:
        if entries := list_quarantines(self.store):
            self.vacuum(undo=chance.choice(entries).id)

    def checkpoint(self) -> None:
        self.table.checkpoint()

    def clean_logs(self) -> None:
        clean_logs(self.table, clock=self.clock)

    def pin(self, chance: Random) -> None:
        version = chance.choice(sorted(self.promised()))
        name = f"pin-{version}"
        if name not in self.pins:
            make_pin(self.table, name, {"version": version}, clock=self.clock)
            self.pins[name] = version

    def drop_a_pin(self) -> None:
        if self.pins:
            unpin(self.store, self.pins.popitem()[0])

    # What must be true

    def promised(self) -> set[int]:
        """Return the versions that must be readable."""
        since = self.clock.now() - RETENTION
        young = {version for version, end in enumerate(self.ended) if end >= since}
        return young | {len(self.rows) - 1} | set(self.pins.values())

    def versions_in_doubt(self) -> set[int]:
        """Return promised versions that may read otherwise than when this was asked before.

        Nothing but new commits and new files changes no older version. If any object is gone or is
        another one, or there is a new checkpoint, all versions may have changed.
        """
        seen = {info.key: (info.bytes, info.modified_at, info.etag) for info in self.store.list()}
        before, self._seen = self._seen, seen
        is_new = {key for key in seen if before.get(key) != seen[key]}
        is_as_before = before.keys() <= seen.keys() and is_new.isdisjoint(before)
        if not is_as_before or any("checkpoint" in key for key in is_new):
            self._read.clear()
        doubtful = self.promised() - self._read
        self._read |= doubtful
        return doubtful

    def check(self, versions: Collection[int] | None = None) -> None:
        """Read versions, by default all that are promised, and compare their rows."""
        for version in self.promised() if versions is None else versions:
            found = scan(self.table, version=version).read_all()["id"].to_pylist()
            assert sorted(found) == sorted(self.rows[version]), f"version {version}"
        since = self.clock.now() - RETENTION
        for version, name in self.changes.items():
            if version and self.ended[version - 1] > since:
                assert self.store.exists(name), f"change data of version {version}"

    def expire(self) -> None:
        """Let time pass until only the newest version is promised, and check that it is alone."""
        while self.pins:
            self.drop_a_pin()
        self.wait(hours=9 * 24)
        self.vacuum(grace="0")
        self.check()
        assert self.data_files() == self._needed()
        self.checkpoint()
        self.wait(hours=10 * 24)
        self.clean_logs()
        self.check()
        assert self._commits()[0] == len(self.rows) - 1
        assert [info.key for info in self.store.list("_lakehand")] == []

    def data_files(self) -> set[str]:
        """Return all that is not in a hidden directory, and change data."""
        keys = {info.key for info in self.store.list()}
        return {key for key in keys if key[0] != "_" or key.startswith("_change_data/")}

    def copy_to(self, path: Path) -> None:
        """Write the table to disk, all as of now: delta-spark reads no version of long ago."""
        for info in self.store.list():
            target = path / info.key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.store.get(info.key))

    def _needed(self) -> set[str]:
        adds = [file.native["add"] for file in self._live()]
        vectors = [DvDescriptor.from_json(a["deletionVector"]) for a in adds if _has_vector(a)]
        return {add["path"] for add in adds} | {vector.path for vector in vectors}

    def _commits(self) -> list[int]:
        keys = [info.key for info in self.store.list("_delta_log")]
        return sorted(int(key[-25:-5]) for key in keys if key[-25:-5].isdigit())

    # Doing it

    def _commit(self, rows: Ids, *actions: dict) -> None:
        put_commit(self.store, len(self.rows), *actions)
        self._note_versions(rows)

    def _note_versions(self, rows: Ids) -> None:
        """Note that every version that is new holds `rows`."""
        while len(self.rows) <= self._commits()[-1]:
            if self.rows:
                self.ended.append(self.clock.now())
            self.rows.append(rows)
        self.clock.advance(1)

    def _commit_file(self, name: str, ids: Ids) -> None:
        size = self.store.head(name).bytes
        self._commit(self.rows[-1] | ids, add(name, rows=len(ids), size=size))

    def _write_file(self, chance: Random) -> tuple[str, Ids]:
        ids = frozenset(itertools.islice(self._ids, chance.randint(1, 4)))
        name = f"part-{next(self._written):05}.parquet"
        self._put_rows(name, ids)
        return name, ids

    def _put_rows(self, name: str, ids: Ids) -> int:
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(sorted(ids), pa.int64())}), sink)
        self.store.put(name, sink.getvalue())
        return len(sink.getvalue())

    def _live(self) -> tuple[DataFile, ...]:
        snapshot = self.table.snapshot()
        return self.table.data_files(snapshot, range(snapshot.file_count))

    def _deleting(self, gone: Ids) -> Iterator[dict]:
        found = [(file.native["add"], *self._positions(file, gone)) for file in self._live()]
        touched = [(action, old | new, rows) for action, old, new, rows in found if new]
        kept = [(action, hidden) for action, hidden, rows in touched if len(hidden) < rows]
        vectors = iter(write_deletion_vectors(self.store, [hidden for _, hidden in kept]))
        now_ms = int(self.clock.now().timestamp() * 1000)
        for action, hidden, rows in touched:
            old = {"deletionVector": action["deletionVector"]} if _has_vector(action) else {}
            yield remove(action["path"], at_ms=now_ms, **old)
            if len(hidden) < rows:
                yield {"add": {**action, "deletionVector": next(vectors).to_json()}}

    def _positions(self, file: DataFile, gone: Ids) -> tuple[BitMap64, BitMap64, int]:
        """Return which rows of a file are hidden, which are to go, and how many it has."""
        data = io.BytesIO(self.store.get(file.path))
        ids = pq.read_table(data)["id"].to_pylist()
        action = file.native["add"]
        old = BitMap64()
        if _has_vector(action):
            descriptor = DvDescriptor.from_json(action["deletionVector"])
            old = read_deletion_vector(self.store, descriptor)
        return old, BitMap64(n for n, id_ in enumerate(ids) if id_ in gone), len(ids)


def _has_vector(action: dict) -> bool:
    return bool(action.get("deletionVector"))
