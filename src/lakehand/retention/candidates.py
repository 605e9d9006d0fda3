"""Files in a table's root that no version within the retention needs."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.duckdb_pool import lease
from lakehand.model.batches import gathered
from lakehand.model.retention import Kept, Protection
from lakehand.observe.clock import Clock, SystemClock
from lakehand.retention.protection import protect_since, read_promise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import duckdb

    from lakehand.formats.base import FormatTable
    from lakehand.formats.optional import DataNames
    from lakehand.settings import Settings

CANDIDATE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_NO_FILES = pa.schema([("key", pa.string()), ("bytes", pa.int64())]).empty_table()
FILES_AT_A_TIME = 50_000
_MEMORY_LIMIT = "512MB"
_FILE_NAME = "parse_filename(key, false, 'forward_slash')"
#: Hadoop's checksum of a file, in the same directory: useless without the file.
_CHECKSUM = r"(^|/)\.[^/]*\.crc$"
_CHECKED_KEY = r"regexp_replace(key, '(^|/)\.([^/]*)\.crc$', '\1\2')"


class Candidates:
    """Files that were found, in a database that spills to disk where they are many.

    Every `keep...` takes files out that must stay. What is left may be deleted, and `to_delete` is
    the part of it that is deleted now.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, *, first_to_go: str | None = None
    ) -> None:
        self._connection = connection
        self._first_to_go = first_to_go
        for name in ("listed", "to_delete", "checksums"):
            connection.execute(
                f"CREATE TEMP TABLE {name} (key VARCHAR, bytes BIGINT, modified_at TIMESTAMPTZ)"
            )
        #: What is deleted, in the order in which it is, once that has begun.
        connection.execute(
            "CREATE TEMP TABLE deleting (key VARCHAR, bytes BIGINT,"
            " modified_at TIMESTAMPTZ, place BIGINT)"
        )
        self._ordered: int | None = None
        self._place = 0
        #: Where those end that go before all others.
        self._firsts = 0
        self._has_checksums = False
        self.files_scanned = 0
        self.files_ignored = 0
        self._kept: dict[str, int] = {}

    @property
    def kept(self) -> Kept:
        return Kept(**self._kept)

    # What there is.

    def scan(
        self, batches: Iterable[pa.RecordBatch], *, names: DataNames, young_since: datetime
    ) -> Iterator[int]:
        """Take in a scan of the root; yield, now and then, how many files were looked at.

        Files that are no data of the table do not count. What was written at `young_since` or later
        stays: its writer may be about to commit it.
        """
        # A single directory is rarely worth a query.
        for few in gathered(batches, rows=FILES_AT_A_TIME):
            found = pa.Table.from_batches(few)
            is_known = pc.or_(names.is_data(found["key"]), found["unfinished"])
            checksums = _checksums(found)
            self._has_checksums |= checksums.num_rows > 0
            self._add("checksums", checksums)
            data = found.filter(is_known)
            self.files_ignored += found.num_rows - data.num_rows
            self.add(data, young_since=young_since)
            yield self.files_scanned

    def add(self, files: pa.Table, *, young_since: datetime) -> None:
        """Take in files that are data, but for the young ones."""
        cutoff = pa.scalar(young_since, pa.timestamp("us", "UTC"))
        old = files.filter(pc.less(files["modified_at"], cutoff))
        self.files_scanned += files.num_rows
        self._count("young", files.num_rows - old.num_rows)
        self._add("listed", old)

    def _add(self, table: str, files: pa.Table) -> None:
        with self._registered("batch", files):
            self._connection.execute(
                f"INSERT INTO {table} SELECT key, bytes, modified_at FROM batch"
            )

    # What must stay.

    def keep_protected(self, protection: Protection) -> None:
        """Keep what versions refer to."""
        self._count("needed", self.keep(protection.keys))
        self._count("pinned", self.keep(protection.pinned_keys))
        self._count("needed", self._keep_names(protection.names))

    def keep_for_clones(self, names: pa.ChunkedArray) -> None:
        """Keep files that clones refer to, by their bare names."""
        self._count("pinned", self._keep_names(names))

    def keep_of_runs(self, runs: Collection[str]) -> None:
        """Keep what runs of lakehand have written or are writing."""
        for run in runs:
            # Some lie in a directory with the name of the run.
            count = self._remove(
                "contains(replace('/' || key, '/.', '/'), '/lakehand-' || ?)", [run]
            )
            self._count("running", count)

    def keep_since(self, moment: datetime) -> None:
        """Keep what was written then or later: a run may name any of it, and does not say which."""
        self._count("running", self._remove("modified_at >= ?::TIMESTAMPTZ", [moment.isoformat()]))

    def keep(self, keys: pa.ChunkedArray) -> int:
        """Keep files by key; return how many there were of them."""
        if not len(keys):
            return 0
        with self._registered("kept", pa.table({"key": keys})):
            return self._remove("key IN (SELECT key FROM kept)")

    def _keep_names(self, names: pa.ChunkedArray) -> int:
        if not len(names):
            return 0
        with self._registered("kept", pa.table({"name": names})):
            return self._remove(f"{_FILE_NAME} IN (SELECT name FROM kept)")

    def _remove(self, condition: str, parameters: Collection[str] = ()) -> int:
        """Take files out that are to stay, chosen to be deleted or not; count those listed."""
        counts = [
            self._connection.execute(f"DELETE FROM {table} WHERE {condition}", [*parameters])
            for table in ("deleting", "to_delete", "listed")
        ]
        ((count,),) = counts[-1].fetchall()
        return int(count)

    # What is deleted.

    def choose(self, files: pa.Table) -> None:
        """Choose those of `files` to be deleted that are candidates and have not changed since."""
        with self._registered("chosen", files):
            same = "listed.key = chosen.key AND listed.bytes = chosen.bytes"
            self._connection.execute(
                f"INSERT INTO to_delete SELECT listed.* FROM listed SEMI JOIN chosen ON {same} "
                "AND listed.modified_at = chosen.modified_at"
            )
        self._connection.execute("DELETE FROM listed WHERE key IN (SELECT key FROM to_delete)")

    def choose_all(self) -> None:
        """Choose everything that is left to be deleted."""
        self._connection.execute("INSERT INTO to_delete SELECT * FROM listed")
        self._connection.execute("DELETE FROM listed")

    def totals(self, table: str) -> tuple[int, int]:
        """Return number and bytes of what is `listed` or `to_delete`."""
        ((count, size),) = self._connection.execute(
            f"SELECT count(*), coalesce(sum(bytes), 0)::BIGINT FROM {table}"
        ).fetchall()
        return count, size

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Stream what is `listed` or `to_delete`, in the order of keys, as `CANDIDATE_SCHEMA`."""
        relation = self._connection.sql(f"SELECT key, bytes, modified_at FROM {table} ORDER BY key")
        for batch in relation.to_arrow_reader(FILES_AT_A_TIME):
            yield pa.RecordBatch.from_arrays(
                [batch.column(field.name).cast(field.type) for field in CANDIDATE_SCHEMA],
                schema=CANDIDATE_SCHEMA,
            )

    @property
    def are_left(self) -> bool:
        """Whether there may be files to delete that `next_to_delete` has not returned."""
        return self._ordered is None or self._place < self._ordered

    def next_to_delete(self) -> pa.Table:
        """Return the next files to delete, by their keys; no rows when there are no more.

        They are sorted once: what is kept later leaves gaps. None is deleted together with those
        that come first, because the files of one call are deleted in any order.
        """
        if self._ordered is None:
            self._ordered = self._sort()
        while self._place < self._ordered:
            end = self._place + FILES_AT_A_TIME
            end = min(end, self._firsts) if self._place < self._firsts else end
            span = [self._place, end]
            self._place = end
            chosen = self._connection.sql(
                "SELECT key, bytes FROM deleting WHERE place >= ? AND place < ? ORDER BY place",
                params=span,
            ).to_arrow_table()
            if chosen.num_rows:
                return chosen
        return _NO_FILES

    def still_to_delete(self, files: pa.Table) -> pa.Table:
        """Return those of `files`, which were taken out before, that nothing has kept since."""
        with self._registered("chosen", files):
            return self._connection.sql(
                "SELECT key, bytes FROM deleting SEMI JOIN chosen USING (key) ORDER BY place"
            ).to_arrow_table()

    def _sort(self) -> int:
        first = f"{self._first_to_go}/" if self._first_to_go else ""
        is_first = "($first <> '' AND starts_with(key, $first))"
        ((self._firsts,),) = self._connection.execute(
            f"SELECT count(*) FROM to_delete WHERE {is_first}", {"first": first}
        ).fetchall()
        self._connection.execute(
            "INSERT INTO deleting SELECT key, bytes, modified_at,"
            f" row_number() OVER (ORDER BY {is_first} DESC, key) - 1 FROM to_delete",
            {"first": first},
        )
        self._connection.execute("DELETE FROM to_delete")
        ((count,),) = self._connection.execute("SELECT count(*) FROM deleting").fetchall()
        return int(count)

    def checksums_of(self, files: pa.Table) -> list[str]:
        """Return the checksum files of `files`."""
        if not self._has_checksums:
            return []
        with self._registered("chosen", files):
            found = self._connection.sql(
                f"SELECT key FROM checksums WHERE {_CHECKED_KEY} IN (SELECT key FROM chosen)"
            ).fetchall()
        return [key for (key,) in found]

    def _count(self, reason: str, count: int) -> None:
        self._kept[reason] = self._kept.get(reason, 0) + count

    @contextmanager
    def _registered(self, name: str, table: pa.Table) -> Iterator[None]:
        self._connection.register(name, table)
        try:
            yield
        finally:
            self._connection.unregister(name)


@contextmanager
def open_candidates(*, first_to_go: str | None = None) -> Iterator[Candidates]:
    """Open an empty list of files; those in the directory `first_to_go` go before all others."""
    with lease({"memory_limit": _MEMORY_LIMIT}) as connection:
        yield Candidates(connection, first_to_go=first_to_go)


def _checksums(found: pa.Table) -> pa.Table:
    """Return Hadoop's checksum files; only candidates are matched with the pattern."""
    candidates = found.filter(pc.ends_with(found["key"], pattern=".crc"))
    return candidates.filter(pc.match_substring_regex(candidates["key"], pattern=_CHECKSUM))


