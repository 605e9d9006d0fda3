"""What the parts of one sink share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakehand.observe.steps import Step, reached
from lakehand.sink.committing import Commission, commit_files
from lakehand.sink.staging import Staging
from lakehand.sink.upsert_epochs import UpsertStaging, commit_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.formats.worker import WriteSpec
    from lakehand.model.work import Receipt, StagedFile
    from lakehand.observe.clock import Clock
    from lakehand.sink.background import Background
    from lakehand.sink.buffer import Buffer
    from lakehand.sink.options import SinkOptions
    from lakehand.sink.target import Target
    from lakehand.sink.upkeep import Upkeep
    from lakehand.sink.upsert import Upserts
    from lakehand.storage.retry import RetryPolicy

__all__ = ["SinkContext", "SinkMetrics"]


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
    vacuums: int = 0
    #: Files that vacuum deleted.
    files_vacuumed: int = 0
    #: Files that sinks before this one left when they died, and that this one deleted.
    leftovers_deleted: int = 0
    #: Pieces of upkeep that failed; no commit failed for them.
    upkeep_errors: int = 0
    #: Epochs that were brought in by keys, and rows that went thereby and that nothing replaced.
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
    spec: WriteSpec
    background: Background
    buffer: Buffer
    upkeep: Upkeep
    clock: Clock
    retry: RetryPolicy
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
        """Whether so many rows wait that they should be written."""
        rows, size = self.buffer.rows, self.buffer.bytes
        return rows >= self.options.max_buffer_records or size >= self.options.max_buffer_bytes

    def new_staging(self, label: str) -> Staging:
        """Return files to write rows into; no other ones are ever named so."""
        if self.upserts is not None:
            return UpsertStaging(self.target, self.spec, self.upserts.gather())
        stem = f"lakehand-{self.session}-{label}-{uuid.uuid4().hex[:12]}"
        return Staging(self.target, self.spec, stem=stem)

    def new_commission(
        self, label: str, files: tuple[StagedFile, ...], staging: Staging
    ) -> Commission:
        return Commission(
            token=f"lakehand-{self.session}-{label}-{uuid.uuid4().hex[:12]}",
            files=files,
            staging=staging,
            table_id=staging.table_id,
            base_version=self.target.base_version,
            overwrites=self.options.overwrites,
            where=self.options.where,
        )

    def commit(self, commission: Commission) -> Receipt | None:
        """Commit, and count what was committed; None if there was nothing to change."""
        started = self.clock.monotonic()
        receipt = self._commit(commission)
        if receipt is None:
            return None
        reached(Step.SINK_COMMITTED)
        self.upkeep.on_commit(receipt.version)
        self._count(commission, receipt, (self.clock.monotonic() - started) * 1000)
        return receipt

    def _commit(self, commission: Commission) -> Receipt | None:
        staging = commission.staging
        if self.upserts is not None and isinstance(staging, UpsertStaging):
            return commit_changes(self.upserts.upserting, commission, staging, self.metrics)
        return commit_files(self.target, commission, retry=self.retry, clock=self.clock)

    def _count(self, commission: Commission, receipt: Receipt, commit_ms: float) -> None:
        metrics = self.metrics
        metrics.commits += 1
        metrics.retries += receipt.attempts - 1
        metrics.rows_committed += sum(file.rows for file in commission.files)
        metrics.bytes_written += sum(file.bytes for file in commission.files)
        metrics.files_written += len(commission.files)
        metrics.commit_ms = commit_ms
        metrics.slowest_commit_ms = max(commit_ms, metrics.slowest_commit_ms)
        metrics.last_version = receipt.version

    def snapshot_of_metrics(self) -> SinkMetrics:
        return replace(self.metrics)
