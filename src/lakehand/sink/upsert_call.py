"""All changes of a call in one version."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CommitConflictError, ValidationError
from lakehand.model.row_reports import UpsertReport
from lakehand.observe.clock import SystemClock
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.rows.upsert import AlreadyThere, Mark
from lakehand.sink.change_rows import ChangeRows
from lakehand.sink.changelog import BOOKKEEPING
from lakehand.sink.committing import Commission, collision
from lakehand.sink.one_call import transaction_of
from lakehand.sink.options import SinkOptions
from lakehand.sink.rows import as_reader
from lakehand.sink.target import Target
from lakehand.sink.upsert import Gathered, Upserting
from lakehand.sink.upsert_epochs import leave_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Transaction
    from lakehand.observe import OnProgress
    from lakehand.rows.incoming import Incoming
    from lakehand.settings import Settings

__all__ = ["UpsertRequest", "delete_keys_once", "upsert_once"]

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
        return _nothing(target, request, watch, operation)
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
        leave_mark(upserting, _commission(upserting.target, mark))
    return done.report


def _commission(target: Target, mark: Transaction) -> Commission:
    """Return what leaves a mark, and no rows."""
    token = f"lakehand-{uuid.uuid4().hex}"
    return Commission(
        token=token,
        files=(),
        table_id=target.head.table_id,
        base_version=target.base_version,
        transaction=mark,
    )


def _is_in_table(target: Target, mark: Transaction | None) -> bool:
    found = target.head.transactions
    return mark is not None and found.get(mark.application, -1) >= mark.version


def _nothing(
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
