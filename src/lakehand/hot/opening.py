"""Opening a hot table: one owner, its log replayed, its cold table read."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import uuid
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.errors import (
    HotTableTakenError,
    LakehandError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnknownColumnError,
)
from lakehand.hot.cold import ColdTable
from lakehand.hot.directory import DirectoryLock, claim, new_writer_id
from lakehand.hot.flushing import ColdWriter, claim_name, collision
from lakehand.hot.journal import Journal
from lakehand.hot.layers import Layers, Memtable
from lakehand.hot.log import WriteAheadLog
from lakehand.hot.newest import check_key
from lakehand.hot.segments import Entry, Kind, decode
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe.logs import get_logger, log_event
from lakehand.schema.conform import Conformer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.hot.cold import ColdView
    from lakehand.hot.flusher import Flusher
    from lakehand.hot.segments import Scanned
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["HotOptions", "Opened", "Owner", "Ownership", "open_parts"]


_logger = get_logger(__name__)
_KEY = "_lakehand/hot/owner.json"
_TAKEN = "_lakehand/hot/taken"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """What the record says."""

    #: Tells the hot table from others: the same one for a log each time that it is opened.
    identity: str
    writer_id: str
    #: Its directory; None: what is not in the table goes with the process.
    log: str | None
    host: str
    #: The processes among which `process` is one, and that one; None where the system tells none.
    machine: str | None
    process: str | None

    @classmethod
    def here(cls, *, writer_id: str, log: Path | None) -> Self:
        return cls(
            identity=writer_id if log is not None else uuid.uuid4().hex,
            writer_id=writer_id,
            log=None if log is None else str(log),
            host=socket.gethostname(),
            machine=_machine(),
            process=_process(str(os.getpid())),
        )

    @property
    def is_gone(self) -> bool:
        """Whether its changes are gone for sure, with the process that had them in memory."""
        if self.log is not None or self.process is None or self.machine != _machine():
            return False
        number = self.process.partition("@")[0]
        return number.isdecimal() and _process(number) != self.process

    def described(self) -> str:
        where = "in memory only" if self.log is None else f"with the log {self.log}"
        return f"that of {self.writer_id!r} on the host {self.host}, {where}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ownership:
    """The record of one hot table, beside its table."""

    store: Store
    owner: Owner
    #: The owner before this hot table was opened; None: nobody. Empty as long as it was not asked.
    before: list[Owner | None] = field(default_factory=list)

    def acquire(self, *, takeover: bool) -> None:
        """Write the record; HotTableTakenError if it is another's, unless that is taken over.

        Of one that was taken over all changes are given up, unless it takes the table back.
        """
        there = self._read()
        self.before.append(there)
        is_own = there is not None and there.identity == self.owner.identity
        if not (there is None or is_own or there.is_gone or takeover):
            raise self._taken(there)
        if not (is_own or takeover):
            self._require_not_given_up()
        if there is None:
            self._create()
        else:
            self._replace(there)
        self.store.delete([_mark(self.owner)])

    def check(self) -> None:
        """Raise HotTableTakenError if another hot table has taken the table over."""
        there = self._read()
        if there is None:
            self._require_not_given_up()
            self._create()  # somebody tidied up
        elif there.identity != self.owner.identity:
            raise self._taken(there)

    def _replace(self, there: Owner) -> None:
        """Take the record from another one, whose changes never get into the table then."""
        is_taken = there.identity != self.owner.identity and not there.is_gone
        if is_taken:
            self._give_up(there)
        self.store.put(_KEY, self._content(self.owner))
        if is_taken:
            self._give_up(there)  # it may have been opened in between, and cleared that
        self.check()

    def _give_up(self, other: Owner) -> None:
        self.store.put(_mark(other), self._content(self.owner))

    def _require_not_given_up(self) -> None:
        if not self.store.exists(_mark(self.owner)):
            return
        url = self.store.url
        raise HotTableTakenError(
            f"another hot table has taken {url} over: the changes of {self.owner.writer_id!r} that"
            " are not in the table are older than what came after them",
            table=url,
            path=self.owner.log,
            host=self.owner.host,
            writer_id=self.owner.writer_id,
            hint="nothing was changed; begin with an empty log, or open this one with"
            " takeover=True: its changes then replace newer rows of the same keys",
        )

    def release(self) -> None:
        """Let another hot table have the table: nothing is left that is not in it."""
        try:
            there = self._read()
            if there is not None and there.identity == self.owner.identity:
                self.store.delete([_KEY])
        except LakehandError as error:
            message = "%s is still taken by this hot table, and others are refused: %s"
            url, reason = self.store.url, error.message
            log_event(_logger, logging.WARNING, "hot_table_still_taken", message, url, reason)

    def restore(self) -> None:
        """Leave the record as it was: this hot table could not be opened."""
        other = next((one for one in self.before if one is not None), None)
        if other is not None and other.identity == self.owner.identity:
            return
        if other is None or other.is_gone:
            if self.before:
                self.release()
            return
        there = self._read()
        if there is not None and there.identity == self.owner.identity:
            self.store.put(_KEY, self._content(other))
            self.store.delete([_mark(other)])

    def _create(self) -> None:
        try:
            self.store.put_if_absent(_KEY, self._content(self.owner))
        except ObjectExistsError:
            there = self._read()
            if there is None or there.identity != self.owner.identity:
                raise self._taken(there) from None

    def _content(self, owner: Owner) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(owner)}, indent=1).encode()

    def _read(self) -> Owner | None:
        try:
            content = self.store.get(_KEY)
        except ObjectNotFoundError:
            return None
        try:
            document = parse_object(content)
            if document.pop("format", None) == _FORMAT:
                return read_value(Owner, document)
        except DocumentError:
            pass
        raise HotTableTakenError(
            f"{_KEY} of {self.store.url} says nothing that this version of lakehand can read",
            table=self.store.url,
            hint="nothing was changed; if no other hot table writes to this table, delete it",
        )

    def _taken(self, there: Owner | None) -> HotTableTakenError:
        other = "one that was opened just now" if there is None else there.described()
        return HotTableTakenError(
            f"another hot table brings changes by key into {self.store.url}: {other}",
            table=self.store.url,
            path=None if there is None else there.log,
            host=None if there is None else there.host,
            writer_id=None if there is None else there.writer_id,
            hint="nothing was changed; close the other one, which flushes it, or send the changes"
            " to it; if it and its log are lost, open this one with takeover=True: what the other"
            " has not flushed never gets into the table then",
        )


def _mark(owner: Owner) -> str:
    hashed = hashlib.sha256(owner.identity.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{_TAKEN}/{hashed}.json"


def _machine() -> str | None:
    """Return what tells this set of processes from those of other machines and containers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return None


