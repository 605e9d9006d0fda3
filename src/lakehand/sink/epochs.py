"""Epochs of one writer, their order, and files that crashed writers left."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import EpochGapError
from lakehand.observe import get_logger, log_event
from lakehand.retention.protection import read_promise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from concurrent.futures import Future

    from lakehand.formats.base import FormatTable
    from lakehand.formats.optional import SupportsAppends
    from lakehand.model.retention import Protection
    from lakehand.model.work import Receipt, StagedFile
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.sink.transaction import WriteTransaction

_NAME = re.compile(r"lakehand-(?P<session>[0-9a-f]{32})-(?P<epoch>\d{10})-[^/]*")


def epoch_label(epoch: int) -> str:
    """Return the part of a file's name that tells its epoch."""
    return f"{epoch:010d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """Files that crashed sinks may have left."""

    #: Those sinks.
    sessions: frozenset[str]
    #: Newest epoch of the table when they ended.
    after: int
    #: Epoch that was committed since.
    upto: int

    def delete(self, table: FormatTable, settings: Settings, clock: Clock) -> int:
        """Delete them, and return how many there were: none that vacuum would keep for a version.

        RefusedError if it is not known what vacuum would keep.
        """
        keys = list(self._find(table))
        if not keys:
            return 0
        promise = read_promise(table, settings, clock)
        return _delete_unnamed(table, keys, promise.protection, for_clones=promise.held.names)

    def _find(self, table: FormatTable) -> Iterator[str]:
        for info in table.store.list():
            match = _NAME.fullmatch(info.key.rpartition("/")[2])
            if match and match["session"] in self.sessions and self._is_past(int(match["epoch"])):
                yield info.key

    def _is_past(self, epoch: int) -> bool:
        return self.after < epoch <= self.upto


def delete_unreported(
    table: SupportsAppends, *, token: str, reported: Collection[str], since: int
) -> int:
    """Delete files of killed attempts of a write that has ended; return how many.

    A task is retried with the same rows, so files of its first attempt are in the directories of
    the files that its last one `reported`; only these are listed. `since` is a version from before
    the write.
    """
    found: list[str] = []
    for directory in sorted({key.rpartition("/")[0] for key in reported}):
        table.store.delete_unfinished(directory, names=[f"{token}-"])
        keys = (info.key for info in table.store.list_directory(directory)[1])
        found += (key for key in keys if key.rpartition("/")[2].startswith(f"{token}-"))
    unreported = [key for key in found if key not in reported]
    if not unreported:
        return 0
    return _delete_unnamed(table, unreported, table.protected_since(version=since))


def _delete_unnamed(
    table: FormatTable,
    keys: list[str],
    named: Protection,
    *,
    for_clones: pa.ChunkedArray | None = None,
) -> int:
    """Delete files, but never those that are `named`."""
    kept = [named.keys, named.pinned_keys]
    kept_names = [named.names, *([] if for_clones is None else [for_clones])]
    bare = [key.rpartition("/")[2] for key in keys]
    is_kept = pc.or_(_is_in(keys, kept), _is_in(bare, kept_names))
    to_delete = pa.array(keys).filter(pc.invert(is_kept)).to_pylist()
    return len(to_delete) - len(table.store.delete(to_delete))


def _is_in(strings: list[str], columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pc.is_in(pa.array(strings), value_set=pa.chunked_array(chunks, pa.string()))


_logger = get_logger(__name__)


class EpochState(StrEnum):
    """How far an epoch has come."""

    #: Takes rows.
    OPEN = "open"
    #: In the table before it began: its rows are dropped.
    SKIPPED = "skipped"
    #: All rows are in files that no version refers to yet.
    STAGED = "staged"
    #: The outcome of its commit is unknown: commit it again to find out.
    UNKNOWN = "unknown"
    #: In the table.
    COMMITTED = "committed"


class Epoch:
    """One epoch between its begin and its end."""

    def __init__(self, number: int, transaction: WriteTransaction) -> None:
        self.number = number
        self.transaction = transaction
        self.state = EpochState.OPEN
        #: Why rows could not be written: the epoch can only be rolled back.
        self.failure: BaseException | None = None
        #: The work under way; kept, so that a call that timed out can be made again.
        self.writing: Future[tuple[StagedFile, ...]] | None = None
        self.committing: Future[Receipt | None] | None = None
        #: Whether a committer has a descriptor of the files, and may commit them.
        self.is_handed_over = False
        #: The work that rolls it back, once that was called: rows and files are being deleted.
        self.rolling_back: Future[None] | None = None

    def has_landed(self) -> bool:
        """Say whether a commit that timed out for its caller has succeeded since."""
        work = self.committing
        if work is None or not work.done() or work.cancelled():
            return False
        return work.exception() is None


class Epochs:
    """The order of epochs: which are in the table, which come next, which are missing."""

    def __init__(self, last: int | None, *, gaps: str, table: str, writer_id: str | None) -> None:
        #: Newest epoch that the table has of this writer; None if none.
        self.last = last
        #: Newest epoch that ended without rows, or is in the table.
        self._done = last
        self._gaps = gaps
        self._table = table
        self._writer_id = writer_id
        #: Missing epochs that were noticed.
        self.gaps_seen = 0

    def is_committed(self, epoch: int) -> bool:
        return self.last is not None and epoch <= self.last

    def check_next(self, epoch: int) -> None:
        """Raise if `epoch` must not begin now."""
        missing = 0 if self._done is None else epoch - self._done - 1
        if missing > 0 and self._gaps != "allow":
            self._notice(epoch, missing)

    def _notice(self, epoch: int, missing: int) -> None:
        message = (
            f"epoch {epoch} begins, and {missing} before it are missing: the last one of writer"
            f" {self._writer_id!r} in {self._table} is {self._done}"
        )
        if self._gaps == "refuse":
            raise EpochGapError(
                message,
                table=self._table,
                writer_id=self._writer_id,
                epoch=epoch,
                hint="write the missing epochs first, or set epoch_gaps to warn or allow",
            )
        self.gaps_seen += missing
        log_event(_logger, logging.WARNING, "epoch_gap", "%s", message, epoch=epoch)

    def committed(self, epoch: int) -> None:
        self.last = epoch
        self._done = epoch

    def ended_without_rows(self, epoch: int) -> None:
        self._done = epoch if self._done is None else max(epoch, self._done)
