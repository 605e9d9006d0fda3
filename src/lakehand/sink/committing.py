"""Commits of staged files: once, even if answers of storage are lost or other writers win."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lakehand import errors
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.optional import commit_without_checkpoint, read_verdicts
from lakehand.formats.scan import columns_with_bounds
from lakehand.model.table_head import Evolution, TableHead
from lakehand.model.work import Change, DataFile, Receipt, StagedFile, Transaction
from lakehand.planning.restriction import files_outside_predicate
from lakehand.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.sink.staging import Staging
    from lakehand.sink.target import Target


def replaced_files(
    table: FormatTable, where: str | None, *, rules: str
) -> tuple[int, tuple[DataFile, ...]]:
    """Return the newest version and those of its files whose rows all fulfil `where`.

    PredicateError if a file may hold rows on both sides of it, ReplanError if the table asks for
    other files and rows by now than `rules` said.
    """
    snapshot = table.snapshot()
    if snapshot.rules != rules:
        raise errors.ReplanError(
            f"version {snapshot.version} of {snapshot.table} asks for other rows or files than"
            " those that were written to overwrite it",
            table=snapshot.table,
            actual_version=snapshot.version,
            hint="nothing was written; try again on the newest version",
        )
    if where is None:
        chosen = np.arange(snapshot.file_count)
    else:
        predicate = parse_predicate(where, snapshot.schema)
        names = columns_with_bounds(predicate, snapshot)
        if names:
            snapshot = table.snapshot(version=snapshot.version, statistics=names)
        verdicts = read_verdicts(table, snapshot, predicate)
        outside = files_outside_predicate(predicate, snapshot.files, verdicts=verdicts)
        chosen = np.flatnonzero(~outside)
    return snapshot.version, table.data_files(snapshot, chosen.tolist())


#: Waits after a lost race: short, because the winner is done, with jitter between writers.
_CONTENTION = RetryPolicy(
    base_delay=timedelta(milliseconds=10), max_delay=timedelta(seconds=1), jitter=1.0
)


@dataclass(kw_only=True, slots=True)
class PendingCommit:
    """Staged files to commit, and what is known of the attempts."""

    #: Identifies the commit in the table; the same over all attempts.
    token: str
    files: tuple[StagedFile, ...]
    staging: Staging
    #: Id of the table that the files were written for. A table created later at the same place
    #: has another id, and does not get them.
    table_id: str | None
    #: Version that it is based on. It moves on only when it is proved that no attempt has landed.
    base_version: int
    #: No version up to this one has any of the tokens.
    since_version: int
    transaction: Transaction | None = None
    overwrites: bool = False
    where: str | None = None
    #: Kept in the table's history.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Of earlier commits with the same transaction, whose outcome is unknown.
    earlier_tokens: tuple[str, ...] = ()
    #: Whether the last attempt may be in the table, or get there yet: it is not proved to be lost.
    is_unknown: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens that the table may have of it. Each run of an upsert has its own."""
        return (self.token, *self.earlier_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceLimit:
    """How often, and for how long, a commit is retried on a table that other writers change."""

    attempts: int
    seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        attempts: int = settings.commit_attempts
        if settings.sources["max_retries"] != "default":
            # Also known as max.commit.retries: a caller who sets it means these attempts.
            attempts = settings.max_retries + 1
        return cls(attempts=attempts, seconds=settings.commit_timeout.total_seconds())


def commit_files(
    target: Target, pending: PendingCommit, *, limit: RaceLimit, clock: Clock
) -> Receipt | None:
    """Commit files to `target` and return what was committed; a lost race is retried.

    None if there is nothing to change: no rows, and none to replace.

    Raises WriterCollisionError, CommitConflictError or ReplanError (nothing was committed) or
    CommitUnknownError (keep every file, and retry the same pending commit).
    """
    require_same_table(pending, target.head)
    receipt = _find_lost_answer(target, pending) if pending.is_unknown else None
    losses, deadline = 0, clock.monotonic() + limit.seconds
    while receipt is None:
        try:
            evolution = _evolution(target, pending)
            change = _change(target, pending, evolution)
            if not (change.adds or change.removes or change.transaction):
                return None
            receipt = _try(target, pending, change)
            if evolution.native and not receipt.already_committed:
                target.adopt(evolution, receipt.version)
        except (errors.CommitConflictError, errors.ReplanError) as error:
            losses += 1
            is_over = losses >= limit.attempts or clock.monotonic() > deadline
            if is_over or not _fits_what_is_there_now(target, pending, error):
                raise
            clock.sleep(_CONTENTION.delay_seconds(losses, chance=random.random()))  # noqa: S311
    target.base_version = max(target.base_version, receipt.version)
    return receipt


def find_pending(target: Target, pending: PendingCommit) -> Receipt | None:
    """Return the receipt of an attempt, or of an earlier commit, that landed without an answer."""
    for token in pending.tokens:
        version = target.handle.find_commit(token, after=pending.since_version)
        if version is not None:
            return Receipt(version=version, already_committed=True)
    return None


def require_same_table(pending: PendingCommit, head: TableHead) -> None:
    """Raise ReplanError if the table was replaced by another since the files were written."""
    if pending.table_id != head.table_id:
        raise errors.ReplanError(
            f"{head.table} was deleted and recreated since these rows were written for it",
            table=head.table,
            expected_version=pending.base_version,
            hint="nothing was committed; discard these rows, and write them again for the new"
            " table",
            retryable=False,
        )


def _find_lost_answer(target: Target, pending: PendingCommit) -> Receipt | None:
    """Look for an attempt that got no answer. If it landed, so did its schema change."""
    receipt = find_pending(target, pending)
    if receipt is None:
        # A put that was not answered may still land in a table that replaced this one.
        require_same_table(pending, target.handle.head())
    else:
        target.refresh()
    return receipt


def _try(target: Target, pending: PendingCommit, change: Change) -> Receipt:
    # From here on the table may have it, even if this is interrupted, until a loss is proved.
    was_unknown, pending.is_unknown = pending.is_unknown, True
    try:
        receipt = commit_without_checkpoint(target.handle, change, token=pending.token)
    except errors.LakehandError as error:
        # Only versions of other writers in its place prove that no earlier attempt can land.
        is_lost = isinstance(error, errors.CommitConflictError | errors.ReplanError)
        is_open = was_unknown and not is_lost
        pending.is_unknown = is_open or isinstance(error, errors.CommitUnknownError)
        if isinstance(error, errors.CommitConflictError) and not error.retryable:
            raise collision(target, pending.transaction) from error
        raise
    if not receipt.already_committed:
        return receipt
    found = find_pending(target, pending)
    if found is None:
        pending.is_unknown = False
        raise collision(target, pending.transaction)
    return found


def _evolution(target: Target, pending: PendingCommit) -> Evolution:
    """Return how the table evolves with the files, which are rewritten where they must be."""
    if not pending.files:
        return Evolution(head=target.head)
    evolution = pending.staging.evolution()
    if evolution is None:
        pending.files = pending.staging.write_again()
        evolution = pending.staging.evolution()
    if evolution is None:
        raise errors.ReplanError(
            f"{target.store.url} changes faster than rows can be written for it",
            table=target.store.url,
            hint="nothing was committed; try again",
        )
    return evolution


def _change(target: Target, pending: PendingCommit, evolution: Evolution) -> Change:
    common: dict[str, Any] = {
        "adds": pending.files,
        "native": evolution.native,
        "parameters": {**pending.parameters, "partitionBy": target.head.partition_columns},
        "transaction": pending.transaction,
        "table_id": pending.table_id,
    }
    if not pending.overwrites:
        base = pending.base_version
        return Change(kind="append", base_version=base, operation="append", **common)
    # From the newest version: what others added since the rows were written is overwritten, too.
    pending.base_version, removes = replaced_files(
        target.handle, pending.where, rules=target.head.rules
    )
    return Change(
        kind="overwrite" if removes else "append",
        base_version=pending.base_version,
        operation="overwrite",
        removes=removes,
        reads_rows=True,
        **common,
    )


def _fits_what_is_there_now(
    target: Target, pending: PendingCommit, error: errors.CommitConflictError | errors.ReplanError
) -> bool:
    """Read the newest version, and say whether the files fit it too."""
    if isinstance(error, errors.ReplanError):
        before = target.head
        target.refresh()
        pending.base_version = target.base_version
        is_same = before.rules == target.head.rules or pending.staging.can_write_again
        return is_same and pending.table_id == target.head.table_id
    return pending.overwrites


def collision(target: Target, mark: Transaction | None) -> errors.WriterCollisionError:
    """Return the error for an epoch of this writer that another process has committed."""
    name, epoch = (mark.application, mark.version) if mark else (None, None)
    return errors.WriterCollisionError(
        f"another process has committed to {target.store.url} under the writer id {name!r} while"
        f" epoch {epoch} was written",
        table=target.store.url,
        writer_id=name,
        epoch=epoch,
        hint="nothing of this epoch was committed by this process; if the other one has the same"
        " source, open the sink again, and it continues after the newest epoch in the table; else"
        " give each writer a unique name",
    )
