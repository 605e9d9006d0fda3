"""Purge: rewrite files with deleted rows -> vacuum -> clean the log -> report the rest.

For requests to erase: deleted rows and dropped columns are hidden from readers, but still in files
of this and of older versions, and values of them are in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsPurge
from lakehand.model.maintenance import ExtraRetention, OldValues, PurgeReport, Remains
from lakehand.model.quantities import format_count, format_duration
from lakehand.observe import OnProgress, reported
from lakehand.observe.clock import Clock, Stopwatch, SystemClock
from lakehand.planning.compaction import plan_compaction
from lakehand.planning.policy import CompactionPolicy, Reason
from lakehand.retention.log_maintenance import clean_logs, held_versions
from lakehand.retention.quarantine import list_quarantines
from lakehand.retention.vacuum import vacuum
from lakehand.rewrite.prepare import Request
from lakehand.rewrite.run import compact
from lakehand.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.model.reports import Outcome
    from lakehand.model.retention import Holder, VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.plan import Plan
    from lakehand.settings import Settings

#: Where repair keeps what it took out of a table.
BACKUPS = "_lakehand/aside"
#: Assumed rows of a file without a row count; large enough to make one row insignificant.
_ROWS_OF_UNCOUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class _Hidden:
    """What files of the newest version hold and readers do not see."""

    snapshot: Snapshot
    deleted_rows: pa.ChunkedArray
    has_dropped_columns: pa.BooleanArray

    @classmethod
    def of(cls, table: SupportsPurge) -> _Hidden:
        snapshot = table.snapshot()
        rows = pc.fill_null(snapshot.files["deleted_rows"], 0)
        return cls(snapshot, rows, table.hold_dropped_columns(snapshot))

    @property
    def row_count(self) -> int:
        return pc.sum(self.deleted_rows).as_py() or 0

    @property
    def files_with_dropped_columns(self) -> int:
        return pc.sum(self.has_dropped_columns).as_py() or 0

    @property
    def file_count(self) -> int:
        return int(np.count_nonzero(self.is_affected))

    @property
    def is_affected(self) -> np.ndarray:
        deleted = self.deleted_rows.to_numpy() > 0
        affected: np.ndarray = deleted | self.has_dropped_columns.to_numpy(zero_copy_only=False)
        return affected


@reported
def purge(
    table: FormatTable,
    *,
    settings: Settings,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> PurgeReport:
    """Rewrite files of the newest version with deleted rows or dropped columns, then vacuum.

    Earlier versions stay readable within vacuum's retention, and hold them until then.
    """
    clock = clock or SystemClock()
    watch = Stopwatch(clock)
    table = require_support(table, SupportsPurge, operation="purge")
    before = _Hidden.of(table)
    common: dict[str, Any] = {"dry_run": dry_run, "on_progress": on_progress, "clock": clock}
    request = Request(plan=_plan(table, before, settings), erases=True)
    rewritten = compact(table, settings=settings, request=request, spark=spark, **common)
    swept = vacuum(table, settings=settings, spark=spark, **common)
    is_freed = not dry_run and table.free_history_of_old_values()
    cleaned = clean_logs(table, dry_run=dry_run, clock=clock)
    after = before if dry_run else _Hidden.of(table)
    done = "committed" in (rewritten.outcome, swept.outcome, cleaned.outcome) or is_freed
    outcome: Outcome = "committed" if done else "nothing_to_do"
    old = table.old_values(ExtraRetention(pinned_versions=held_versions(table, clock)))
    left = _Left(table, after, swept, old, grace=settings.grace, now=clock.now())
    return PurgeReport(
        outcome="dry_run" if dry_run else outcome,
        table=table.store.url,
        version=after.snapshot.version,
        files_rewritten=before.file_count if dry_run else rewritten.files_removed,
        deleted_row_count=after.row_count,
        files_with_dropped_columns=after.files_with_dropped_columns,
        files_quarantined=swept.files_quarantined,
        files_deleted=swept.files_deleted,
        log_files_deleted=cleaned.files_deleted,
        quarantine_id=swept.quarantine_id,
        gone_at=left.gone_at(),
        log_gone_at=left.log_gone_at(),
        remaining=tuple(left.places()),
        dry_run=dry_run,
        errors=(*rewritten.errors, *swept.errors, *cleaned.errors),
        duration_ms=watch.total_milliseconds(),
    )


def _plan(table: FormatTable, hidden: _Hidden, settings: Settings) -> Plan:
    """Plan to rewrite every affected file, and no other, however few of its rows are deleted.

    No footer is given to the planner, so nothing is moved byte for byte.
    """
    snapshot = hidden.snapshot
    chosen = settings.with_properties(snapshot.properties)
    policy = replace(CompactionPolicy.from_settings(chosen), deleted_row_ratio=0)
    affected = hidden.is_affected
    return plan_compaction(
        replace(snapshot, files=_as_worn(snapshot.files, affected)),
        table.partition_keys(snapshot),
        policy,
        exclusions={Reason.OUTSIDE_FILTER: ~affected},
    ).plan


def _as_worn(files: pa.Table, affected: np.ndarray) -> pa.Table:
    """Return the table of files as if every affected one had a deleted row, which they lose."""
    deleted = pc.fill_null(files["deleted_rows"], 0).to_numpy()
    rows = pc.fill_null(files["rows"], _ROWS_OF_UNCOUNTED).to_numpy()
    changed = {
        "rows": pa.array(rows, pa.int64()),
        "deleted_rows": pa.array(np.maximum(deleted, affected), pa.int64()),
    }
    for name, column in changed.items():
        files = files.set_column(files.schema.get_field_index(name), name, column)
    return files


class _Left:
    """What a purge leaves behind: where, and until when."""

    def __init__(
        self,
        table: FormatTable,
        hidden: _Hidden,
        swept: VacuumReport,
        old: OldValues,
        *,
        grace: timedelta,
        now: datetime,
    ) -> None:
        self._table = table
        self._hidden = hidden
        self._swept = swept
        self._old = old
        self._grace = grace
        self._now = now
        self._quarantines = list_quarantines(table.store)

    def gone_at(self) -> datetime | None:
        """Return when the last data file with deleted rows can be deleted, if that is known."""
        if self._hidden.file_count or self._holders() or self._swept.errors:
            return None
        dates = (self._older_versions_end_at(), self._quarantine_ends_at())
        return max((at for at in dates if at is not None), default=None)

    def log_gone_at(self) -> datetime | None:
        return None if self._hidden.file_count else self._old.history_gone_at

    def places(self) -> Iterator[Remains]:
        """Name every place that still holds deleted rows, dropped columns or values of them."""
        yield from self._in_newest_version()
        yield from self._in_older_versions()
        yield from self._other_stores()

    def _in_newest_version(self) -> Iterator[Remains]:
        if self._hidden.row_count:
            rows = format_count(self._hidden.row_count, "deleted row")
            message = f"{rows} in files of the newest version; purge again to rewrite them"
            yield Remains(code="not_rewritten", message=message)
        if self._hidden.files_with_dropped_columns:
            files = format_count(self._hidden.files_with_dropped_columns, "file")
            message = f"dropped columns in {files} of the newest version; purge again to rewrite"
            yield Remains(code="dropped_columns", message=f"{message} them")

    def _in_older_versions(self) -> Iterator[Remains]:
        swept = self._swept
        if self._has_older_versions():
            retention = format_duration(self._retention)
            start = f"versions from {swept.oldest_version:,} on keep their files"
            if not self._are_older_versions_readable():
                start = f"files that were removed before version {swept.oldest_version:,} are kept"
            yield Remains(
                code="older_versions",
                message=f"{start} for {retention}; then vacuum quarantines them",
                until=self._older_versions_end_at(),
            )
        if holders := self._holders():
            names = ", ".join(holder.name for holder in holders)
            yield Remains(code="pinned", message=f"pinned files of older versions: {names}")
        if waiting := swept.files_quarantined + swept.files_waiting:
            yield Remains(
                code="quarantined",
                message=f"{format_count(waiting, 'file')} in quarantine; vacuum deletes them when"
                " the grace period is over",
                until=self._quarantine_ends_at(),
            )
        if swept.errors:
            failed = format_count(len(swept.errors), "file")
            yield Remains(code="not_deleted", message=f"{failed} could not be deleted; see errors")

    def _other_stores(self) -> Iterator[Remains]:
        if self._old.in_history:
            message = (
                "the log holds values of deleted rows: statistics, partition values or predicates"
            )
            reason = f"; it is not cleaned because {self._old.reason}" if self._old.reason else ""
            yield Remains(code="log", message=message + reason, until=self.log_gone_at())
        if self._old.indices:
            names = ", ".join(self._old.indices)
            message = f"indices that hold values of deleted rows; drop and rebuild them: {names}"
            yield Remains(code="indices", message=message)
        if runs := list_runs(self._table.store):
            yield Remains(
                code="runs",
                message=f"statistics of files in the records of {format_count(len(runs), 'run')}"
                f" that is not finished, or whose commit is unknown: {runs[0]}",
            )
        if backups := sum(1 for _ in self._table.store.list(BACKUPS)):
            yield Remains(
                code="backups",
                message=f"{format_count(backups, 'object')} that repair backed up below {BACKUPS};"
                " delete them when they are not needed",
            )
        if not self._swept.table.startswith("file:"):
            yield Remains(
                code="object_versions",
                message="older versions of deleted objects, if the bucket has versioning enabled",
            )

    @property
    def _retention(self) -> timedelta:
        return timedelta(seconds=self._swept.retention_seconds)

    def _has_older_versions(self) -> bool:
        """Say whether files of older versions are kept; a log may be cleaned before they are."""
        at = self._old.at
        is_recent = at is not None and self._now < at + self._retention
        return is_recent or self._are_older_versions_readable()

    def _are_older_versions_readable(self) -> bool:
        removal = self._old.version
        return removal is not None and self._swept.oldest_version < removal

    def _older_versions_end_at(self) -> datetime | None:
        if self._old.at is None or not self._has_older_versions():
            return None
        return self._old.at + self._retention + self._grace

    def _quarantine_ends_at(self) -> datetime | None:
        """Return when the last quarantine ends; a dry run quarantines nothing."""
        return max((found.sweep_after for found in self._quarantines), default=None)

    def _holders(self) -> list[Holder]:
        """Return the pins of versions from before the last removal, and of clones."""
        removal = self._old.version
        return [
            holder
            for holder in self._swept.holders
            if holder.version is None or removal is None or holder.version < removal
        ]