def _process(number: str) -> str | None:
    """Return what tells a process from a later one of the same number; None if it has ended."""
    with suppress(OSError, IndexError):
        # The name, which comes before the rest, may hold spaces and brackets.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"{number}@{fields[19]}"
    return None


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
        """Return who writes to the cold table; opened with the first flush."""
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
        """Return keys as the table wants them; columns beside those of the key are left out."""
        schema = pa.schema([self.cold.schema.field(name) for name in self.key])
        conformer = Conformer.of_keys(schema, self.cold.head)
        for batch in batches:
            for name in self.key:
                if name not in batch.schema.names:
                    raise UnknownColumnError(name, batch.schema.names)
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
    #: Of a cold table that is not there yet.
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
    """Open the cold table and the log, and take up what the log holds."""
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
        opened = _put_together(
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


def _put_together(
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
    """Take up what the log holds."""
    view, now = cold.load(name), flusher.clock.monotonic
    log, memtables = _take_up(options.directory, settings, view, now=now())
    last = log.sequence if log is not None else 0
    for memtable in memtables:
        flusher.budget.force(memtable.bytes)
    layers = Layers(view, memtables, key=key, sequence=last, on_freed=flusher.budget.release)

    def publish(entries: Sequence[Entry]) -> None:
        layers.publish(entries, epoch=None if log is None else log.epoch, now=now())

    journal = Journal(log, publish, last=last, on_refused=flusher.budget.release)
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
