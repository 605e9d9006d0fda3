"""Opening a hot table: its owner is recorded, its log replayed, its cold table read."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand import errors
from lakehand.hot.cold import ColdTable, ColdView
from lakehand.hot.cold_writer import ColdWriter, claim_name, collision
from lakehand.hot.hot_snapshot import check_key
from lakehand.hot.journal import Journal
from lakehand.hot.layers import Layers, Memtable
from lakehand.hot.ownership import DirectoryLock, Owner, Ownership, claim, new_writer_id
from lakehand.hot.segments import Entry, Kind, Scanned, decode
from lakehand.hot.write_ahead_log import WriteAheadLog
from lakehand.schema.conform import Conformer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lakehand.hot.flusher import Flusher
    from lakehand.settings import Settings
    from lakehand.storage import Store


@dataclass(kw_only=True, slots=True)
class Opened:
    """What a hot table is made of."""

    cold: ColdTable
    layers: Layers
    journal: Journal
    log: WriteAheadLog | None
    lock: DirectoryLock | None
    writer_id: str
    key: tuple[str, ...]
    #: What the caller set, for the sink.
    given: Mapping[str, Any]
    #: Whether the log is synced with each change.
    syncs: bool
    #: Of a hot table with a key: no other one may have changes for the same table.
    ownership: Ownership | None
    _writer: ColdWriter | None = field(default=None)

    def load_view(self) -> ColdView:
        """Read the newest version of the cold table."""
        return self.cold.load(self.writer_id)

    def writer(self) -> ColdWriter:
        """Return the writer of the cold table; opened with the first flush."""
        if self._writer is None:
            self._writer = ColdWriter(
                self.cold.handle.store,
                table_id=self.cold.table_id,
                writer_id=self.writer_id,
                key=self.key,
                settings=self.given,
                before_commit=self.require_ownership,
            )
        return self._writer

    def fit_keys(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return keys as the table wants them; other columns are dropped."""
        schema = pa.schema([self.cold.schema.field(name) for name in self.key])
        conformer = Conformer.of_keys(schema, self.cold.head)
        for batch in batches:
            for name in self.key:
                if name not in batch.schema.names:
                    raise errors.UnknownColumnError(name, batch.schema.names)
        fitted = [conformer.conform(batch.select(list(self.key))) for batch in batches]
        return pa.Table.from_batches(fitted) if fitted else schema.empty_table()

    def require_own_table(self) -> None:
        """Raise if the table is another one now, or has an epoch that this hot table has not ended.

        Before anything is written, and before a step of the log into the next epoch: what the table
        has of an epoch that has ended is taken for that when the log is opened again.
        """
        self.require_ownership()
        epoch, active = self.cold.look().transactions.get(self.writer_id, -1), self.layers.active
        if epoch >= active.epoch:
            raise collision(self.cold.handle.store.url, self.writer_id, active.epoch)

    def require_ownership(self) -> None:
        """Raise HotTableTakenError if another hot table has taken this one's table over."""
        if self.ownership is not None:
            self.ownership.check()

    def freeze(self) -> None:
        """Let changes go to the next epoch from now on."""
        with self.journal.paused():
            following = self.layers.active.epoch + 1
            if self.log is not None:
                following = self.log.begin_epoch()
            self.layers.freeze(following)

    def sync(self) -> None:
        if self.log is not None and not self.syncs:
            with self.journal.paused():
                self.log.sync()

    def drop(self, epoch: int) -> None:
        """Forget what the log has of epochs that are in the cold table."""
        if self.log is not None:
            self.log.drop(epoch)

    def close(self) -> None:
        """End all parts, also those after one that fails: a log must not stay locked."""
        is_empty = not any(memtable.entries for memtable in self.layers.memtables)
        with ExitStack() as stack:
            if self.lock is not None:
                stack.callback(self.lock.release)
            if self.ownership is not None and (is_empty or self.log is None):
                stack.callback(self.ownership.release)
            stack.callback(self._close_log)
            if self._writer is not None:
                self._writer.close()

    def _close_log(self) -> None:
        with self.journal.paused():
            self.journal.close()
            if self.log is not None:
                self.log.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class HotOptions:
    """What was asked of a hot table."""

    #: Where its log is; None: nothing is logged.
    directory: Path | None
    key: tuple[str, ...]
    #: Of a cold table that does not exist yet.
    schema: pa.Schema | None
    properties: Mapping[str, str] | None
    writer_id: str | None
    #: Whether the table is taken from another hot table that may have changes for it.
    takeover: bool
    #: What the caller set.
    given: Mapping[str, Any]


