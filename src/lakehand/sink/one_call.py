"""All rows of a call in one version."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.model.reports import WriteReport
from lakehand.model.work import Transaction
from lakehand.observe.clock import SystemClock
from lakehand.schema.arrow_input import as_reader
from lakehand.sink.committing import PendingCommit, RaceLimit, commit_files
from lakehand.sink.options import SinkOptions, write_spec
from lakehand.sink.staging import Staging
from lakehand.sink.target import Target

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Receipt, StagedFile
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["transaction_of", "write_once"]


@dataclass(kw_only=True, slots=True)
class _Written:
    """What came of a call, as far as it has come."""

    files: tuple[StagedFile, ...] = ()
    receipt: Receipt | None = None
    write_ms: float = 0.0
    commit_ms: float = 0.0


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
    writing = _Writing(target, options, settings, transaction_of(options, epoch), clock)
    written = _Written() if writing.is_in_table() else writing.run(data)
    return _report(target, options, written, (clock.monotonic() - started) * 1000)


def transaction_of(options: SinkOptions, epoch: int | None) -> Transaction | None:
    """Return the mark that a call leaves in the table; None: none."""
    if epoch is None:
        return None
    if options.writer_id is None:
        message = "an epoch is of a writer: give its writer_id, too"
        raise ValidationError(message, field="writer_id")
    return Transaction(application=options.writer_id, version=epoch)


class _Writing:
    """One call on its way."""

    def __init__(
        self,
        target: Target,
        options: SinkOptions,
        settings: Settings,
        mark: Transaction | None,
        clock: Clock,
    ) -> None:
        self._target = target
        self._options = options
        self._settings = settings
        self._mark = mark
        self._clock = clock
        self._name = f"lakehand-{uuid.uuid4().hex}"

    def is_in_table(self) -> bool:
        mark, found = self._mark, self._target.head.transactions
        return mark is not None and found.get(mark.application, -1) >= mark.version

    def run(self, data: Any) -> _Written:
        """Write and commit. What fails before a commit could have landed leaves no file."""
        spec = write_spec(self._target.in_force(self._settings))
        staging = Staging(self._target, spec, stem=self._name)
        started = self._clock.monotonic()
        pending: PendingCommit | None = None
        try:
            files = self._write(staging, data)
            written = self._clock.monotonic()
            pending = self._pending(staging, files)
            receipt = self._commit(pending)
        except BaseException:
            if pending is None or not pending.is_unknown:
                staging.discard()
            raise
        if receipt is not None:
            self._target.handle.checkpoint_if_due(receipt.version)
        return _Written(
            files=files,
            receipt=receipt,
            write_ms=(written - started) * 1000,
            commit_ms=(self._clock.monotonic() - written) * 1000,
        )

    def _write(self, staging: Staging, data: Any) -> tuple[StagedFile, ...]:
        for batch in as_reader(data):
            staging.write(self._target.fit(batch))
        return staging.finish()

    def _pending(self, staging: Staging, files: tuple[StagedFile, ...]) -> PendingCommit:
        return PendingCommit(
            token=self._name,
            files=files,
            staging=staging,
            table_id=staging.table_id,
            base_version=self._target.base_version,
            transaction=self._mark,
            overwrites=self._options.overwrites,
            where=self._options.where,
            parameters={"where": self._options.where},
        )

    def _commit(self, pending: PendingCommit) -> Receipt | None:
        return commit_files(
            self._target,
            pending,
            limit=RaceLimit.of(self._settings),
            clock=self._clock,
        )


def _report(
    target: Target, options: SinkOptions, written: _Written, duration_ms: float
) -> WriteReport:
    receipt = written.receipt
    return WriteReport(
        operation="overwrite" if options.overwrites else "append",
        outcome="committed" if receipt is not None else "nothing_to_do",
        table=target.store.url,
        version=receipt.version if receipt is not None else target.base_version,
        files_removed=receipt.files_removed if receipt is not None else 0,
        files_added=len(written.files),
        rows_written=sum(file.rows for file in written.files),
        bytes_written=sum(file.bytes for file in written.files),
        duration_ms=duration_ms,
        write_ms=written.write_ms,
        commit_ms=written.commit_ms,
        retries=receipt.attempts - 1 if receipt is not None else 0,
    )
