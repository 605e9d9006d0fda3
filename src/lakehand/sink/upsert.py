"""Changes on their way into a table: gathered on disk, one per key, in one commit."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.engine.cores import usable_cores
from lakehand.errors import CommitConflictError, ValidationError
from lakehand.formats.worker import TaskLimits
from lakehand.model.reports import UpsertReport
from lakehand.observe.clock import SystemClock
from lakehand.observe.stopwatch import Stopwatch
from lakehand.rows.incoming import NUMBER, Incoming, KeyColumns
from lakehand.rows.key_equality import named_key
from lakehand.rows.operation import Call, open_session
from lakehand.rows.upsert import AlreadyThere, Mark, upsert
from lakehand.schema.arrow_input import as_reader
from lakehand.sink.changelog import BOOKKEEPING, ChangeRows, Form, collapse
from lakehand.sink.committing import PendingCommit, collision
from lakehand.sink.one_call import transaction_of
from lakehand.sink.options import SinkOptions
from lakehand.sink.staging import Spool
from lakehand.sink.target import Target
from lakehand.sink.upsert_epochs import leave_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Transaction
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.rows.upsert import Upserted
    from lakehand.settings import Settings

__all__ = [
    "Collapsed",
    "Gathered",
    "UpsertRequest",
    "Upserting",
    "Upserts",
    "delete_keys_once",
    "upsert_once",
]


#: Files that are looked into by the process that upserts, without a runner and its start.
INLINE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Collapsed:
    """What the changes of an epoch came to."""

    rows_in: int
    upserts_out: int
    deletes_out: int
    duration_ms: float


class Gathered:
    """Changes that wait for the others of their epoch. They fit the table."""

    def __init__(self, rows: ChangeRows, settings: Settings, clock: Clock) -> None:
        self._rows = rows
        self._settings = settings
        self._clock = clock
        self._spool: Spool | None = None
        self._incoming: Incoming | None = None
        self.collapsed: Collapsed | None = None

    @property
    def count(self) -> int:
        """How many changes came."""
        return self._spool.rows if self._spool is not None else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take changes in, as `ChangeRows.fit` returns them."""
        if self._spool is None:
            directory = self._settings.scratch_directory
            self._spool = Spool(self._rows.schema, directory=directory)
        self._spool.add(batch)

    def incoming(self, *, is_ordered: bool) -> Incoming:
        """Return one change for each key.

        Changes that say nothing but the rows have an order only if `is_ordered`; else a key that
        comes twice is a DuplicateKeyError.
        """
        if self._incoming is None:
            watch = Stopwatch(self._clock)
            self._incoming = self._collapse(is_ordered=is_ordered)
            live = len(self._incoming.live_numbers)
            self.collapsed = Collapsed(
                rows_in=self.count,
                upserts_out=live,
                deletes_out=self._incoming.winners.num_rows - live,
                duration_ms=watch.total_milliseconds(),
            )
        return self._incoming

    def _collapse(self, *, is_ordered: bool) -> Incoming:
        changes = self._spool.table() if self._spool else _nothing(self._rows)
        form = self._rows.form or Form.ROWS
        if form is Form.ROWS and is_ordered:
            form = Form.CDC
        limits = replace(TaskLimits.of(self._settings), threads=usable_cores())
        compared = self._rows.compared(changes, whole=form is Form.ZSET)
        key = KeyColumns(schema=named_key(self._rows.key.names, compared.schema))
        with open_session(limits) as session:
            winners = collapse(session, compared, key, form=form)
        # By their places: the table may have columns that are called like those two.
        rows = changes.select(list(range(changes.num_columns - 2)))
        return Incoming(key=key, rows=rows, winners=winners, rows_given=changes.num_rows)

    def close(self) -> None:
        """Forget the changes."""
        self._incoming = None
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing(rows: ChangeRows) -> pa.Table:
    return rows.schema.append(pa.field(NUMBER, pa.int64())).empty_table()


@dataclass(frozen=True, kw_only=True, slots=True)
class Upserting:
    """How changes are brought into a table."""

    target: Target
    settings: Settings
    clock: Clock
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None
    operation: str = "upsert"

    def run(
        self,
        incoming: Incoming,
        *,
        parameters: Mapping[str, Any] | None = None,
        mark: Mark | None = None,
        watch: Stopwatch | None = None,
    ) -> Upserted:
        """Bring changes in, in one commit."""
        head = self.target.head
        call = Call(
            operation=self.operation,
            settings=self.target.in_force(self.settings),
            watch=watch or Stopwatch(self.clock),
            spark=self.spark,
            dry_run=self.dry_run,
            on_progress=self.on_progress,
            inline_bytes=INLINE_BYTES,
        )
        done = upsert(
            self.target.handle,
            incoming,
            call=call,
            head=head,
            parameters=parameters,
            mark=mark,
        )
        if done.receipt is not None:
            self.target.base_version = max(self.target.base_version, done.receipt.version)
        return done