#: Clocks of stores and of this machine differ; nothing is hidden for being from the future.
_FAR = timedelta(days=36_500)


def list_orphans(table: FormatTable, *, settings: Settings, clock: Clock | None = None) -> pa.Table:
    """Return `path`, `bytes`, `modified_at`, `age_seconds` and `is_due` of every orphan, by path.

    Young ones may be on their way into the table; `is_due` says of which vacuum would take care.
    RefusedError if it is not known which files versions need.
    """
    clock = clock or SystemClock()
    promise = read_promise(table, settings, clock)
    with open_candidates() as candidates:
        batches = table.store.scan(enter=promise.names.may_hold_data)
        for _ in candidates.scan(batches, names=promise.names, young_since=clock.now() + _FAR):
            pass
        candidates.keep_protected(promise.protection)
        candidates.keep_for_clones(promise.held.names)
        newest, ignored = promise.protection.newest_version, promise.held.expired_tags
        since = protect_since(promise.table, version=newest, ignored_tags=ignored)
        candidates.keep_protected(since)
        found = pa.Table.from_batches(candidates.batches("listed"), CANDIDATE_SCHEMA)
    return _described(found, now=clock.now(), due_before=promise.since)


def _described(found: pa.Table, *, now: datetime, due_before: datetime) -> pa.Table:
    type_ = CANDIDATE_SCHEMA.field("modified_at").type
    age = pc.subtract(pa.scalar(now, type_), found["modified_at"])
    seconds = pc.divide(age.cast(pa.int64()), 1_000_000)
    is_due = pc.less(found["modified_at"], pa.scalar(due_before, type_))
    columns = {"path": found["key"], "bytes": found["bytes"], "modified_at": found["modified_at"]}
    return pa.table({**columns, "age_seconds": seconds, "is_due": is_due})