def open_parts(
    store: Store, options: HotOptions, settings: Settings, *, flusher: Flusher
) -> Opened:
    """Open the cold table and the log, and replay the log."""
    lock = None if options.directory is None else DirectoryLock(options.directory)
    try:
        return _opened(store, options, settings, lock=lock, flusher=flusher)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _opened(
    store: Store,
    options: HotOptions,
    settings: Settings,
    *,
    lock: DirectoryLock | None,
    flusher: Flusher,
) -> Opened:
    cold = ColdTable(store, settings, schema=options.schema, properties=options.properties)
    key = check_key(options.key, cold.schema)
    if key:
        cold.require_upserts(key)
    name, log_id = _identity(options, cold, key)
    if log_id is not None or options.writer_id is not None:
        claim_name(store, name, log_id=log_id)
    with ExitStack() as stack:
        ownership = _acquired(store, options, name) if key else None
        if ownership is not None:
            stack.callback(ownership.restore)
        opened = _assemble(
            options,
            settings,
            cold=cold,
            name=name,
            key=key,
            lock=lock,
            ownership=ownership,
            flusher=flusher,
        )
        stack.pop_all()
        return opened


def _acquired(store: Store, options: HotOptions, name: str) -> Ownership:
    owner = Owner.here(writer_id=name, log=options.directory)
    ownership = Ownership(store=store, owner=owner)
    ownership.acquire(takeover=options.takeover)
    return ownership


def _assemble(
    options: HotOptions,
    settings: Settings,
    *,
    cold: ColdTable,
    name: str,
    key: tuple[str, ...],
    lock: DirectoryLock | None,
    ownership: Ownership | None,
    flusher: Flusher,
) -> Opened:
    """Replay the log."""
    view, now = cold.load(name), flusher.clock.monotonic
    log, memtables = _take_up(options.directory, settings, view, now=now())
    last = log.sequence if log is not None else 0
    for memtable in memtables:
        flusher.budget.force(memtable.bytes)
    layers = Layers(view, memtables, key=key, sequence=last, on_freed=flusher.budget.release)

    def publish(entries: Sequence[Entry]) -> None:
        layers.publish(entries, epoch=None if log is None else log.epoch, now=now())
        flusher.note_changes()

    budget = flusher.budget
    journal = Journal(log, publish, last=last, reserve=budget.force, release=budget.release)
    return Opened(
        cold=cold,
        layers=layers,
        journal=journal,
        log=log,
        lock=lock,
        writer_id=name,
        key=key,
        given=options.given,
        syncs=settings.hot_durability == "full",
        ownership=ownership,
    )


def _identity(options: HotOptions, cold: ColdTable, key: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the name of the hot table in the cold one, and what tells its log from others."""
    if options.directory is None:
        return options.writer_id or new_writer_id(), None
    manifest = claim(
        options.directory,
        table=cold.handle.store.url,
        table_id=cold.table_id,
        key=key,
        writer_id=options.writer_id,
    )
    return manifest.writer_id, manifest.log_id


def _take_up(
    directory: Path | None, settings: Settings, view: ColdView, *, now: float
) -> tuple[WriteAheadLog | None, list[Memtable]]:
    """Return the log, and what it holds that is not in the cold table."""
    if directory is None:
        return None, [Memtable(epoch=view.epoch + 1)]
    log, records = WriteAheadLog.open(
        directory,
        committed_epoch=view.epoch,
        segment_bytes=settings.hot_segment_bytes,
        syncs=settings.hot_durability == "full",
    )
    try:
        memtables = list(_replayed(records, now=now))
    except BaseException:
        log.close()
        raise
    if not memtables or memtables[-1].epoch < log.epoch:
        memtables.append(Memtable(epoch=log.epoch))
    return log, memtables


def _replayed(records: Iterable[tuple[int, Scanned]], *, now: float) -> Iterable[Memtable]:
    for epoch, group in groupby(records, key=lambda pair: pair[0]):
        memtable = Memtable(epoch=epoch)
        memtable.add([_entry(record) for _, record in group], now=now)
        yield memtable


def _entry(record: Scanned) -> Entry:
    return Entry(
        sequence=record.sequence,
        kind=Kind(record.kind),
        rows=decode(record.content),
        bytes=record.content.size,
    )
