"""One write into a table, from its first row to a known outcome. Every writer goes through it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.observe.steps import Step, reached
from lakehand.sink.committing import PendingCommit, RaceLimit, commit_files, find_pending
from lakehand.sink.descriptor import Descriptor, rules_of
from lakehand.sink.staging import FileStaging, Staging, write_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from lakehand.model.work import Receipt, StagedFile, Transaction
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.sink.sink_options import SinkMetrics
    from lakehand.sink.target import Target


@dataclass(kw_only=True, eq=False)
class WriteTransaction:
    """Rows that get into a table in one commit, or not at all.

        write, write, ... -> stage -> commit     all rows are in one version
                                   -> discard    none is, and no file is left

    After CommitUnknownError the table may have the rows: `commit` again finds out, and commits at
    most once; `resolve` only looks. A `with` block that ends in an error discards what was written,
    except for files that a version may refer to.
    """

    target: Target
    staging: Staging
    #: Identifies the commit in the table; the same over all attempts.
    token: str
    limit: RaceLimit
    clock: Clock
    #: What the commit records in the table so that it happens once; None: nothing.
    mark: Transaction | None = None
    overwrites: bool = False
    where: str | None = None
    #: Kept in the table's history.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Version that the commit is based on; None: the newest one known when it is first tried.
    base_version: int | None = None
    #: Earlier transactions with the same mark, whose outcome is unknown.
    doubtful: Sequence[WriteTransaction] = ()
    #: What was committed; None: nothing yet.
    receipt: Receipt | None = field(default=None, init=False)
    _staged: tuple[StagedFile, ...] | None = field(default=None, init=False)
    _pending: PendingCommit | None = field(default=None, init=False)

    @classmethod
    def begin(
        cls, target: Target, settings: Settings, *, token: str, clock: Clock, **commit: Any
    ) -> Self:
        """Begin a write of files; `commit` are further fields."""
        spec = write_spec(target.in_force(settings))
        return cls(
            target=target,
            staging=FileStaging(target, spec, stem=token),
            token=token,
            limit=RaceLimit.of(settings),
            clock=clock,
            **commit,
        )

    @property
    def is_in_table(self) -> bool:
        """Whether the table, as its writer knows it, has the mark."""
        return self.mark is not None and self.mark.is_in(self.target.head.transactions)

    @property
    def is_unknown(self) -> bool:
        """Whether a commit was tried that may be in the table, or get there yet."""
        return self._pending is not None and self._pending.is_unknown

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """All files, once they are staged."""
        return self.stage() if self._pending is None else self._pending.files

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that fit the table."""
        self.staging.write(batch)

    def stage(self) -> tuple[StagedFile, ...]:
        """Write what is left, and return the files, which no version refers to yet."""
        if self._staged is None:
            self._staged = self.staging.finish()
        return self._staged

    def describe(self, *, writer: str, epoch: int) -> Descriptor:
        """Stage the rows, and return what another process needs to commit them."""
        files, head = self.stage(), self.target.head
        return Descriptor(
            writer=writer,
            epoch=epoch,
            table_id=head.table_id,
            rules=rules_of(head),
            base_version=self.target.base_version,
            files=files,
        )

    def commit(self) -> Receipt | None:
        """Commit the rows; None if there is nothing to change.

        Raises WriterCollisionError, CommitConflictError or ReplanError (nothing was committed) or
        CommitUnknownError (call it again).
        """
        receipt = self._commit(self.prepare())
        if receipt is not None:
            reached(Step.SINK_COMMITTED)
            self.receipt = receipt
            self.target.notify(receipt.version, self._added_files())
        return receipt

    def _added_files(self) -> Sequence[StagedFile]:
        return self.files

    def prepare(self) -> PendingCommit:
        """Stage the rows, and return the commit to be made: the same one for all attempts."""
        if self._pending is None:
            files = self.stage()
            earlier = [one.prepare() for one in self.doubtful]
            base = self.target.base_version if self.base_version is None else self.base_version
            self._pending = PendingCommit(
                token=self.token,
                files=files,
                staging=self.staging,
                table_id=self.staging.table_id,
                base_version=base,
                transaction=self.mark,
                overwrites=self.overwrites,
                where=self.where,
                parameters=self.parameters,
                earlier_tokens=tuple(token for one in earlier for token in one.tokens),
                since_version=min([base, *(one.since_version for one in earlier)]),
            )
        return self._pending

    def _commit(self, pending: PendingCommit) -> Receipt | None:
        return commit_files(self.target, pending, limit=self.limit, clock=self.clock)

    def resolve(self) -> Receipt | None:
        """Return the receipt of a commit whose answer was lost; None if the table lacks it."""
        return find_pending(self.target, self.prepare())

    def discard(self) -> None:
        """Delete what was written, except for files that a version may refer to."""
        if self.is_unknown or self.receipt is not None:
            self.staging.let_go()
        else:
            self.staging.discard()

    def count(self, metrics: SinkMetrics) -> None:
        """Add what was committed to the metrics of a sink."""
        if self.receipt is not None:
            metrics.rows_committed += sum(file.rows for file in self.files)
            metrics.bytes_written += sum(file.bytes for file in self.files)
            metrics.files_written += len(self.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
