"""Changes of an epoch on their way into the cold table: once, however often that is tried."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand import errors
from lakehand.hot.segments import Entry, Kind
from lakehand.observe import get_logger, log_event
from lakehand.settings import Settings
from lakehand.sink.background import timed_out
from lakehand.sink.epochs import EpochState
from lakehand.sink.table_sink import TableSink
from lakehand.sink.writer_lease import WriterLease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.model.work import Receipt
    from lakehand.storage import Store

_logger = get_logger(__name__)
#: Of the sink: an epoch is written as a whole, however long that takes. Callers time out.
_NO_LIMIT = timedelta(days=3650)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flushed:
    """The result of an epoch that has ended."""

    #: Whether the table says so itself; else there was nothing in the epoch that it needs.
    is_in_table: bool
    rows: int
    deleted_keys: int


class ColdWriter:
    """A sink of the hot table's own, and a thread that hands it one epoch after the other.

    So an epoch that takes longer than a caller waits goes on, and the next call waits for it.
    """

    def __init__(
        self,
        store: Store,
        *,
        table_id: str | None,
        writer_id: str,
        key: tuple[str, ...],
        settings: Mapping[str, Any],
        before_commit: Callable[[], None],
    ) -> None:
        """With a `key` rows replace those with the same key; else they are appended.

        `table_id` tells the table from others that may come to be in its place. `before_commit`
        raises if nothing may be committed.
        """
        self._before_commit = before_commit
        self._table_id = table_id
        self._writer_id = writer_id
        #: Whether the last try to commit may be in the table, or get there yet.
        self._is_in_doubt = False
        #: The last epoch that is done with, and whether the table has it.
        self._ended_epoch = -1
        self._is_there = False
        self._timeout_seconds: float = Settings(settings)["write_timeout"].total_seconds()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakehand-hot-flush")
        self._work: Future[None] | None = None
        mode = {"write_mode": "upsert", "merge_key": key} if key else {"write_mode": "append"}
        self._store = store
        self._settings = {
            **settings,
            **mode,
            "delivery": "exactly-once",
            "on_backpressure": "wait",
            "epoch_gaps": "allow",
            "create_table": False,
            "write_timeout": _NO_LIMIT,
        }
        self._sink = self._new_sink()

    def _new_sink(self) -> TableSink:
        return TableSink(self._store, writer_id=self._writer_id, **self._settings).open()

    def write(
        self, epoch: int, entries: Sequence[Entry], *, schema: pa.Schema, waits: bool = False
    ) -> Flushed:
        """Write and commit the changes of an epoch, which fit a table of this schema.

        What it raises, the same call may be made again, with the same changes. WriteTimeoutError:
        it goes on, and the next call waits for it; with `waits` there is no limit.
        """
        if epoch != self._ended_epoch:
            if self._work is None or self._work.done():
                self._work = self._thread.submit(self._end_epoch, epoch, entries, schema)
            self._wait_for(self._work, epoch, None if waits else self._timeout_seconds)
        counts = {kind: sum(e.rows.num_rows for e in entries if e.kind is kind) for kind in Kind}
        return Flushed(
            is_in_table=self._is_there,
            rows=counts[Kind.ROWS],
            deleted_keys=counts[Kind.DELETED_KEYS],
        )

    def _wait_for(self, work: Future[None], epoch: int, seconds: float | None) -> None:
        try:
            work.result(timeout=seconds)
        except FutureTimeoutError as error:
            if seconds is not None and not work.done():
                raise timed_out(
                    "flush",
                    table=self._sink.url,
                    seconds=seconds,
                    writer_id=self._writer_id,
                    epoch=epoch,
                ) from error
            work.result()  # it ended just now, or it is the work that raised this

    def _end_epoch(self, epoch: int, entries: Sequence[Entry], schema: pa.Schema) -> None:
        # A caller that was interrupted may have started this before.
        if epoch != self._ended_epoch:
            is_there = self._bring_in(epoch, entries, schema)
            self._ended_epoch, self._is_there, self._is_in_doubt = epoch, is_there, False

    def _bring_in(self, epoch: int, entries: Sequence[Entry], schema: pa.Schema) -> bool:
        """Commit an epoch, and say whether the table has it now; else it holds no change."""
        if not self._is_in_doubt:
            if self._give_up(epoch):
                return True
            if self._sink.schema != schema:
                # One that upserts learns of new columns when it is opened, and not later.
                self._close_sink()
                self._sink = self._new_sink()
            self._begin(epoch)
            for entry in entries:
                self._sink.write(_as_changes(entry))
            self._before_commit()
        return self._commit() is not None

    def _give_up(self, epoch: int) -> bool:
        """End what an earlier try has left unfinished, and say whether it is in the table."""
        if self._sink.epoch_state is None:
            return False
        before = self._sink.last_committed_epoch
        self._sink.rollback_epoch()
        return self._sink.last_committed_epoch == epoch != before

    def _begin(self, epoch: int) -> None:
        """Begin an epoch that this writer has not committed.

        If the table has it, another writer has committed it, with other changes.
        """
        is_new = self._sink.begin_epoch(epoch)
        is_same = self._sink.table_id == self._table_id
        if is_new and is_same:
            return
        self._sink.rollback_epoch()
        if is_same:
            raise collision(self._sink.url, self._writer_id, epoch)
        raise errors.TableError(
            f"there is another table at {self._sink.url} than when the hot table was opened",
            table=self._sink.url,
            hint="nothing was written; the changes are kept in the log",
        )

    def _commit(self) -> Receipt | None:
        """Commit the epoch; what got no answer is found out about first."""
        self._is_in_doubt = True
        try:
            receipt = self._sink.commit_epoch()
        except Exception as error:
            # It may be in the table, but not before all is written.
            is_written = self._sink.epoch_state is not EpochState.OPEN
            unclear = errors.CommitUnknownError | errors.StoreUnreachableError
            self._is_in_doubt = is_written and isinstance(error, unclear)
            raise
        return receipt

    def close(self) -> None:
        """End the sink, after the epoch that is under way."""
        self._thread.shutdown(wait=True)
        self._close_sink()

    def _close_sink(self) -> None:
        try:
            self._sink.close()
        except errors.LakehandError as error:
            message = "The sink of a hot table could not be closed: %s"
            log_event(_logger, logging.WARNING, "hot_sink_close", message, error.message)


def claim_name(store: Store, writer_id: str, *, log_id: str | None) -> None:
    """Claim a writer id for one log; WriterCollisionError if another log has it.

    Two logs under one id have epochs of the same numbers: each takes what the other has committed
    for its own, and drops changes that the table lacks. `log_id` is None where there is no log: the
    id must be free then.
    """
    lease = WriterLease(store=store, writer_id=f"hot/{writer_id}", session=log_id or "")
    try:
        if log_id is None:
            lease.check()
        else:
            lease.claim()
    except errors.WriterCollisionError as error:
        raise errors.WriterCollisionError(
            f"{writer_id!r} is the name of another hot table's log on {store.url}",
            table=store.url,
            writer_id=writer_id,
            hint="nothing was changed; give each hot table a unique name, or none; a new log cannot"
            " continue under the name of one that was lost",
        ) from error


def collision(table: str, writer_id: str, epoch: int) -> errors.WriterCollisionError:
    """Return the error for an epoch that is in a table, and not by the hot table whose it is."""
    return errors.WriterCollisionError(
        f"another process has committed to {table} under the writer id {writer_id!r}: epoch {epoch}"
        " is in the table, and this hot table has not committed it",
        table=table,
        writer_id=writer_id,
        epoch=epoch,
        hint="nothing was dropped: all changes are in memory and in the log, and can be read; give"
        " each hot table a unique name, or none",
    )


def _as_changes(entry: Entry) -> pa.Table:
    """Return an entry as a sink takes it: rows unchanged, deleted keys with their operation."""
    if entry.kind is Kind.ROWS:
        return entry.rows
    word = pa.repeat(pa.scalar("D"), entry.rows.num_rows)
    return entry.rows.append_column("_op", word)
