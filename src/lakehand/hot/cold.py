"""The table that changes are flushed to, as of a version, and its newest epoch."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import RefusedError, SchemaMismatchError, TableError
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.expressions.pruning import may_match
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsAppends, SupportsRowChanges
from lakehand.formats.scan import columns_with_bounds
from lakehand.hot.segments import Entry, Kind
from lakehand.sink.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.model.work import DataFile
    from lakehand.settings import Settings
    from lakehand.storage import Store

#: How many sets of columns have their bounds cached.
_BOUNDS_KEPT = 8
#: How many files are cached: the format reads the log for each.
_FILES_KEPT = 20_000
#: Columns that a sink interprets when it upserts.
_CHANGELOG_COLUMNS = ("_op", "__weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdView:
    """One version of the table. It never changes."""

    handle: FormatTable
    head: TableHead
    snapshot: Snapshot
    #: Last epoch of the hot table that is in this version.
    epoch: int
    _bounds: dict[tuple[str, ...], Snapshot] = field(default_factory=dict)
    _files: dict[str, DataFile] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return self.snapshot.schema

    def predicate(self, where: str | None) -> Predicate | None:
        return None if where is None else parse_predicate(where, self.schema)

    def read(
        self, *, columns: Sequence[str] | None, predicate: Predicate | None
    ) -> pa.RecordBatchReader:
        """Stream rows from the files that may match the predicate."""
        snapshot, chosen = self.snapshot, np.arange(self.snapshot.file_count)
        if predicate is not None:
            snapshot = self._with_bounds(predicate)
            chosen = np.flatnonzero(may_match(predicate, snapshot.files))
        files = self._data_files(snapshot, chosen)
        text = None if predicate is None else predicate.text
        return self.handle.worker(snapshot).read(files, columns=columns, where=text)

    def _with_bounds(self, predicate: Predicate) -> Snapshot:
        names = tuple(columns_with_bounds(predicate, self.snapshot))
        if not names:
            return self.snapshot
        found = self._bounds.get(names)
        if found is None:
            found = self.handle.snapshot(version=self.snapshot.version, statistics=names)
            if len(self._bounds) >= _BOUNDS_KEPT:
                self._bounds.clear()
            self._bounds[names] = found
        return found

    def _data_files(self, snapshot: Snapshot, rows: npt.NDArray[np.int64]) -> list[DataFile]:
        """Return files, which are cached up to a limit."""
        known = self._files
        paths: list[str] = snapshot.files["path"].take(pa.array(rows)).to_pylist()
        unknown = [row for row, path in zip(rows.tolist(), paths, strict=True) if path not in known]
        asked = self.handle.data_files(snapshot, unknown) if unknown else ()
        found = {file.path: file for file in asked}
        files = [found[path] if path in found else known[path] for path in paths]
        if len(known) + len(found) <= _FILES_KEPT:
            known.update(found)
        return files


class ColdTable:
    """The table in storage; created if it does not exist and a schema is given."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        schema: pa.Schema | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._target = Target(
            store, settings, partition_by=settings.partition_by, properties=properties
        )
        if not self._target.find() and schema is not None:
            self._target.create(schema)
        self._refreshing = threading.Lock()
        #: Kept, as the head of another table at the same place would look as good.
        self.table_id = self._target.head.table_id

    @property
    def handle(self) -> SupportsAppends:
        return self._target.handle

    @property
    def head(self) -> TableHead:
        return self._target.head

    @property
    def schema(self) -> pa.Schema:
        return self.head.schema

    def require_upserts(self, key: Sequence[str]) -> None:
        """Raise RefusedError if rows cannot be replaced in this table, or not be found by `key`."""
        table = require_support(self.handle, SupportsRowChanges, operation="upsert")
        table.require_deletion(table.snapshot(), keys=key)
        for name in _CHANGELOG_COLUMNS:
            if name in self.schema.names:
                raise RefusedError(
                    f"{self.handle.store.url} has a column {name!r}, which in a flush says what"
                    " happened to a row",
                    table=self.handle.store.url,
                    operation="upsert",
                    hint="rename the column, or open the hot table without a key",
                )

    def is_fitted(self, schema: pa.Schema) -> bool:
        """Say whether rows of `schema` have the columns and types that `fit` returns."""
        return self._target.layout.conformer.is_made(schema)

    def fit(self, batch: pa.RecordBatch, *, is_whole: bool = False) -> pa.RecordBatch:
        """Return rows as the table wants them; SchemaMismatchError if it cannot be.

        With `is_whole` no column may be missing: the row that is replaced would lose its value.
        """
        if is_whole:
            self._require_all_columns(batch.schema)
        return self._target.fit(batch)

    def fit_again(self, entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], pa.Schema]:
        """Return changes as the table wants them now, and its columns.

        Of those that it got since the changes were taken rows have the default, or nulls.
        """
        schema = self.schema
        return tuple(self._fit_again(entry, schema) for entry in entries), schema

    def _fit_again(self, entry: Entry, schema: pa.Schema) -> Entry:
        rows = entry.rows
        if entry.kind is not Kind.ROWS or (rows.schema.names, rows.schema.types) == (
            schema.names,
            schema.types,
        ):
            return entry
        fitted = [self._target.fit(batch) for batch in rows.to_batches()]
        return entry._replace(rows=pa.Table.from_batches(fitted))

    def _require_all_columns(self, schema: pa.Schema) -> None:
        head = self._target.head
        if schema.names == head.schema.names:
            return
        given = {name.lower() for name in schema.names}
        missing = tuple(
            f"column {name!r} is missing"
            for name in head.schema.names
            if name.lower() not in given and name not in head.row_rules.generated
        )
        if missing:
            raise SchemaMismatchError(
                f"these rows cannot replace rows of {head.table}: {'; '.join(missing)}",
                table=head.table,
                difference=missing,
                hint="nothing was taken; give all columns, null where there is nothing",
            )

    def load(self, writer_id: str) -> ColdView:
        """Read the newest version; the mark of the last epoch is of that same version."""
        head = self.look()
        snapshot = self.handle.snapshot(version=head.version)
        self.handle.require("read", snapshot)
        epoch = head.transactions.get(writer_id, -1)
        return ColdView(handle=self.handle, head=head, snapshot=snapshot, epoch=epoch)

    def look(self) -> TableHead:
        """Return what the table is now, and take rows under its columns from now on.

        TableError if it is another one than it was.
        """
        head = self.handle.head()
        if head.table_id != self.table_id:
            raise TableError(
                f"there is another table at {head.table} than when the hot table was opened",
                table=head.table,
                hint="changes that are not in the table are kept in the log; close the hot table,"
                " and bring the old table back, or begin with an empty log",
            )
        self._follow(head)
        return head

    def _follow(self, head: TableHead) -> None:
        """Take rows under the columns that the table has now."""
        with self._refreshing:
            known = self._target.head
            if (known.schema, known.rules) != (head.schema, head.rules):
                self._target.refresh()
