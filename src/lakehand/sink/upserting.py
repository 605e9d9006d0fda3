"""Upserts: changes are gathered on disk, and get into the table one per key, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from lakehand.engine.runner_contract import usable_cores
from lakehand.errors import CommitConflictError, CommitUnknownError
from lakehand.formats.worker import TaskLimits
from lakehand.observe.clock import Clock, Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.rows.incoming import NUMBER, Incoming, KeyColumns
from lakehand.rows.key_equality import named_key
from lakehand.rows.row_operation import open_session
from lakehand.rows.upsert import AlreadyThere, Mark, Upserted, upsert
from lakehand.runs.operation import Call
from lakehand.sink.changelog import ChangeRows, Form, collapse
from lakehand.sink.committing import RaceLimit, collision, find_pending, require_same_table
from lakehand.sink.staging import Spool, Staging
from lakehand.sink.transaction import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.work import Receipt, StagedFile
    from lakehand.observe import OnProgress
    from lakehand.settings import Settings
    from lakehand.sink.committing import PendingCommit
    from lakehand.sink.sink_options import SinkMetrics
    from lakehand.sink.target import Target

T = TypeVar("T")


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
class RowWriting(Generic[T]):
    """How rows are brought into a table that change rows of it."""

    target: Target
    settings: Settings
    clock: Clock
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None
    operation: str = "upsert"
    #: Since when time is counted; None: since each run begins.
    watch: Stopwatch | None = None

    def run(
        self,
        incoming: T,
        *,
        parameters: Mapping[str, Any] | None = None,
        mark: Mark | None = None,
    ) -> Upserted:
        """Bring rows in, in one commit."""
        call = Call(
            operation=self.operation,
            table=self.target.handle,
            settings=self.target.in_force(self.settings),
            watch=self.watch or Stopwatch(self.clock),
            spark=self.spark,
            dry_run=self.dry_run,
            on_progress=self.on_progress,
        )
        done = self._change(incoming, call, parameters=parameters, mark=mark)
        if done.receipt is not None:
            self.target.base_version = max(self.target.base_version, done.receipt.version)
        return done

    def _change(
        self,
        incoming: T,
        call: Call,
        *,
        parameters: Mapping[str, Any] | None,
        mark: Mark | None,
    ) -> Upserted:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Upserting(RowWriting[Incoming]):
    """How changes are brought into a table by their keys."""

    def _change(
        self,
        incoming: Incoming,
        call: Call,
        *,
        parameters: Mapping[str, Any] | None,
        mark: Mark | None,
    ) -> Upserted:
        return upsert(
            self.target.handle,
            incoming,
            call=call,
            head=self.target.head,
            parameters=parameters,
            mark=mark,
        )


class Upserts:
    """The upserts of one sink."""

    def __init__(self, rows: ChangeRows, upserting: Upserting) -> None:
        self.rows = rows
        self.upserting = upserting

    def gather(self) -> Gathered:
        """Return a place for the changes of one epoch."""
        return Gathered(self.rows, self.upserting.settings, self.upserting.clock)


class RowStaging(Staging, Generic[T]):
    """Rows of one transaction on this machine's disk; files are written with the commit."""

    @property
    def incoming(self) -> T:
        """What is brought into the table."""
        raise NotImplementedError

    @property
    def collapsed(self) -> Collapsed | None:
        """What changes came to, if they were changes of keys."""
        return None


