"""Epochs that are in the table once, however often they are written.

Rows are written into files as they come, and become visible with the one commit of their epoch.
It records the writer's id and the number of the epoch, so that a retry of the epoch finds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from lakehand.errors import LakehandError, SinkStateError, WriteTimeoutError
from lakehand.model.work import Receipt, StagedFile, Transaction, require_epoch
from lakehand.observe import get_logger, log_event
from lakehand.sink.epochs import Epoch, Epochs, EpochState, Leftovers, epoch_label
from lakehand.sink.writer_lease import WriterLease

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lakehand.sink.descriptor import Descriptor
    from lakehand.sink.sink_options import SinkContext
    from lakehand.sink.transaction import WriteTransaction

T = TypeVar("T")
_logger = get_logger(__name__)


class ExactlyOnce:
    """The epochs of one writer."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._writer_id = context.options.writer_id or ""
        self._pipeline = context.options.pipeline
        self._epochs = Epochs(
            self._last_in_table(),
            gaps=context.options.epoch_gaps,
            table=context.target.store.url,
            writer_id=self._writer_id,
        )
        name = f"{self._pipeline}/{self._writer_id}" if self._pipeline else self._writer_id
        self._lease = WriterLease(
            store=context.target.store, writer_id=name, session=context.session
        )
        self._has_lease = False
        #: Newest epoch that this sink itself has committed.
        self._committed: int | None = None
        #: Sinks under this id that crashed, and may have left files.
        self._earlier: frozenset[str] = frozenset()
        self._epoch: Epoch | None = None
        self._skipped: int | None = None
        #: Transactions of epochs that were rolled back while their outcome was unknown.
        self._doubtful: dict[int, list[WriteTransaction]] = {}
        #: Whether the table may be another than the one that is known.
        self._is_stale = False

    @property
    def last_committed(self) -> int | None:
        return self._epochs.last

    @property
    def state(self) -> EpochState | None:
        """How far the current epoch has come; None between epochs."""
        if self._skipped is not None:
            return EpochState.SKIPPED
        return self._epoch.state if self._epoch is not None else None

    def begin(self, epoch: int) -> bool:
        """Begin an epoch; False if it is in the table, so that its rows are dropped."""
        epoch = require_epoch(epoch)
        self._require_between_epochs(epoch)
        if self._is_stale or not self._has_lease:
            work = self._context.writer_thread.start(self._look_around)
            self._wait_for(work, "look at the table before the begin", epoch)
        if self._epochs.is_committed(epoch):
            self._skipped = epoch
            self._context.metrics.epochs_skipped += 1
            return False
        self._epochs.check_next(epoch)
        self._context.metrics.epoch_gaps = self._epochs.gaps_seen
        transaction = self._context.begin(
            epoch_label(epoch),
            mark=Transaction(application=self._writer_id, version=epoch),
            doubtful=tuple(self._doubtful.get(epoch, ())),
        )
        self._epoch = Epoch(epoch, transaction)
        return True

    def _require_between_epochs(self, epoch: int) -> None:
        current = self._epoch.number if self._epoch is not None else self._skipped
        if current is not None:
            raise self._out_of_order(f"epoch {epoch} cannot begin before epoch {current} is over")

    def _look_around(self) -> None:
        """Acquire the lease of the writer id, and read the table if it may have changed."""
        is_another = False
        if not self._has_lease:
            self._earlier, is_another = self._lease.acquire(seen=self._epochs.last)
            self._has_lease = True
        if self._is_stale or (is_another and self._context.target.find()):
            self._context.target.refresh()
            self._epochs.last = self._last_in_table()
            self._is_stale = False
        if is_another:
            self._lease.note_seen(self._epochs.last)

    def _last_in_table(self) -> int | None:
        target = self._context.target
        name = self._pipeline or self._writer_id
        return target.head.transactions.get(name) if target.is_known else None

    def write(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Take rows of the current epoch; 0 if they are dropped."""
        if self._skipped is not None:
            return 0
        epoch = self._require_taking()
        if epoch.failure is not None:
            raise epoch.failure
        self._context.put(batches)
        if self._context.is_flush_due():
            self._context.writer_thread.start(lambda: self._write_waiting(epoch))
        return sum(batch.num_rows for batch in batches)

    def _write_waiting(self, epoch: Epoch) -> None:
        batches = self._context.buffer.take()
        try:
            if epoch.failure is None:
                for batch in batches:
                    epoch.transaction.write(batch)
        except BaseException as error:  # noqa: BLE001  kept, and raised to the caller
            # After any failure rows are missing from the files.
            epoch.failure = error
            self._context.metrics.errors += 1
        finally:
            self._context.buffer.release(batches)

    def flush(self) -> None:
        """Wait until all rows that were taken are written, as far as files allow it."""
        if self._skipped is None:
            epoch = self._require_taking()
            work = self._context.writer_thread.start(lambda: self._write_waiting(epoch))
            self._wait_for(work, "write", epoch.number)
            if epoch.failure is not None:
                raise epoch.failure

    def stage(self) -> tuple[StagedFile, ...]:
        """Write all rows of the epoch and return their files."""
        if self._skipped is not None:
            return ()
        epoch = self._require(EpochState.OPEN, EpochState.STAGED, EpochState.UNKNOWN)
        if epoch.writing is None:
            epoch.writing = self._context.writer_thread.start(lambda: self._finish(epoch))
        files = self._wait_for(epoch.writing, "write", epoch.number)
        if epoch.state is EpochState.OPEN:
            epoch.state = EpochState.STAGED
        return files

    def describe(self) -> Descriptor | None:
        """Stage all rows of the epoch, and return a descriptor of their files; None if no rows."""
        files = self.stage()
        if not files:
            return None
        epoch = self._require(EpochState.STAGED)
        epoch.is_handed_over = self._pipeline is not None
        return epoch.transaction.describe(writer=self._writer_id, epoch=epoch.number)

    def _finish(self, epoch: Epoch) -> tuple[StagedFile, ...]:
        self._write_waiting(epoch)
        if epoch.failure is None:
            try:
                self._lease.check(committed=self._committed, clock=self._context.clock)
                return epoch.transaction.stage()
            except BaseException as error:  # noqa: BLE001  kept, and raised to the caller
                epoch.failure = error
                self._context.metrics.errors += 1
        raise epoch.failure

    def commit(self) -> Receipt | None:
        """Commit the epoch; None if there is nothing to commit, or the committer has done so."""
        if self._skipped is not None:
            self._skipped = None
            return None
        epoch = self._require(EpochState.OPEN, EpochState.STAGED, EpochState.UNKNOWN)
        if epoch.writing is None and self._pipeline is None:
            # Both are queued at once, so that the thread does not wait for this one in between.
            epoch.writing = self._context.writer_thread.start(lambda: self._finish(epoch))
            epoch.committing = self._context.writer_thread.start(
                lambda: self._commit_written(epoch)
            )
        files = self.stage()
        epoch = self._require(EpochState.STAGED, EpochState.UNKNOWN)
        if not files and not self._leaves_a_mark(epoch):
            self._epochs.ended_without_rows(epoch.number)
            self._epoch = None
            return None
        receipt = None if self._pipeline is not None else self._commit(epoch)
        if receipt is not None and self._earlier:
            self._delete_leftovers(epoch.number)
        self._epochs.committed(epoch.number)
        self._committed = epoch.number if receipt is not None else self._committed
        self._doubtful.clear()
        self._epoch = None
        return receipt

    def _delete_leftovers(self, epoch: int) -> None:
        """Delete in the background what earlier sinks left of epochs that are over now.

        Without an earlier mark in the table it is unknown which of their epochs were committed.
        """
        sessions, after, context = self._earlier, self._epochs.last, self._context
        self._earlier = frozenset()

        def delete_leftovers() -> None:
            if after is not None:
                context.background.delete(Leftovers(sessions=sessions, after=after, upto=epoch))
            self._lease.forget_earlier()

        context.background.soon(delete_leftovers)

    def _leaves_a_mark(self, epoch: Epoch) -> bool:
        """Whether an epoch without files is committed, so that the table records it."""
        options = self._context.options
        is_told = epoch.transaction.staging.holds_changes or options.overwrites
        return self._context.target.is_known and (is_told or options.epoch_gaps == "refuse")

    def _commit_written(self, epoch: Epoch) -> Receipt | None:
        """Commit what was written just before, on the thread that wrote it."""
        files = epoch.writing.result() if epoch.writing is not None else ()
        if not files and not self._leaves_a_mark(epoch):
            return None
        return self._context.commit(epoch.transaction)

    def _commit(self, epoch: Epoch) -> Receipt | None:
        if epoch.committing is None:
            epoch.committing = self._context.writer_thread.start(
                lambda: self._commit_written(epoch)
            )
        work = epoch.committing
        try:
            return self._wait_for(work, "commit", epoch.number)
        except WriteTimeoutError:
            raise  # the next call waits for the same work, even if it has ended by now
        except LakehandError:
            if work.done():
                # The outcome is recorded; the next call tries again.
                epoch.committing = None
                self._is_stale = True
                is_unknown = epoch.transaction.is_unknown
                epoch.state = EpochState.UNKNOWN if is_unknown else EpochState.STAGED
            raise

    def rollback(self) -> None:
        """Roll the epoch back: its rows are dropped, its files deleted.

        Where the outcome of a commit is unknown, the table is read. If the commit landed, the epoch
        stays; if that is still unknown, its files stay, and a retry of the epoch resolves it. Once
        this was called the epoch cannot be committed: after an error only this can be retried.
        """
        if self._skipped is not None:
            self._skipped = None
            return
        epoch = self._epoch
        if epoch is None:
            raise self._out_of_order("there is no epoch to roll back")
        if epoch.committing is not None:
            epoch.committing.cancel()  # if it has not begun
        if epoch.rolling_back is None or _has_failed(epoch.rolling_back):
            epoch.rolling_back = self._context.writer_thread.start(lambda: self._give_up(epoch))
        self._wait_for(epoch.rolling_back, "rollback", epoch.number)
        self._epoch = None
        self._context.metrics.epochs_rolled_back += 1

    def _give_up(self, epoch: Epoch) -> None:
        self._context.buffer.release(self._context.buffer.take())
        self._context.target.forget()
        if epoch.is_handed_over:
            # Its committer may still commit it, so its files are left to vacuum. If the committer
            # refused it, the table has changed, and the next epoch needs its newest version.
            self._is_stale = True
            return
        if epoch.has_landed():
            self._note_landed(epoch)
            return
        transaction = epoch.transaction
        if transaction.is_unknown:
            if transaction.resolve() is not None:
                self._note_landed(epoch)
            else:
                self._doubtful.setdefault(epoch.number, []).append(transaction)
        transaction.discard()

    def _note_landed(self, epoch: Epoch) -> None:
        self._epochs.committed(epoch.number)
        message = "Epoch %d is in the table: it was committed before it was rolled back"
        log_event(_logger, logging.WARNING, "epoch_landed", message, epoch.number)

    def close(self) -> None:
        """Roll back what was not committed."""
        if self._skipped is not None or self._epoch is not None:
            self.rollback()
        if self._has_lease and not self._doubtful and not self._earlier:
            self._context.background.soon(self._lease.release)

    def _wait_for(self, work: Future[T], operation: str, epoch: int) -> T:
        return self._context.writer_thread.wait(work, operation=operation, epoch=epoch)

    def _require_taking(self) -> Epoch:
        """Return the epoch if it still takes rows: until its files are being finished."""
        epoch = self._require(EpochState.OPEN)
        if epoch.writing is not None:
            message = f"epoch {epoch.number} is being written, and takes no rows any more"
            raise self._out_of_order(message)
        return epoch

    def _require(self, *states: EpochState) -> Epoch:
        if self._epoch is None:
            raise self._out_of_order("no epoch has begun")
        if self._epoch.rolling_back is not None:
            # Its rows and files may be deleted already: a commit would refer to missing files.
            message = f"epoch {self._epoch.number} is being rolled back: call rollback_epoch again"
            raise self._out_of_order(message)
        if self._epoch.state not in states:
            raise self._out_of_order(
                f"epoch {self._epoch.number} is {self._epoch.state}, and takes no rows any more"
            )
        return self._epoch

    def _out_of_order(self, message: str) -> SinkStateError:
        return SinkStateError(
            message,
            table=self._context.target.store.url,
            writer_id=self._writer_id,
            epoch=self._epoch.number if self._epoch is not None else None,
            hint="begin_epoch -> write -> [pre_commit] -> commit_epoch, or rollback_epoch",
        )


def _has_failed(work: Future[None]) -> bool:
    return work.done() and work.exception() is not None
