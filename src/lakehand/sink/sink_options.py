"""Options of a sink, its metrics, and what its parts share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from lakehand.errors import RefusedError, ValidationError
from lakehand.model.work import require_writer_name
from lakehand.sink.transaction import WriteTransaction
from lakehand.sink.upserting import UpsertStaging, UpsertTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.model.work import Receipt, Transaction
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.sink.background import BackgroundMaintenance, WriterThread
    from lakehand.sink.staging import Buffer
    from lakehand.sink.target import Target
    from lakehand.sink.upserting import Upserts

#: How many full buffers may wait to be written.
_PATIENCE = 4
_RETENTION_FLOOR = timedelta(hours=168)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """The settings of one sink."""

    #: Name under which the table records epochs of this writer; None: it does not.
    writer_id: str | None
    #: Name under which another process commits what this one writes; None: it commits itself.
    pipeline: str | None
    #: Whether epochs are committed once however often they are written; else rows at least once.
    exactly_once: bool
    #: Whether an epoch replaces the rows of the table.
    overwrites: bool
    #: Columns by which changes are brought in; none: rows are appended, or overwrite.
    key: tuple[str, ...]
    #: Condition on partition columns: which part of the table is overwritten; None: all of it.
    where: str | None
    #: Columns to partition a new table by; if any are given, one that exists must have the same.
    partition_by: tuple[str, ...]
    #: Rows, bytes and age that make a flush due.
    max_buffer_records: int
    max_buffer_bytes: int
    max_buffer_age_seconds: float
    #: How long a call waits for storage.
    timeout_seconds: float
    #: Whether a call waits, too, while too many rows do.
    waits_under_pressure: bool
    #: What to do about missing epochs: warn, refuse or allow.
    epoch_gaps: str

    @classmethod
    def of(
        cls, settings: Settings, *, where: str | None = None, pipeline: str | None = None
    ) -> Self:
        """Return what `settings` ask for; ValidationError or RefusedError if it cannot be."""
        _refuse_what_is_not_there(settings)
        _refuse_short_retention(settings)
        _check_evolution(settings, pipeline)
        writer_id, overwrites = _writer_id(settings), settings.write_mode == "overwrite"
        delivery = settings.delivery or ("exactly-once" if writer_id else "at-least-once")
        if delivery == "exactly-once" and writer_id is None:
            raise ValidationError(
                "exactly-once requires writer_id, under which the table records epochs",
                field="writer_id",
                hint="give each writer a unique name, the same after every restart",
            )
        key = _key(settings, pipeline)
        if where is not None and not overwrites:
            message = "where says what is overwritten, and write_mode is append"
            raise ValidationError(message, field="where", value=where)
        if pipeline is not None:
            require_writer_name(pipeline, field="pipeline")
        if pipeline is not None and (delivery != "exactly-once" or overwrites):
            message = "writers of a pipeline append exactly once: give a writer_id, and append"
            raise ValidationError(message, field="pipeline", value=pipeline)
        return cls(
            writer_id=writer_id,
            pipeline=pipeline,
            exactly_once=delivery == "exactly-once",
            overwrites=overwrites,
            key=key,
            where=where,
            partition_by=settings.partition_by,
            max_buffer_records=settings.max_buffer_records,
            max_buffer_bytes=settings.target_file_bytes,
            max_buffer_age_seconds=settings.max_buffer_age.total_seconds(),
            timeout_seconds=settings.write_timeout.total_seconds(),
            waits_under_pressure=settings.on_backpressure == "wait",
            epoch_gaps=settings.epoch_gaps,
        )

    @property
    def max_waiting_records(self) -> int:
        return _PATIENCE * self.max_buffer_records

    @property
    def max_waiting_bytes(self) -> int:
        return _PATIENCE * self.max_buffer_bytes


def _writer_id(settings: Settings) -> str | None:
    name: str | None = settings.writer_id
    return None if name is None else require_writer_name(name)


def _key(settings: Settings, pipeline: str | None) -> tuple[str, ...]:
    key: tuple[str, ...] = settings.merge_key
    if settings.write_mode not in {"upsert", "merge"}:
        if key:
            message = f"merge_key is for upserts, and write_mode is {settings.write_mode}"
            raise ValidationError(message, field="merge_key", value=key)
        return ()
    if not key:
        message = "an upsert needs the columns that rows are found by"
        raise ValidationError(message, field="merge_key", hint="set merge_key")
    if pipeline is not None:
        message = "writers of a pipeline can only append, not upsert"
        raise ValidationError(message, field="pipeline", value=pipeline)
    if settings.schema_evolution:
        instead = "add the columns with a sink that appends first"
        raise _not_there("schema_evolution", "true in an upsert", instead)
    return key


def _refuse_what_is_not_there(settings: Settings) -> None:
    if settings.catalog_type != "none":
        raise _not_there("catalog_type", settings.catalog_type, "a table is a path or a URL")


def _check_evolution(settings: Settings, pipeline: str | None) -> None:
    if settings.type_widening and not settings.schema_evolution:
        message = "type_widening lets types change, and schema_evolution, which allows any change,"
        raise ValidationError(f"{message} is off", field="type_widening", value=True)
    if settings.schema_evolution and settings.write_mode in {"upsert", "merge"}:
        hint = "append a row with the new columns first, or add them with another engine"
        raise _not_there("schema_evolution", "true for upserts", hint)
    if settings.schema_evolution and pipeline is not None:
        hint = "add the columns with another sink first"
        raise _not_there("schema_evolution", "true in a pipeline", hint)


def _refuse_short_retention(settings: Settings) -> None:
    """Say at once what a vacuum would say when it is due, days later."""
    retention = settings.retention
    if retention is None or retention >= _RETENTION_FLOOR or settings.allow_short_retention:
        return
    raise ValidationError(
        f"a retention of {retention} is shorter than readers may count on",
        field="retention",
        value=str(retention),
        hint=f"keep files for {_RETENTION_FLOOR}, or set allow_short_retention",
    )


def _not_there(setting: str, value: str, instead: str) -> RefusedError:
    return RefusedError(
        f"{setting} cannot be {value}: that is not supported yet",
        operation="append",
        feature=f"{setting}={value}",
        hint=instead,
    )


@dataclass(kw_only=True, slots=True)
class SinkMetrics:
    """What a sink has done since it was opened."""

    #: Rows in committed files.
    rows_committed: int = 0
    #: Size of committed files.
    bytes_written: int = 0
    #: Committed files.
    files_written: int = 0
    #: Commits that landed.
    commits: int = 0
    #: Attempts of commits beyond the first: clean rebases over other writers.
    retries: int = 0
    #: Epochs that were in the table already.
    epochs_skipped: int = 0
    epochs_rolled_back: int = 0
    #: Epochs that were missing before one that began.
    epoch_gaps: int = 0
    #: Pieces of work that failed.
    errors: int = 0
    #: Time of the last commit, and the longest.
    commit_ms: float = 0.0
    slowest_commit_ms: float = 0.0
    #: Checkpoints that were written after commits.
    checkpoints: int = 0
    #: Compactions that committed something, and files that they replaced.
    compactions: int = 0
    files_compacted: int = 0
    #: Size of the files that compactions replaced, and of those that replaced them; time for it.
    bytes_before_compaction: int = 0
    bytes_after_compaction: int = 0
    compaction_ms: float = 0.0
    vacuums: int = 0
    #: Files that vacuum deleted.
    files_vacuumed: int = 0
    #: Files that sinks before this one left when they died, and that this one deleted.
    leftovers_deleted: int = 0
    #: Background maintenance steps that failed; they fail no commit.
    upkeep_errors: int = 0
    #: Epochs that were upserted, and rows that they deleted without a replacement.
    merge_operations: int = 0
    changelog_deletes: int = 0
    #: Changes before those of one key became one, and what they became; time for it.
    collapse_rows_in: int = 0
    collapse_upserts_out: int = 0
    collapse_deletes_out: int = 0
    collapse_ms: float = 0.0
    #: Newest version that this sink made; None if none.
    last_version: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkContext:
    """The table, the thread and the rules of one sink."""

    target: Target
    options: SinkOptions
    settings: Settings
    writer_thread: WriterThread
    buffer: Buffer
    background: BackgroundMaintenance
    clock: Clock
    metrics: SinkMetrics
    #: How changes are brought in by their keys; None: rows are appended, or overwrite.
    upserts: Upserts | None = None
    #: Tells this sink from every other one, also under the same writer id.
    session: str = field(default_factory=lambda: uuid.uuid4().hex)

    def put(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Take in rows that fit the table, all or none; BackpressureError if too many wait."""
        wait = self.options.timeout_seconds if self.options.waits_under_pressure else 0
        self.buffer.put(batches, wait_seconds=wait)

    def is_flush_due(self) -> bool:
        """Whether enough rows wait to be written."""
        rows, size = self.buffer.rows, self.buffer.bytes
        return rows >= self.options.max_buffer_records or size >= self.options.max_buffer_bytes

    def begin(
        self,
        label: str,
        *,
        mark: Transaction | None = None,
        doubtful: Sequence[WriteTransaction] = (),
    ) -> WriteTransaction:
        """Begin a write; no other files, and no other commit, have its name."""
        token = f"lakehand-{self.session}-{label}-{uuid.uuid4().hex[:12]}"
        parameters = {"epoch": mark.version, "writer": mark.application} if mark else {}
        if self.upserts is not None:
            return UpsertTransaction.begin_upsert(
                self.upserts.upserting,
                UpsertStaging(self.target, self.upserts.gather()),
                token=token,
                mark=mark,
                parameters=parameters,
                doubtful=doubtful,
            )
        return WriteTransaction.begin(
            self.target,
            self.settings,
            token=token,
            clock=self.clock,
            mark=mark,
            overwrites=self.options.overwrites,
            where=self.options.where,
            parameters=parameters,
            doubtful=doubtful,
        )

    def commit(self, transaction: WriteTransaction) -> Receipt | None:
        """Commit, and count what was committed; None if there was nothing to change."""
        started = self.clock.monotonic()
        receipt = transaction.commit()
        transaction.count(self.metrics)
        if receipt is None:
            return None
        self.background.on_commit(receipt.version)
        self._count(receipt, (self.clock.monotonic() - started) * 1000)
        return receipt

    def _count(self, receipt: Receipt, commit_ms: float) -> None:
        metrics = self.metrics
        metrics.commits += 1
        metrics.retries += receipt.attempts - 1
        metrics.commit_ms = commit_ms
        metrics.slowest_commit_ms = max(commit_ms, metrics.slowest_commit_ms)
        metrics.last_version = receipt.version

    def snapshot_of_metrics(self) -> SinkMetrics:
        return replace(self.metrics)
