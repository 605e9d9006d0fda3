"""Purge on one page: rewrite what still holds what was deleted -> vacuum -> say what is left.

For requests to erase: rows that were deleted, and columns that were dropped, are hidden from
readers and still in the files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.maintain import compact
from lakehand.model.purging import PurgeReport, Remains
from lakehand.model.quantities import format_count, format_duration
from lakehand.observe.clock import SystemClock
from lakehand.planning.compaction import plan_compaction
from lakehand.planning.policy import CompactionPolicy
from lakehand.planning.reasons import Reason
from lakehand.retention.log_upkeep import clean_logs
from lakehand.retention.vacuum import vacuum
from lakehand.rewrite.prepare import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.upkeep import LogCleanupReport
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.planning.plan import Plan
    from lakehand.settings import Settings

__all__ = ["purge"]

#: Log entries go by whole days.
_DAY = timedelta(days=1)
#: Of a file whose rows nobody has counted; so many that one of them does not count.
_ROWS_OF_UNCOUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class _Hidden:
    """What files of the newest version hold and readers do not see."""

    snapshot: Snapshot
    deleted_rows: pa.ChunkedArray
    has_dropped_columns: pa.BooleanArray

    @classmethod
    def of(cls, table: FormatTable) -> _Hidden:
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


def purge(
    table: FormatTable,
    *,
    settings: Settings,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> PurgeReport:
    """Take deleted rows and dropped columns out of the newest version, then vacuum.

    Earlier versions stay readable as long as vacuum promises, and hold them until then.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    before = _Hidden.of(table)
    common: dict[str, Any] = {"dry_run": dry_run, "on_progress": on_progress, "clock": clock}
    request = Request(plan=_plan(table, before, settings))
    rewritten = compact(table, settings=settings, request=request, spark=spark, **common)
    if rewritten.outcome == "committed":
        # The log can only be cleaned up to a checkpoint that knows the old files no more.
        table.checkpoint()
    swept = vacuum(table, settings=settings, spark=spark, **common)
    cleaned = clean_logs(table, dry_run=dry_run, clock=clock)
    after = before if dry_run else _Hidden.of(table)
    is_whole = not after.file_count
    changed = "committed" in (rewritten.outcome, swept.outcome, cleaned.outcome)
    done: Outcome = "committed" if changed else "nothing_to_do"
    in_log = _log_tells_of_more(table, after, clock.now())
    return PurgeReport(
        outcome="dry_run" if dry_run else done,
        table=table.store.url,
        version=swept.version,
        files_rewritten=before.file_count if dry_run else rewritten.files_removed,
        deleted_row_count=after.row_count,
        files_with_dropped_columns=after.files_with_dropped_columns,
        files_quarantined=swept.files_quarantined,
        files_deleted=swept.files_deleted,
        log_files_deleted=cleaned.files_deleted,
        quarantine_id=swept.quarantine_id,
        gone_at=_gone_at(swept, settings["grace"], clock.now()) if is_whole else None,
        log_gone_at=_log_gone_at(cleaned, clock.now()) if is_whole and in_log else None,
        remaining=(*_remains(after, swept), *_elsewhere(swept, in_log=in_log)),
        dry_run=dry_run,
        errors=(*rewritten.errors, *swept.errors, *cleaned.errors),
        duration_ms=(clock.monotonic() - started) * 1000,
    )


def _plan(table: FormatTable, hidden: _Hidden, settings: Settings) -> Plan:
    """Plan to write every affected file anew, and no other, however few of its rows are deleted.

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


def _gone_at(swept: VacuumReport, grace: timedelta, now: datetime) -> datetime | None:
    """Return when the last data file with deleted rows can be gone, if anybody can say so."""
    if swept.holders or swept.errors:
        return None
    if swept.oldest_version < swept.version:
        return now + timedelta(seconds=swept.retention_seconds) + grace
    return now + grace if swept.files_quarantined or swept.files_waiting else None


def _log_tells_of_more(table: FormatTable, hidden: _Hidden, now: datetime) -> bool:
    """Say whether the log names files, with their statistics, that are not of the newest version.

    What it says of files without hidden rows is of rows that are visible.
    """
    named = table.protected(since=now, from_version=0).keys
    is_live = pc.is_in(named, value_set=hidden.snapshot.files["path"])
    return bool(hidden.file_count) or not pc.all(is_live, min_count=0).as_py()


def _log_gone_at(cleaned: LogCleanupReport, now: datetime) -> datetime | None:
    """Return when all that the log holds by now can be cleaned away, if that is for time to say.

    Entries go when their last day is as far back as the newest that may go today.
    """
    if cleaned.reason is not None and "old enough" not in cleaned.reason:
        return None
    return now + (now - datetime.fromisoformat(cleaned.cutoff)) + _DAY


def _remains(hidden: _Hidden, swept: VacuumReport) -> Iterator[Remains]:
    """Name every place among the data files where they still are."""
    if hidden.row_count:
        rows = format_count(hidden.row_count, "deleted row")
        yield Remains(
            code="not_rewritten",
            message=f"{rows} in files of the newest version; purge again to take them out",
        )
    if hidden.files_with_dropped_columns:
        files = format_count(hidden.files_with_dropped_columns, "file")
        yield Remains(
            code="dropped_columns",
            message=f"columns that were dropped, in {files} of the newest version; purge again to "
            "take them out",
        )
    if swept.oldest_version < swept.version:
        retention = format_duration(timedelta(seconds=swept.retention_seconds))
        yield Remains(
            code="older_versions",
            message=f"versions from {swept.oldest_version:,} on keep their files for {retention}; "
            "vacuum then sets them aside",
        )
    if swept.holders:
        names = ", ".join(holder.name for holder in swept.holders)
        yield Remains(code="pinned", message=f"pins keep files of older versions: {names}")
    if waiting := swept.files_quarantined + swept.files_waiting:
        yield Remains(
            code="set_aside",
            message=f"{format_count(waiting, 'file')} set aside; vacuum deletes them when their "
            "grace is over",
        )
    if swept.errors:
        failed = format_count(len(swept.errors), "file")
        yield Remains(code="not_deleted", message=f"{failed} could not be deleted; see errors")


def _elsewhere(swept: VacuumReport, *, in_log: bool) -> Iterator[Remains]:
    """Name the places beside the data files."""
    if in_log:
        yield Remains(
            code="log",
            message="the log holds smallest and largest values of files that are gone, until its"
            " old entries are cleaned",
        )
    if not swept.table.startswith("file:"):
        yield Remains(
            code="object_versions",
            message="a bucket that keeps versions of objects keeps deleted files until they expire",
        )
