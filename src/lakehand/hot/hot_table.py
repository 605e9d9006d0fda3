"""A hot table: changes are durable and visible at once, and flushed to the cold table later.

with HotTable("s3://lake/orders", log="/var/lib/orders", key=["id"]) as orders:
    orders.upsert(batch)
    orders.delete([17])
    orders.read(where="city = 'Oslo'")
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from lakehand.catalogs import open_named_store
from lakehand.errors import BackpressureError, HotTierError, ValidationError, WriteTimeoutError
from lakehand.hot.flusher import Flusher
from lakehand.hot.hot_reports import FlushReport, StorageStats, storage_stats
from lakehand.hot.hot_snapshot import HotSnapshot, key_table
from lakehand.hot.opening import HotOptions, Opened, open_parts
from lakehand.hot.ownership import log_directory
from lakehand.hot.segments import Kind, encode, encoded_size
from lakehand.observe import reported
from lakehand.observe.steps import Step, reached
from lakehand.schema.arrow_input import batches_of
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

    from lakehand.hot.layers import Memtable
    from lakehand.hot.segments import Encoded
    from lakehand.model.reports import OperationReport
    from lakehand.settings.setting_types import CompactSettings, CreateSettings
    from lakehand.storage import Store

#: Larger changes are encoded by the threads that bring them, several at once.
_SMALL_CHANGE_BYTES = 16 * 1024


class HotTable:
    """A table whose newest changes are in memory and in a log. For any number of threads."""

    def __init__(  # noqa: PLR0913  options with names, as a user gives them
        self,
        uri: str | Path | Store,
        *,
        log: str | Path | None = None,
        key: Sequence[str] = (),
        schema: pa.Schema | None = None,
        writer_id: str | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        takeover: bool = False,
        flusher: Flusher | None = None,
        **settings: Unpack[CreateSettings],
    ) -> None:
        """Check what is asked for; nothing is opened yet.

        `log` is a directory on a local disk, of this table alone; it is needed unless
        `hot_durability` is none. `key` are the columns by which the newest row wins; without a key
        rows are only appended. `schema` creates a missing table, with `properties`. `writer_id` is
        the name that the log has in the table; without one it makes up its own. Of hot tables with
        a key one at a time has a table: `takeover` takes it from one that is lost, with all that
        it has not flushed. `flusher` is shared by the tables of a `HotTier`. Other keyword
        arguments are settings.
        """
        self._settings = Settings(settings)
        store = open_named_store(uri, storage_options)
        self._store = store.with_settings(self._settings)
        is_logged = self._settings.hot_durability != "none"
        if is_logged and log is None:
            raise ValidationError(
                "say where the log is kept: without it, changes are lost when the process ends",
                field="log",
                hint="give a directory on a local disk, or set hot_durability to none",
            )
        self._key = tuple(key)
        self._options = HotOptions(
            directory=log_directory(log, field="log") if is_logged else None,
            key=self._key,
            schema=schema,
            properties=properties,
            writer_id=writer_id,
            takeover=takeover,
            given=settings,
        )
        self._flusher = flusher or Flusher(self._settings)
        self._owns_flusher = flusher is None
        self._wait_seconds: float = self._settings.hot_append_timeout.total_seconds()
        self._refresh_seconds: float = self._settings.hot_refresh_interval.total_seconds()
        self._opened: Opened | None = None
        self._flushing = threading.RLock()
        self._refreshing = threading.Lock()
        self._refreshed_at = 0.0
        self.is_closed = False
        #: Flushes since the table was opened, those that failed, and what the last one failed for.
        self.flushes = 0
        self.flush_failures = 0
        self.last_error: Exception | None = None
        #: When the next flush may be tried after one that failed.
        self.retry_at = 0.0

    # Life

    def open(self) -> Self:
        """Find or create the cold table, and replay the log.

        HotTableTakenError if there is a key, and another hot table may have changes for the table.
        """
        if self._opened is not None or self.is_closed:
            raise self._out_of_order("a hot table is opened once")
        self._opened = open_parts(self._store, self._options, self._settings, flusher=self._flusher)
        self._refreshed_at = self._flusher.clock.monotonic()
        try:
            self._flusher.add(self)
        except BaseException:
            self._end(self._opened)
            raise
        return self

    def close(self, *, flush: bool = True) -> None:
        """End the hot table; with `flush`, after all changes are in the cold table.

        Without it they stay in the log, and are replayed when the table is opened again. Where
        nothing is logged they are lost. A flush is waited for, however long it takes. What it
        raises is raised, when all is closed.
        """
        if self.is_closed or self._opened is None:
            self.is_closed = True
            return
        with ExitStack() as stack:
            stack.callback(self._end, self._opened)
            stack.callback(self._flusher.remove, self)
            if flush:
                self._flush(waits=True)

    def _end(self, opened: Opened) -> None:
        self.is_closed = True
        with ExitStack() as stack:
            stack.callback(self._end_parts, opened)
            if self._owns_flusher:
                self._flusher.close()

    def _end_parts(self, opened: Opened) -> None:
        with self._flushing:
            held = sum(memtable.bytes for memtable in opened.layers.memtables)
            self._flusher.budget.release(held)
            opened.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # An error is not to be hidden by another one; the log keeps what was not flushed.
        self.close(flush=error is None or not self._is_logged)

    # Changes

    def append(self, data: Any) -> int:
        """Add rows, and return the number of the change, when it is durable and visible.

        If the table has a key, they replace rows with the same keys; of several rows with one key
        in `data` the last one counts. The call is atomic.

        SchemaMismatchError if rows do not fit the table, BackpressureError if there is no memory
        for them in time.
        """
        cold, batches, is_whole = self._parts.cold, list(batches_of(data)), bool(self._key)

        def fitted() -> list[pa.RecordBatch]:
            return [cold.fit(batch, is_whole=is_whole) for batch in batches]

        if not any(batch.num_rows for batch in batches):
            fitted()
            return self._parts.layers.sequence
        # Rows of other columns or types may become much larger when they are fitted.
        size = encoded_size(batches) if all(cold.is_fitted(b.schema) for b in batches) else None
        return self._take(Kind.ROWS, lambda: encode(fitted()), size)

    def upsert(self, data: Any) -> int:
        """Replace rows with the same keys, or add new ones: see `append`."""
        self._require_key("upsert")
        return self.append(data)

    def delete(self, keys: Any) -> int:
        """Delete the rows with these keys, whether there are any or not.

        `keys` are rows with the columns of the key, in any form that `append` takes, or a list of
        values where the key is one column. Returns the number of the change.
        """
        self._require_key("delete")
        rows = self._keys_of(keys)
        if not rows.num_rows:
            return self._parts.layers.sequence
        batches = rows.to_batches()
        return self._take(Kind.DELETED_KEYS, partial(encode, batches), encoded_size(batches))

    def _keys_of(self, keys: Any) -> pa.Table:
        schema = self._parts.cold.schema
        if isinstance(keys, list | tuple | set | frozenset):
            if len(self._key) > 1:
                message = f"a key has the columns {list(self._key)}: give rows with all of them"
                raise ValidationError(message, field="keys")
            return key_table({self._key[0]: list(keys)}, schema)
        if isinstance(keys, dict):
            return key_table({name: keys.get(name, []) for name in self._key}, schema)
        return self._parts.fit_keys(batches_of(keys))

    def _require_key(self, verb: str) -> None:
        if not self._key:
            message = f"{verb} needs a key: the hot table of {self.url} was opened without one"
            raise ValidationError(message, field="key")

    def _take(self, kind: Kind, encoded: Callable[[], Encoded], size: int | None) -> int:
        """Take a change, whose `size` is known if another thread may encode it."""
        parts = self._parts
        if size is None or size > _SMALL_CHANGE_BYTES:
            made = encoded()
            size, encoded = made.content.size, lambda: made
        try:
            self._flusher.budget.take(size, wait_seconds=self._wait_seconds)
        except BackpressureError as error:
            raise error from self.last_error
        # If this is interrupted, another thread may take the change: the journal frees its memory.
        return parts.journal.commit(kind, encoded, reserved=size)

    # Reading

    def snapshot(self) -> HotSnapshot:
        """Return the current state of the table. It can be read any number of times."""
        self._refresh_if_old()
        return self._parts.layers.snapshot()

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        key: Any = None,
    ) -> pa.Table:
        """Return rows, hot and cold: see `HotSnapshot.read`."""
        return self.snapshot().read(columns=columns, where=where, key=key)

    def _refresh_if_old(self) -> None:
        parts, now = self._parts, self._flusher.clock.monotonic()
        if now - self._refreshed_at < self._refresh_seconds:
            return
        with self._refreshing:
            if now >= self._refreshed_at + self._refresh_seconds:
                parts.layers.settle(parts.load_view())
                self._refreshed_at = now

    # Flushing

    def flush(self) -> FlushReport:
        """Flush all changes to the cold table: write, commit, and only then drop them.

        A flush that fails has lost nothing, and can be made again. WriteTimeoutError: it is not
        done within `write_timeout`, and continues; the next call waits for it.
        """
        return self._flush()

    @reported
    def _flush(self, *, waits: bool = False) -> FlushReport:
        started = self._flusher.clock.monotonic()
        with self._flushing:
            parts = self._parts
            try:
                if parts.layers.frozen or parts.layers.active.entries:
                    parts.require_own_table()
                done = [self._flush_epoch(each, waits=waits) for each in parts.layers.frozen]
                if parts.layers.active.entries:
                    parts.freeze()
                    done += [self._flush_epoch(each, waits=waits) for each in parts.layers.frozen]
            except WriteTimeoutError:
                raise  # it has not failed: it goes on
            except Exception as error:
                self.flush_failures += 1
                self.last_error = error
                raise
            self.last_error, self.retry_at = None, 0.0
            self.flushes += bool(done)
            return FlushReport(
                outcome="committed" if any(one.epochs for one in done) else "nothing_to_do",
                table=self.url,
                version=parts.layers.view.snapshot.version,
                epochs=sum(one.epochs for one in done),
                changes=sum(one.changes for one in done),
                rows_written=sum(one.rows_written for one in done),
                keys_deleted=sum(one.keys_deleted for one in done),
                bytes_freed=sum(one.bytes_freed for one in done),
                duration_ms=(self._flusher.clock.monotonic() - started) * 1000,
            )

    def _flush_epoch(self, memtable: Memtable, *, waits: bool) -> FlushReport:
        """Flush the changes of one memtable to the cold table, and drop them."""
        parts, changes = self._parts, memtable.rows
        entries = parts.layers.merge(memtable) if self._key else memtable.entries
        entries, schema = parts.cold.fit_again(entries)
        flushed = parts.writer().write(memtable.epoch, entries, schema=schema, waits=waits)
        view = parts.load_view()
        if flushed.is_in_table and view.epoch < memtable.epoch:
            message = f"{self.url} does not show epoch {memtable.epoch}, which it has accepted"
            raise HotTierError(message, table=self.url, hint="nothing was dropped; flush again")
        freed = parts.layers.settle(view, flushed=memtable)
        reached(Step.HOT_FLUSHED)
        parts.drop(memtable.epoch)
        return FlushReport(
            outcome="committed",
            table=self.url,
            version=view.snapshot.version,
            epochs=int(flushed.is_in_table),
            changes=changes,
            rows_written=flushed.rows,
            keys_deleted=flushed.deleted_keys,
            bytes_freed=freed,
        )

    def merge_changes(self) -> int:
        """Merge the changes in memory: of each key the newest stays. The cold table is not read.

        Returns how many unmerged changes there were.
        """
        parts = self._parts
        count = self.unmerged_changes
        for memtable in parts.layers.memtables:
            parts.layers.merge(memtable)
        return count

    def flush_delta(self) -> int:
        """Merge the changes in memory; use `merge_changes`, this name is deprecated."""
        message = "HotTable.flush_delta is now HotTable.merge_changes"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.merge_changes()

    def compact(self, **settings: Unpack[CompactSettings]) -> OperationReport:
        """Rewrite small files of the cold table into larger ones: see `Table.compact`.

        It runs in processes of this machine, unless another engine is set.
        """
        from lakehand.rewrite.run import compact

        parts, chosen = self._parts, self._settings.with_call(settings)
        if chosen.sources["engine"] == "default":
            chosen = chosen.with_call({"engine": "local"})
        report = compact(parts.cold.handle, settings=chosen)
        parts.layers.settle(parts.load_view())
        return report

    # Facts

    @property
    def url(self) -> str:
        """Where the cold table is, without credentials."""
        return self._store.url

    @property
    def key(self) -> tuple[str, ...]:
        return self._key

    @property
    def hot_rows(self) -> int:
        return sum(memtable.rows for memtable in self._memtables)

    @property
    def hot_bytes(self) -> int:
        return sum(memtable.bytes for memtable in self._memtables)

    @property
    def unmerged_changes(self) -> int:
        """Changes in memory that were not merged yet."""
        return sum(memtable.unmerged_changes for memtable in self._memtables)

    @property
    def delta_count(self) -> int:
        """Unmerged changes; use `unmerged_changes`, this name is deprecated."""
        message = "HotTable.delta_count is now HotTable.unmerged_changes"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.unmerged_changes

    @property
    def _is_logged(self) -> bool:
        return self._options.directory is not None

    @property
    def _memtables(self) -> tuple[Memtable, ...]:
        return () if self._opened is None or self.is_closed else self._opened.layers.memtables

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest change has been out of the cold table; 0 if there is none."""
        since = [memtable.since for memtable in self._memtables if memtable.since is not None]
        return self._flusher.clock.monotonic() - min(since) if since else 0.0

    def sync_log(self) -> None:
        """Bring the log to the disk now, where `hot_durability` is lazy."""
        self._parts.sync()

    def storage_stats(self) -> StorageStats:
        """Say where the rows are, and what they take."""
        return storage_stats(self, self._parts, self._flusher)

    @property
    def _parts(self) -> Opened:
        if self.is_closed or self._opened is None:
            raise self._out_of_order("the hot table is not open")
        return self._opened

    def _out_of_order(self, message: str) -> HotTierError:
        return HotTierError(
            f"{message}: {self.url}",
            table=self.url,
            hint="open() or `with` opens a hot table, close() ends it for good",
        )
