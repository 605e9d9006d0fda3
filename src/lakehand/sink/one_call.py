"""Writes of one call: all rows in one version, appended, overwriting, or changing others."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
from lakehand.sink.upserting import (
    Gathered,
    RowStaging,
    RowWriting,
    Upserting,
    UpsertStaging,
    UpsertTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.model.reports import MergeReport
    from lakehand.settings import Settings

T = TypeVar("T")

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
        token=new_token(),
        clock=clock,
        mark=mark_of(options, epoch),
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


def new_token() -> str:
    """Return what identifies one commit."""
    return f"lakehand-{uuid.uuid4().hex}"


def mark_of(options: SinkOptions, epoch: int | None) -> Transaction | None:
    """Return what a call records in the table so that it happens once; None: nothing."""
    if epoch is None:
        return None
    if options.writer_id is None:
        message = "epoch requires writer_id"
        raise ValidationError(message, field="writer_id")
    return Transaction(application=options.writer_id, version=epoch)


# Changes of rows: upsert, deletion by key, merge


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChangeCall:
    """Options of a call that are not settings."""

    epoch: int | None = None
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None

    def begin(self, table: FormatTable, settings: Settings, *, operation: str) -> BegunCall:
        """Find the table."""
        clock = SystemClock()
        watch = Stopwatch(clock)
        options = SinkOptions.of(settings)
        table = require_support(table, SupportsRowChanges, operation=operation)
        target = Target(table.store, settings, handle=table)
        target.find()
        mark = mark_of(options, self.epoch)
        return BegunCall(
            call=self, target=target, settings=settings, mark=mark, clock=clock, watch=watch
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BegunCall:
    """A call whose table was found."""

    call: RowChangeCall
    target: Target
    settings: Settings
    #: What its commit records, so that it happens once.
    mark: Transaction | None
    clock: Clock
    watch: Stopwatch

    @property
    def is_in_table(self) -> bool:
        """Whether the table has the epoch."""
        return self.mark is not None and self.mark.is_in(self.target.head.transactions)

    @property
    def writing(self) -> dict[str, Any]:
        """Arguments of `RowWriting`."""
        return {
            "target": self.target,
            "settings": self.settings,
            "clock": self.clock,
            "spark": self.call.spark,
            "dry_run": self.call.dry_run,
            "on_progress": self.call.on_progress,
            "watch": self.watch,
        }

    def unchanged(self) -> dict[str, Any]:
        """Return what a report says of a table that has the rows already."""
        snapshot = self.target.handle.snapshot()
        return {
            "outcome": "nothing_to_do",
            "table": self.target.store.url,
            "version": snapshot.version,
            "files_before": snapshot.file_count,
            "files_after": snapshot.file_count,
            "bytes_before": snapshot.total_bytes,
            "bytes_after": snapshot.total_bytes,
            "duration_ms": self.watch.total_milliseconds(),
        }

    def commit(
        self, writing: RowWriting[T], staging: RowStaging[T], batches: Iterable[pa.RecordBatch]
    ) -> UpsertReport | MergeReport:
        """Bring all rows into the table in one commit, and return its report."""
        with UpsertTransaction.begin_upsert(
            writing, staging, token=new_token(), mark=self.mark
        ) as transaction:
            for batch in batches:
                transaction.write(batch)
            transaction.commit()
        assert transaction.upserted is not None  # noqa: S101  the token is new, so it was not found
        return transaction.upserted.report


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertCall(RowChangeCall):
    """Options of an upsert or a deletion by key that are not settings."""

    key: Sequence[str]


@reported
def upsert_once(
    table: FormatTable, data: Any, *, settings: Settings, call: UpsertCall
) -> UpsertReport:
    """Bring the rows of `data` into the table by their keys."""
    return _upsert(table, as_reader(data), settings, call, operation="upsert")


@reported
def delete_keys_once(
    table: FormatTable, data: Any, *, settings: Settings, call: UpsertCall
) -> UpsertReport:
    """Delete the rows of the table that have one of the keys in `data`."""
    batches = _deletions(as_reader(data), call.key)
    return _upsert(table, batches, settings, call, operation="delete_keys")


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
    call: UpsertCall,
    *,
    operation: str,
) -> UpsertReport:
    begun = call.begin(table, settings, operation=operation)
    if isinstance(call.key, str):
        message = "key is a list of columns, each named once"
        raise ValidationError(message, field="key", value=call.key)
    if begun.is_in_table:
        return UpsertReport(**begun.unchanged(), operation=operation, key=tuple(call.key))
    upserting = Upserting(**begun.writing, operation=operation)
    rows = ChangeRows(begun.target, call.key)
    staging = UpsertStaging(begun.target, Gathered(rows, settings, begun.clock), is_ordered=False)
    report = begun.commit(upserting, staging, (rows.fit(batch) for batch in batches))
    assert isinstance(report, UpsertReport)  # noqa: S101  it is what an upsert reports
    return report
