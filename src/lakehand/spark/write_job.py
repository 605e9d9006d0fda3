"""A write on Spark: its tasks write files, its driver commits them in one version."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand import errors
from lakehand.formats.optional import checkpoint_if_due
from lakehand.model.work import Receipt, Transaction
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import SystemClock
from lakehand.sink.committing import RaceLimit
from lakehand.sink.descriptor import Descriptor, require_files, require_fit
from lakehand.sink.epochs import delete_unreported
from lakehand.sink.notify import flush_notifications
from lakehand.sink.sink_options import SinkOptions
from lakehand.sink.staging import DescribedFiles, FileStaging, Staging, write_spec
from lakehand.sink.target import Target
from lakehand.sink.transaction import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lakehand.formats.worker import WriteSpec
    from lakehand.settings import Settings
    from lakehand.spark.source_options import SourceOptions
    from lakehand.storage import Store

_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What a task says when it has written its rows, in the words of the coordinated commit."""

    descriptor: str
    #: Token of the attempt that the task belongs to. The job of the commit has another one.
    token: str
    #: Whether another attempt of the task came before, and did not report.
    is_retry: bool
    #: Id of the stream, as its checkpoint keeps it; None: it is no stream.
    query: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteJob:
    """What the tasks and the driver of one write must know. It is sent to where they run."""

    target: Target
    options: SinkOptions
    spec: WriteSpec
    limit: RaceLimit
    settings: Settings
    #: Identifies the files of this attempt and, in the table, its commit.
    token: str

    @classmethod
    def begin(
        cls, store: Store, asked: SourceOptions, schema: pa.Schema, *, overwrite: bool
    ) -> Self:
        """Find or create the table; SchemaMismatchError if rows of `schema` do not fit it."""
        settings = _for_tasks(asked.settings, overwrite=overwrite)
        _refuse_evolution(settings, store)
        options = SinkOptions.of(settings, where=asked.where)
        target = Target(store, settings, partition_by=options.partition_by, where=options.where)
        if target.find():
            target.require(schema)
        elif settings.create_table:
            target.create(schema)
        else:
            raise errors.NotATableError(
                f"there is no table at {store.url}, and none may be created",
                table=store.url,
                hint="create it, or set create_table",
            )
        return cls(
            target=target,
            options=options,
            spec=write_spec(target.in_force(settings)),
            limit=RaceLimit.of(settings),
            settings=settings,
            token=f"lakehand-{uuid.uuid4().hex}",
        )

    # Where tasks run

    def write(self, batches: Iterable[pa.RecordBatch]) -> Descriptor:
        """Write the rows of one task into staged files. A failure leaves none."""
        attempt = uuid.uuid4().hex[:12]
        staging = FileStaging(self.target, self.spec, stem=f"{self.token}-{attempt}")
        with self._begin(staging, token=self.token) as transaction:
            for batch in batches:
                transaction.write(self.target.fit(batch))
            return transaction.describe(writer=attempt, epoch=0)

    # Where the driver is

    def finish(self, reports: Sequence[TaskReport], mark: Transaction | None) -> None:
        """Commit what all tasks have reported, and delete what killed ones among them left."""
        descriptors = [Descriptor.from_json(report.descriptor) for report in reports]
        token = reports[0].token if reports else self.token
        self.commit(descriptors, token=token, mark=mark)
        if any(report.is_retry for report in reports):
            self._delete_unreported(descriptors, token=token)

    def give_up(self, reports: Sequence[TaskReport]) -> None:
        """Delete what tasks have written. Only for a job that has not tried to commit."""
        descriptors = [Descriptor.from_json(report.descriptor) for report in reports]
        self.discard(descriptors)
        if reports:
            self._delete_unreported(descriptors, token=reports[0].token)

    def commit(
        self, descriptors: Sequence[Descriptor], *, token: str, mark: Transaction | None
    ) -> Receipt | None:
        """Make one version of all files; None if nothing changes, or the table has `mark`.

        Files that are not committed are deleted, unless the outcome is unknown
        (CommitUnknownError).
        """
        transaction = self._begin_commit(descriptors, token=token, mark=mark)
        if transaction.is_in_table:
            if transaction.resolve() is None:
                transaction.discard()
            return None
        if not (transaction.files or transaction.overwrites):
            return None
        with transaction:
            for descriptor in descriptors:
                require_fit(self.target, descriptor)
            require_files(self.target, transaction.files)
            receipt = transaction.commit()
        if receipt is not None:
            # Spark plans, commits and starts tasks in new processes: this is for the second only.
            from lakehand.maintenance.due_steps import maintain_after_write

            handle, version = self.target.handle, receipt.version
            checkpoint_if_due(handle, version)
            clock = SystemClock()
            maintain_after_write(handle, version=version, settings=self.settings, clock=clock)
            # Spark may end this process as soon as the commit is done.
            flush_notifications()
        return receipt

    def _begin_commit(
        self, descriptors: Sequence[Descriptor], *, token: str, mark: Transaction | None
    ) -> WriteTransaction:
        bases = [self.target.base_version, *(one.base_version for one in descriptors)]
        parameters = {"epoch": mark.version, "writer": mark.application} if mark else {}
        return self._begin(
            self._described(descriptors),
            token=token,
            base_version=min(bases),
            mark=mark,
            parameters={**parameters, "where": self.options.where},
        )

    def _begin(self, staging: Staging, *, token: str, **commit: Any) -> WriteTransaction:
        return WriteTransaction(
            target=self.target,
            staging=staging,
            token=token,
            limit=self.limit,
            clock=SystemClock(),
            overwrites=self.options.overwrites,
            where=self.options.where,
            **commit,
        )

    def _described(self, descriptors: Sequence[Descriptor]) -> DescribedFiles:
        files = tuple(file for descriptor in descriptors for file in descriptor.files)
        table_id = descriptors[0].table_id if descriptors else self.target.head.table_id
        return DescribedFiles(self.target, files, table_id=table_id)

    def discard(self, descriptors: Sequence[Descriptor]) -> None:
        """Delete files that no commit was, or will be, tried with."""
        self._described(descriptors).discard()

    def _delete_unreported(self, descriptors: Sequence[Descriptor], *, token: str) -> None:
        reported = {file.path for one in descriptors for file in one.files}
        if not reported:
            return
        since = min(one.base_version for one in descriptors)
        try:
            delete_unreported(self.target.handle, token=token, reported=reported, since=since)
        except errors.LakehandError as error:
            _warn_of_files_left(error)


