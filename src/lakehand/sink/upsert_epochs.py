"""Epochs of a sink that upserts: nothing reaches storage before the commit of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import CommitConflictError, CommitUnknownError
from lakehand.observe.steps import Step, reached
from lakehand.rows.upsert import AlreadyThere, Mark
from lakehand.sink.committing import (
    PendingCommit,
    RaceLimit,
    collision,
    commit_files,
    find_pending,
    require_same_table,
)
from lakehand.sink.staging import Staging

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehand.formats.worker import WriteSpec
    from lakehand.model.work import Receipt, StagedFile
    from lakehand.rows.upsert import Upserted
    from lakehand.sink.options import SinkMetrics
    from lakehand.sink.target import Target
    from lakehand.sink.upsert import Gathered, Upserting

__all__ = ["UpsertStaging", "commit_changes", "leave_mark"]


class UpsertStaging(Staging):
    """Changes of one epoch, on this machine's disk."""

    def __init__(self, target: Target, spec: WriteSpec, gathered: Gathered) -> None:
        super().__init__(target, spec, stem="")
        self.gathered = gathered

    @property
    def holds_changes(self) -> bool:
        """Whether there is anything to commit although there are no files."""
        return self.gathered.count > 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take changes that fit the table."""
        if batch.num_rows:
            self.gathered.add(batch)
            reached(Step.SINK_WRITING)

    def finish(self) -> tuple[StagedFile, ...]:
        """Make the changes of each key one; files are written with the commit."""
        self.gathered.incoming(is_ordered=True)
        reached(Step.SINK_STAGED)
        return ()

    def discard(self) -> None:
        """Forget the changes."""
        self.gathered.close()

    def let_go(self) -> None:
        """Forget the changes: what a commit may have named was written by its own run."""
        self.gathered.close()


def commit_changes(
    upserting: Upserting, pending: PendingCommit, staging: UpsertStaging, metrics: SinkMetrics
) -> Receipt | None:
    """Bring the changes of an epoch in, once; None if they change nothing and leave no mark.

    Raises as `commit_files` does.
    """
    target, gathered = upserting.target, staging.gathered
    require_same_table(pending, target.head)
    receipt = find_pending(target, pending) if pending.is_unknown else None
    if receipt is not None:
        gathered.close()
        return receipt
    mark = None
    if pending.transaction is not None:
        mark = Mark(transaction=pending.transaction, doubtful=[])
    try:
        incoming = gathered.incoming(is_ordered=True)
        done = upserting.run(incoming, parameters=pending.parameters, mark=mark)
    except CommitUnknownError:
        tokens = [fate.token for fate in mark.doubtful if fate.token] if mark else []
        pending.earlier_tokens = (*pending.earlier_tokens, *tokens)
        pending.is_unknown = True
        raise
    except AlreadyThere:
        found = _found(target, pending)
        gathered.close()
        return found
    except CommitConflictError as error:
        if error.retryable:
            raise
        raise collision(target, pending.transaction) from error
    pending.is_unknown = False
    _count(metrics, gathered, done)
    receipt = done.receipt or leave_mark(upserting, pending)
    gathered.close()
    return receipt


def _found(target: Target, pending: PendingCommit) -> Receipt:
    found = find_pending(target, pending)
    if found is None:
        pending.is_unknown = False
        raise collision(target, pending.transaction)
    return found


def leave_mark(upserting: Upserting, pending: PendingCommit) -> Receipt | None:
    """Leave the mark of an epoch that changed nothing: who writes it again must find it."""
    if pending.transaction is None:
        return None
    return commit_files(
        upserting.target,
        pending,
        limit=RaceLimit.of(upserting.settings),
        clock=upserting.clock,
    )


def _count(metrics: SinkMetrics, gathered: Gathered, done: Upserted) -> None:
    """Count what became of the changes."""
    metrics.merge_operations += 1
    metrics.rows_committed += done.report.rows_inserted + done.report.rows_updated
    metrics.bytes_written += sum(file.bytes for file in done.files)
    metrics.files_written += len(done.files)
    metrics.changelog_deletes += done.report.rows_deleted
    collapsed = gathered.collapsed
    if collapsed is not None:
        metrics.collapse_rows_in += collapsed.rows_in
        metrics.collapse_upserts_out += collapsed.upserts_out
        metrics.collapse_deletes_out += collapsed.deletes_out
        metrics.collapse_ms += collapsed.duration_ms
