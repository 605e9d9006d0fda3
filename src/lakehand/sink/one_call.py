"""Writes of one call: all rows in one version, appended, overwriting, or by their keys."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import ValidationError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsRowChanges, checkpoint_if_due
from lakehand.model.reports import UpsertReport, WriteReport
from lakehand.model.work import StagedFile, Transaction
from lakehand.observe import OnProgress, reported
from lakehand.observe.clock import Clock, Stopwatch, SystemClock
from lakehand.schema.arrow_input import as_reader
from lakehand.sink.changelog import BOOKKEEPING, ChangeRows
from lakehand.sink.sink_options import SinkOptions
from lakehand.sink.target import Target
from lakehand.sink.transaction import WriteTransaction
from lakehand.sink.upserting import Gathered, Upserting, UpsertStaging, UpsertTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.settings import Settings

# Append and overwrite


@reported
def write_once(
    table: FormatTable,
    data: Any,
    *,
    settings: Settings,
    where: str | None = None,
    epoch: int | None = None,
    clock: Clock | None = None,
) -> WriteReport:
    """Write the rows of `data` into files as they come, and commit them.

    With a writer id and an `epoch` the rows are written once, however often this is called.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    options = SinkOptions.of(settings, where=where)
    target = Target(
        table.store,
        settings,
        partition_by=options.partition_by,
        where=where,
        handle=table,
        evolves=True,
    )
    target.find()
    transaction = WriteTransaction.begin(
        target,
        settings,
        token=_new_token(),
        clock=clock,
        mark=_mark(options, epoch),
        overwrites=options.overwrites,
        where=where,
        parameters={"where": where},
    )
    written = _Written() if transaction.is_in_table else _write(transaction, data)
    return _report(transaction, written, duration_ms=(clock.monotonic() - started) * 1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Written:
    files: tuple[StagedFile, ...] = ()
    write_ms: float = 0.0
    commit_ms: float = 0.0


def _write(transaction: WriteTransaction, data: Any) -> _Written:
    target, clock = transaction.target, transaction.clock
    started = clock.monotonic()
    with transaction:
        for batch in as_reader(data):
            transaction.write(target.fit(batch))
        transaction.stage()
        staged = clock.monotonic()
        receipt = transaction.commit()
    if receipt is not None:
        checkpoint_if_due(target.handle, receipt.version)
    return _Written(
        files=transaction.files,
        write_ms=(staged - started) * 1000,
        commit_ms=(clock.monotonic() - staged) * 1000,
    )


def _report(transaction: WriteTransaction, written: _Written, *, duration_ms: float) -> WriteReport:
    receipt, target, files = transaction.receipt, transaction.target, written.files
    return WriteReport(
        operation="overwrite" if transaction.overwrites else "append",
        outcome="committed" if receipt is not None else "nothing_to_do",
        table=target.store.url,
        version=receipt.version if receipt is not None else target.base_version,
        files_removed=receipt.files_removed if receipt is not None else 0,
        files_added=len(files),
        rows_written=sum(file.rows for file in files),
        bytes_written=sum(file.bytes for file in files),
        duration_ms=duration_ms,
        write_ms=written.write_ms,
        commit_ms=written.commit_ms,
        retries=receipt.attempts - 1 if receipt is not None else 0,
    )


def _new_token() -> str:
    return f"lakehand-{uuid.uuid4().hex}"


def _mark(options: SinkOptions, epoch: int | None) -> Transaction | None:
    """Return what a call records in the table so that it happens once; None: nothing."""
    if epoch is None:
        return None
    if options.writer_id is None:
        message = "epoch requires writer_id"
        raise ValidationError(message, field="writer_id")
    return Transaction(application=options.writer_id, version=epoch)


# Upsert and deletion by key


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertRequest:
    """Options of a call that are not settings."""

    key: Sequence[str]
    epoch: int | None = None
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None


@reported
def upsert_once(
    table: FormatTable, data: Any, *, settings: Settings, request: UpsertRequest
) -> UpsertReport:
    """Bring the rows of `data` into the table by their keys."""
    return _upsert(table, as_reader(data), settings, request, operation="upsert")


@reported
def delete_keys_once(
    table: FormatTable, data: Any, *, settings: Settings, request: UpsertRequest
) -> UpsertReport:
    """Delete the rows of the table that have one of the keys in `data`."""
    batches = _deletions(as_reader(data), request.key)
    return _upsert(table, batches, settings, request, operation="delete_keys")


def _deletions(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    operation, *_ = BOOKKEEPING
    for batch in batches:
        names = [name for name in batch.schema.names if name in key]
        word = pa.repeat(pa.scalar("D"), batch.num_rows)
        yield batch.select(names).append_column(operation, word)


def _upsert(
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
    table = require_support(table, SupportsRowChanges, operation=operation)
    target = Target(table.store, settings, handle=table)
    target.find()
    mark = _mark(options, request.epoch)
    if isinstance(request.key, str):
        message = "key is a list of columns, each named once"
        raise ValidationError(message, field="key", value=request.key)
    if mark is not None and mark.is_in(target.head.transactions):
        return _nothing_to_upsert(target, request, watch, operation)
    upserting = Upserting(
        target=target,
        settings=settings,
        clock=clock,
        spark=request.spark,
        dry_run=request.dry_run,
        on_progress=request.on_progress,
        operation=operation,
        watch=watch,
    )
    rows = ChangeRows(target, request.key)
    staging = UpsertStaging(target, Gathered(rows, settings, clock), is_ordered=False)
    with UpsertTransaction.begin_upsert(
        upserting, staging, token=_new_token(), mark=mark
    ) as transaction:
        for batch in batches:
            transaction.write(rows.fit(batch))
        transaction.commit()
    assert transaction.upserted is not None  # noqa: S101  the token is new, so it was not found
    return transaction.upserted.report


def _nothing_to_upsert(
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