class Upserts:
    """The upserts of one sink."""

    def __init__(self, rows: ChangeRows, upserting: Upserting) -> None:
        self.rows = rows
        self.upserting = upserting

    def gather(self) -> Gathered:
        """Return a place for the changes of one epoch."""
        return Gathered(self.rows, self.upserting.settings, self.upserting.clock)


_OPERATION, *_ = BOOKKEEPING


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertRequest:
    """What a call asks for beside its rows and settings."""

    key: Sequence[str]
    epoch: int | None = None
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None


def upsert_once(
    table: FormatTable, data: Any, *, settings: Settings, request: UpsertRequest
) -> UpsertReport:
    """Bring the rows of `data` into the table by their keys."""
    return _run(table, as_reader(data), settings, request, operation="upsert")


def delete_keys_once(
    table: FormatTable, data: Any, *, settings: Settings, request: UpsertRequest
) -> UpsertReport:
    """Take the rows that have one of the keys in `data` out of the table."""
    batches = _deletions(as_reader(data), request.key)
    return _run(table, batches, settings, request, operation="delete_keys")


def _deletions(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names = [name for name in batch.schema.names if name in key]
        word = pa.repeat(pa.scalar("D"), batch.num_rows)
        yield batch.select(names).append_column(_OPERATION, word)


def _run(
    table: FormatTable,
    batches: Iterable[pa.RecordBatch],
    settings: Settings,
    request: UpsertRequest,
    *,
    operation: str,
) -> UpsertReport:
    clock = SystemClock()
    watch = Stopwatch(clock)
    options = SinkOptions.of(settings)
    target = Target(table.store, settings, handle=table)
    target.find()
    mark = transaction_of(options, request.epoch)
    if isinstance(request.key, str):
        message = "key is a list of columns, each named once"
        raise ValidationError(message, field="key", value=request.key)
    if _is_in_table(target, mark):
        return _upsert_call_nothing(target, request, watch, operation)
    rows = ChangeRows(target, request.key)
    upserting = Upserting(
        target=target,
        settings=settings,
        clock=clock,
        spark=request.spark,
        dry_run=request.dry_run,
        on_progress=request.on_progress,
        operation=operation,
    )
    with Gathered(rows, settings, clock) as gathered:
        for batch in batches:
            gathered.add(rows.fit(batch))
        incoming = gathered.incoming(is_ordered=False)
        return _bring_in(upserting, incoming, mark, watch)


def _bring_in(
    upserting: Upserting, incoming: Incoming, mark: Transaction | None, watch: Stopwatch
) -> UpsertReport:
    known = None if mark is None else Mark(transaction=mark, doubtful=[])
    try:
        done = upserting.run(incoming, mark=known, watch=watch)
    except AlreadyThere:
        raise collision(upserting.target, mark) from None
    except CommitConflictError as error:
        if error.retryable:
            raise
        raise collision(upserting.target, mark) from error
    if done.receipt is None and mark is not None and not upserting.dry_run:
        leave_mark(upserting, _pending(upserting.target, mark))
    return done.report


def _pending(target: Target, mark: Transaction) -> PendingCommit:
    """Return what leaves a mark, and no rows."""
    token = f"lakehand-{uuid.uuid4().hex}"
    return PendingCommit(
        token=token,
        files=(),
        table_id=target.head.table_id,
        base_version=target.base_version,
        transaction=mark,
    )


def _is_in_table(target: Target, mark: Transaction | None) -> bool:
    found = target.head.transactions
    return mark is not None and found.get(mark.application, -1) >= mark.version


def _upsert_call_nothing(
    target: Target, request: UpsertRequest, watch: Stopwatch, operation: str
) -> UpsertReport:
    """Report that the table has the epoch."""
    snapshot = target.handle.snapshot()
    return UpsertReport(
        operation=operation,
        outcome="nothing_to_do",
        table=target.store.url,
        version=snapshot.version,
        files_before=snapshot.file_count,
        files_after=snapshot.file_count,
        bytes_before=snapshot.total_bytes,
        bytes_after=snapshot.total_bytes,
        duration_ms=watch.total_milliseconds(),
        key=tuple(request.key),
    )
