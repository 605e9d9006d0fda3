"""Files become a version: once, whatever answer is lost or writer comes first."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lakehand.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakehandError,
    ReplanError,
    WriterCollisionError,
)
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.scan import columns_with_bounds
from lakehand.model.table_head import Evolution
from lakehand.model.work import Change, Receipt
from lakehand.planning.restriction import files_outside_predicate
from lakehand.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.table_head import TableHead
    from lakehand.model.work import DataFile, StagedFile, Transaction
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.sink.staging import Staging
    from lakehand.sink.target import Target

__all__ = [
    "Commission",
    "RaceLimit",
    "collision",
    "commit_files",
    "find_commission",
    "replaced_files",
    "require_same_table",
]


def replaced_files(
    table: FormatTable, where: str | None, *, rules: str
) -> tuple[int, tuple[DataFile, ...]]:
    """Return the newest version and those of its files whose rows all fulfil `where`.

    PredicateError if a file may hold rows on both sides of it, ReplanError if the table asks for
    other files and rows by now than `rules` said.
    """
    snapshot = table.snapshot()
    if snapshot.rules != rules:
        raise ReplanError(
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
        verdicts = table.read_verdicts(snapshot, predicate)
        outside = files_outside_predicate(predicate, snapshot.files, verdicts=verdicts)
        chosen = np.flatnonzero(~outside)
    return snapshot.version, table.data_files(snapshot, chosen.tolist())


#: Waits after a lost race: short, because the winner is done already, but never in step with it.
_CONTENTION = RetryPolicy(
    base_delay=timedelta(milliseconds=10), max_delay=timedelta(seconds=1), jitter=1.0
)


@dataclass(kw_only=True, slots=True)
class Commission:
    """What is to be committed, and how far that has come."""

    #: By which it is found again in the table. It stays the same over all tries.
    token: str
    files: tuple[StagedFile, ...]
    #: The table that it is for, for good: files of another that has its place are not its files.
    table_id: str | None
    #: Version that it is made from. It moves on only when it is proved that no try has landed.
    base_version: int
    transaction: Transaction | None = None
    overwrites: bool = False
    where: str | None = None
    #: Who wrote the files, and can write them again; None: nobody here.
    staging: Staging | None = None
    #: Kept in the table's history.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Of earlier commissions for the same transaction, of which nobody knows what became.
    earlier_tokens: tuple[str, ...] = ()
    #: None of the tokens is in this version or below; None: `base_version` as it is at first.
    since_version: int | None = None
    #: Whether the last try may be in the table, or get there yet: it was not proved to be lost.
    is_unknown: bool = False

    def __post_init__(self) -> None:
        if self.since_version is None:
            self.since_version = self.base_version

    @property
    def tokens(self) -> tuple[str, ...]:
        """All under which it may be in the table. An upsert has a new one for each of its runs."""
        return (self.token, *self.earlier_tokens)

    @property
    def looked_up_after(self) -> int:
        """A version that is older than all of them."""
        return self.base_version if self.since_version is None else self.since_version


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceLimit:
    """How often, and for how long, rows are made to fit a table that other writers change."""

    attempts: int
    seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        attempts: int = settings.commit_attempts
        if settings.sources["max_retries"] != "default":
            # Also known as max.commit.retries: whoever sets it means these.
            attempts = settings.max_retries + 1
        return cls(attempts=attempts, seconds=settings.commit_timeout.total_seconds())


def commit_files(
    target: Target, commission: Commission, *, limit: RaceLimit, clock: Clock
) -> Receipt | None:
    """Commit files to `target` and return what was committed; a lost race is tried again.

    None if there is nothing to change: no rows, in the place of none.

    Raises WriterCollisionError, CommitConflictError or ReplanError (nothing was committed) or
    CommitUnknownError (keep every file, and try the same commission again).
    """
    require_same_table(commission, target.head)
    receipt = _find_lost_answer(target, commission) if commission.is_unknown else None
    losses, deadline = 0, clock.monotonic() + limit.seconds
    while receipt is None:
        try:
            evolution = _evolution(target, commission)
            change = _change(target, commission, evolution)
            if not (change.adds or change.removes or change.transaction):
                return None
            receipt = _try(target, commission, change)
            if evolution.native and not receipt.already_committed:
                target.adopt(evolution, receipt.version)
        except (CommitConflictError, ReplanError) as error:
            losses += 1
            is_over = losses >= limit.attempts or clock.monotonic() > deadline
            if is_over or not _fits_what_is_there_now(target, commission, error):
                raise
            clock.sleep(_CONTENTION.delay_seconds(losses, chance=random.random()))  # noqa: S311
    target.base_version = max(target.base_version, receipt.version)
    return receipt


def find_commission(target: Target, commission: Commission) -> Receipt | None:
    """Return the receipt of a try that landed without an answer, or of an earlier commission."""
    for token in commission.tokens:
        version = target.handle.find_commit(token, after=commission.looked_up_after)
        if version is not None:
            return Receipt(version=version, already_committed=True)
    return None


def require_same_table(commission: Commission, head: TableHead) -> None:
    """Raise ReplanError if the table was replaced by another since the commission was made."""
    if commission.table_id != head.table_id:
        raise ReplanError(
            f"{head.table} was deleted and created anew since these rows were written for it",
            table=head.table,
            expected_version=commission.base_version,
            hint="nothing was committed; give these rows up, and write them again for the new"
            " table",
            retryable=False,
        )


def _find_lost_answer(target: Target, commission: Commission) -> Receipt | None:
    """Look for a try that got no answer. If it landed, so did whatever came with its files."""
    receipt = find_commission(target, commission)
    if receipt is None:
        # That another table is there says nothing of a put that may still land in it.
        require_same_table(commission, target.handle.head())
    else:
        target.refresh()
    return receipt


def _try(target: Target, commission: Commission, change: Change) -> Receipt:
    # Until a loss is proved, the table may have it: whatever interrupts us, from here on.
    was_unknown, commission.is_unknown = commission.is_unknown, True
    try:
        receipt = target.handle.commit(change, token=commission.token, checkpoint=False)
    except LakehandError as error:
        # Only who finds versions of others in the way knows that no earlier try lands any more.
        is_lost = isinstance(error, CommitConflictError | ReplanError)
        is_open = was_unknown and not is_lost
        commission.is_unknown = is_open or isinstance(error, CommitUnknownError)
        if isinstance(error, CommitConflictError) and not error.retryable:
            raise collision(target, commission.transaction) from error
        raise
    if not receipt.already_committed:
        return receipt
    found = find_commission(target, commission)
    if found is None:
        commission.is_unknown = False
        raise collision(target, commission.transaction)
    return found


def _evolution(target: Target, commission: Commission) -> Evolution:
    """Return what the table takes on with the files, which are written anew if they must be."""
    if commission.staging is None or not commission.files:
        return Evolution(head=target.head)
    evolution = commission.staging.evolution()
    if evolution is None:
        commission.files = commission.staging.write_again()
        evolution = commission.staging.evolution()
    if evolution is None:
        raise ReplanError(
            f"{target.store.url} changes faster than rows can be written for it",
            table=target.store.url,
            hint="nothing was committed; try again",
        )
    return evolution


def _change(target: Target, commission: Commission, evolution: Evolution) -> Change:
    common: dict[str, Any] = {
        "adds": commission.files,
        "native": evolution.native,
        "parameters": {**commission.parameters, "partitionBy": target.head.partition_columns},
        "transaction": commission.transaction,
        "table_id": commission.table_id,
    }
    if not commission.overwrites:
        base = commission.base_version
        return Change(kind="append", base_version=base, operation="append", **common)
    # From the newest version: what others added since the rows were written is overwritten, too.
    commission.base_version, removes = replaced_files(
        target.handle, commission.where, rules=target.head.rules
    )
    return Change(
        kind="overwrite" if removes else "append",
        base_version=commission.base_version,
        operation="overwrite",
        removes=removes,
        reads_rows=True,
        **common,
    )


def _fits_what_is_there_now(
    target: Target, commission: Commission, error: CommitConflictError | ReplanError
) -> bool:
    """Look at the newest version, and say whether the files are right for it, too."""
    if isinstance(error, ReplanError):
        before = target.head
        target.refresh()
        commission.base_version = target.base_version
        is_same = before.rules == target.head.rules or commission.staging is not None
        return is_same and commission.table_id == target.head.table_id
    return commission.overwrites


def collision(target: Target, mark: Transaction | None) -> WriterCollisionError:
    """Return the error for an epoch of this writer that another process has committed."""
    name, epoch = (mark.application, mark.version) if mark else (None, None)
    return WriterCollisionError(
        f"another process has committed to {target.store.url} under the writer id {name!r} while"
        f" epoch {epoch} was written",
        table=target.store.url,
        writer_id=name,
        epoch=epoch,
        hint="nothing of this epoch was committed by this process; if the other one has the same"
        " source, open the sink again, and it goes on after what is there; else give each writer a"
        " name of its own",
    )
