"""At-least-once delivery: rows are committed when enough of them wait, or for long enough.

Rows stay in memory until they are committed. A flush that fails is retried before newer rows, so
that no row is lost and the order is kept; after a crash the source has to send rows again that it
does not know to be committed.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import SinkStateError
from lakehand.model.work import Receipt, require_epoch
from lakehand.sink.epochs import EpochState

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.sink.sink_options import SinkContext
    from lakehand.sink.transaction import WriteTransaction


@dataclass(kw_only=True, slots=True)
class _Flush:
    """Rows that are committed together."""

    batches: list[pa.RecordBatch]
    #: Once they are in files.
    transaction: WriteTransaction | None = None


class AtLeastOnce:
    """Flushes of one sink. Epochs are optional: to commit one is to flush what waits."""

    last_committed: int | None = None

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._epoch: int | None = None
        self._flushes: deque[_Flush] = deque()
        self._failure: BaseException | None = None
        self._timer: threading.Timer | None = None
        #: Of a flush that ended after its caller had timed out.
        self._unheard: Receipt | None = None

    @property
    def state(self) -> EpochState | None:
        """Whether an epoch takes rows; None between epochs."""
        return None if self._epoch is None else EpochState.OPEN

    def begin(self, epoch: int) -> bool:
        """Begin an epoch. The table does not record epochs here, so it is always written."""
        if self._epoch is not None:
            raise self._out_of_order(f"epoch {epoch} cannot begin before {self._epoch} is over")
        self._epoch = require_epoch(epoch)
        return True

    def write(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Take rows; an error of an earlier flush is raised here once, and the flush retried."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._context.writer_thread.start(self._flush_quietly)
            raise failure
        self._context.put(batches)
        if self._context.is_flush_due():
            self._context.writer_thread.start(self._flush_quietly)
        elif self._timer is None:
            self._start_timer()
        return sum(batch.num_rows for batch in batches)

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._context.options.max_buffer_age_seconds, self._is_time)
        self._timer.daemon = True
        self._timer.start()

    def _is_time(self) -> None:
        self._timer = None
        self._context.writer_thread.start(self._flush_quietly)

    def flush(self) -> Receipt | None:
        """Commit all rows taken so far; None if there were none."""
        self._stop_timer()
        self._failure = None
        work = self._context.writer_thread.start(self._flush_for_caller)
        self._context.writer_thread.wait(work, operation="commit of the rows that wait")
        receipt, self._unheard = self._unheard, None
        return receipt

    def _flush_for_caller(self) -> None:
        self._unheard = self._flush_all() or self._unheard

    def _flush_quietly(self) -> None:
        """Flush in the background: an error is raised by the next call."""
        try:
            self._flush_all()
        except BaseException as error:  # noqa: BLE001  kept for the next call
            self._failure = error
            self._context.metrics.errors += 1

    def _flush_all(self) -> Receipt | None:
        batches = self._context.buffer.take()
        if batches:
            self._flushes.append(_Flush(batches=batches))
        receipt = None
        while self._flushes:
            receipt = self._commit(self._flushes[0])
            self._context.buffer.release(self._flushes.popleft().batches)
        return receipt

    def _commit(self, flush: _Flush) -> Receipt | None:
        if flush.transaction is None:
            flush.transaction = self._write(flush.batches)
        return self._context.commit(flush.transaction)

    def _write(self, batches: list[pa.RecordBatch]) -> WriteTransaction:
        with self._context.begin("flush") as transaction:
            for batch in batches:
                transaction.write(batch)
            transaction.stage()
        return transaction

    def describe(self) -> None:
        """Do nothing: rows become files when they are committed."""

    def commit(self) -> Receipt | None:
        """Flush, and end the epoch if one has begun."""
        receipt = self.flush()
        self._epoch = None
        return receipt

    def rollback(self) -> None:
        """Drop rows that no commit was tried with; committed rows stay."""
        self._stop_timer()
        work = self._context.writer_thread.start(self._forget)
        self._context.writer_thread.wait(work, operation="rollback", epoch=self._epoch)
        self._epoch = None
        self._context.metrics.epochs_rolled_back += 1

    def _forget(self) -> None:
        buffer = self._context.buffer
        buffer.release(buffer.take())
        for flush in [flush for flush in self._flushes if flush.transaction is None]:
            self._flushes.remove(flush)
            buffer.release(flush.batches)
        self._context.target.forget()

    def close(self) -> None:
        """Commit what is left."""
        self.flush()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _out_of_order(self, message: str) -> SinkStateError:
        return SinkStateError(
            message,
            table=self._context.target.store.url,
            epoch=self._epoch,
            hint="commit_epoch or rollback_epoch first",
        )
