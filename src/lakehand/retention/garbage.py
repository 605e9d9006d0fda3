"""Files in a table's root that no promised version needs."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from lakehand.model.retention import Protection
    from lakehand.storage import ObjectInfo

__all__ = ["GARBAGE_SCHEMA", "Garbage", "open_garbage"]

GARBAGE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_FILES_AT_A_TIME = 50_000
_MEMORY_LIMIT = "512MB"


class Garbage:
    """The files that were listed, in a database that spills to disk where they are many."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        connection.execute(
            "CREATE TABLE listed (key VARCHAR, bytes BIGINT, modified_at TIMESTAMPTZ)"
        )
        self.files_scanned = 0

    def list(
        self, files: Iterable[ObjectInfo], *, is_data: Callable[[pa.Array], pa.BooleanArray]
    ) -> None:
        """Take in a listing; files that are no data of the table do not count."""
        rest = iter(files)
        while found := list(islice(rest, _FILES_AT_A_TIME)):
            batch = _batch(found)
            batch = batch.filter(is_data(batch["key"]))
            self.files_scanned += batch.num_rows
            self.add(pa.Table.from_batches([batch]))

    def add(self, files: pa.Table) -> None:
        """Take in files of the schema `GARBAGE_SCHEMA`."""
        self._connection.register("batch", files)
        self._connection.execute("INSERT INTO listed SELECT key, bytes, modified_at FROM batch")
        self._connection.unregister("batch")

    def keep_young(self, since: datetime) -> None:
        """Keep what was written at `since` or later: its writer may be about to commit it."""
        self._connection.execute("DELETE FROM listed WHERE modified_at >= ?", [since])

    def keep_protected(self, protection: Protection) -> None:
        """Keep what versions refer to."""
        self.keep(protection.keys)
        self._connection.register("kept", pa.table({"name": protection.names}))
        self._connection.execute(
            "DELETE FROM listed WHERE regexp_extract(key, '[^/]*$') IN (SELECT name FROM kept)"
        )
        self._connection.unregister("kept")

    def keep(self, keys: pa.ChunkedArray) -> None:
        """Keep files by key."""
        self._connection.register("kept", pa.table({"key": keys}))
        self._connection.execute("DELETE FROM listed WHERE key IN (SELECT key FROM kept)")
        self._connection.unregister("kept")

    def keep_starting_with(self, starts: Collection[str]) -> None:
        """Keep files by how their bare names start."""
        for start in starts:
            self._connection.execute(
                "DELETE FROM listed WHERE starts_with(regexp_extract(key, '[^/]*$'), ?)", [start]
            )

    def take(self, files: pa.Table) -> pa.Table:
        """Take those of `files` out that are left over and have not changed since."""
        self._connection.register("chosen", files)
        same = "USING (key, bytes, modified_at)"
        taken = self._connection.sql(
            f"SELECT * FROM chosen SEMI JOIN listed {same}"
        ).to_arrow_table()
        self._connection.execute("DELETE FROM listed WHERE key IN (SELECT key FROM chosen)")
        self._connection.unregister("chosen")
        return taken

    def totals(self) -> tuple[int, int]:
        """Return number and bytes of what is left."""
        ((count, size),) = self._connection.execute(
            "SELECT count(*), coalesce(sum(bytes), 0)::BIGINT FROM listed"
        ).fetchall()
        return count, size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream what is left, in the order of keys, as `GARBAGE_SCHEMA`."""
        relation = self._connection.sql("SELECT key, bytes, modified_at FROM listed ORDER BY key")
        for batch in relation.to_arrow_reader(_FILES_AT_A_TIME):
            yield pa.RecordBatch.from_arrays(
                [batch.column(field.name).cast(field.type) for field in GARBAGE_SCHEMA],
                schema=GARBAGE_SCHEMA,
            )


@contextmanager
def open_garbage() -> Iterator[Garbage]:
    """Open an empty list of files."""
    with TemporaryDirectory(prefix="lakehand-vacuum-") as scratch:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY_LIMIT,
            "temp_directory": scratch,
        }
        with duckdb.connect(":memory:", config=config) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield Garbage(connection)


def _batch(files: list[ObjectInfo]) -> pa.RecordBatch:
    columns = [
        pa.array([file.key for file in files], pa.string()),
        pa.array([file.bytes for file in files], pa.int64()),
        pc.cast(pa.array([file.modified_at for file in files]), pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=GARBAGE_SCHEMA)