class UpsertStaging(RowStaging[Incoming]):
    """Changes of one transaction, on this machine's disk: nothing is stored before the commit."""

    def __init__(self, target: Target, gathered: Gathered, *, is_ordered: bool = True) -> None:
        """`is_ordered`: as for `Gathered.incoming`."""
        super().__init__(target)
        self.gathered = gathered
        self._is_ordered = is_ordered

    @property
    def holds_changes(self) -> bool:
        """Whether there is anything to commit although there are no files."""
        return self.gathered.count > 0

    @property
    def incoming(self) -> Incoming:
        """One change for each key."""
        return self.gathered.incoming(is_ordered=self._is_ordered)

    @property
    def collapsed(self) -> Collapsed | None:
        """What the changes came to."""
        return self.gathered.collapsed

    def write(self, batch: pa.RecordBatch) -> None:
        """Take changes that fit the table."""
        if batch.num_rows:
            self.gathered.add(batch)
            reached(Step.SINK_WRITING)

    def finish(self) -> tuple[StagedFile, ...]:
        """Make the changes of each key one; files are written with the commit."""
        _ = self.incoming
        reached(Step.SINK_STAGED)
        return ()

    def discard(self) -> None:
        """Forget the changes."""
        self.gathered.close()

    def let_go(self) -> None:
        """Forget the changes: files that a version may refer to were written by their own run."""
        self.gathered.close()


@dataclass(kw_only=True, eq=False)
class UpsertTransaction(WriteTransaction):
    """Rows that change rows of a table, in one commit or not at all."""

    upserting: RowWriting[Any]
    staging: RowStaging[Any]
    #: The result of the upsert; None until this transaction has run it.
    upserted: Upserted | None = field(default=None, init=False)

    @classmethod
    def begin_upsert(
        cls, upserting: RowWriting[Any], staging: RowStaging[Any], *, token: str, **commit: Any
    ) -> Self:
        """Begin an upsert; `commit` are further fields."""
        return cls(
            target=upserting.target,
            upserting=upserting,
            staging=staging,
            token=token,
            limit=RaceLimit.of(upserting.settings),
            clock=upserting.clock,
            **commit,
        )

    def _commit(self, pending: PendingCommit) -> Receipt | None:
        """Bring the changes in, once; None if they change nothing and leave no mark."""
        require_same_table(pending, self.target.head)
        receipt = find_pending(self.target, pending) if pending.is_unknown else None
        if receipt is None:
            receipt = self._bring_in(pending)
        self.staging.let_go()
        return receipt

    def _bring_in(self, pending: PendingCommit) -> Receipt | None:
        mark = None
        if pending.transaction is not None:
            mark = Mark(transaction=pending.transaction, doubtful=[])
        try:
            done = self.upserting.run(
                self.staging.incoming, parameters=pending.parameters, mark=mark
            )
        except CommitUnknownError:
            tokens = [fate.token for fate in mark.doubtful if fate.token] if mark else []
            pending.earlier_tokens = (*pending.earlier_tokens, *tokens)
            pending.is_unknown = True
            raise
        except AlreadyThere:
            return self._found(pending)
        except CommitConflictError as error:
            if error.retryable:
                raise
            raise collision(self.target, pending.transaction) from error
        pending.is_unknown = False
        self.upserted = done
        return done.receipt or self._leave_mark(pending)

    def _found(self, pending: PendingCommit) -> Receipt:
        found = find_pending(self.target, pending)
        if found is None:
            pending.is_unknown = False
            raise collision(self.target, pending.transaction)
        return found

    def _leave_mark(self, pending: PendingCommit) -> Receipt | None:
        """Leave the mark of changes that changed nothing: a retry must find it."""
        if pending.transaction is None or self.upserting.dry_run:
            return None
        return super()._commit(pending)

    def _added_files(self) -> Sequence[StagedFile]:
        return () if self.upserted is None else self.upserted.files

    def count(self, metrics: SinkMetrics) -> None:
        """Add the result of the upsert to the metrics of a sink."""
        done, collapsed = self.upserted, self.staging.collapsed
        if done is None:
            return
        metrics.merge_operations += 1
        metrics.rows_committed += done.report.rows_inserted + done.report.rows_updated
        metrics.bytes_written += sum(file.bytes for file in done.files)
        metrics.files_written += len(done.files)
        metrics.changelog_deletes += done.report.rows_deleted
        if collapsed is not None:
            metrics.collapse_rows_in += collapsed.rows_in
            metrics.collapse_upserts_out += collapsed.upserts_out
            metrics.collapse_deletes_out += collapsed.deletes_out
            metrics.collapse_ms += collapsed.duration_ms