def _warn_of_files_left(error: errors.LakehandError) -> None:
    message = "Staged files that are not needed are left to vacuum: %s"
    log_event(_logger, logging.WARNING, "staged_files_left", message, error.message)


def mark_of(asked: SourceOptions) -> Transaction | None:
    """Return the mark of a batch that must not be written twice; None if it may."""
    writer_id, epoch = asked.settings.writer_id, asked.epoch
    if writer_id is None and epoch is None:
        return None
    if writer_id is None or epoch is None:
        raise errors.ValidationError(
            "to write a batch exactly once takes two options: writer_id and epoch",
            field="epoch" if epoch is None else "writer_id",
            hint="writer_id names the job, epoch is the number of this batch; or give neither",
        )
    return Transaction(application=writer_id, version=epoch)


def _refuse_evolution(settings: Settings, store: Store) -> None:
    if settings.schema_evolution:
        raise errors.RefusedError(
            f"a write on Spark does not change the columns of {store.url}",
            table=store.url,
            operation="append",
            feature="schema_evolution",
            hint="add the columns first, for example by Table.append of a row that has them",
        )


def _for_tasks(settings: Settings, *, overwrite: bool) -> Settings:
    """Return settings of a write on Spark, which runs as many tasks as there are cores."""
    call: dict[str, object] = {"write_mode": "overwrite" if overwrite else "append"}
    if settings.sources["write_threads"] == "default":
        call["write_threads"] = 1
    return settings.with_call(call)
