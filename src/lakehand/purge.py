"""Purge on one page: rewrite every file with deleted rows -> vacuum -> say what is still there.

For requests to erase: rows that were deleted are hidden from readers, and still in the files.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from lakehand.maintain import compact
from lakehand.model.purging import PurgeReport, Remains
from lakehand.model.quantities import format_count, format_duration
from lakehand.observe.clock import SystemClock
from lakehand.retention.vacuum import vacuum
from lakehand.rewrite.prepare import Request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import pyarrow as pa

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.retention import VacuumReport
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["purge"]


class _Hidden(NamedTuple):
    """Deleted rows in files of the newest version."""

    rows: int
    files: int


def purge(
    table: FormatTable,
    *,
    settings: Settings,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> PurgeReport:
    """Take deleted rows out of the newest version, then vacuum.

    Earlier versions stay readable as long as vacuum promises, and keep those rows until then.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    before = _hidden_rows(table)
    common: dict[str, Any] = {"dry_run": dry_run, "on_progress": on_progress, "clock": clock}
    rewritten = compact(
        table,
        settings=settings.with_call({"deleted_row_ratio": 0}),
        request=Request(file_filter=_with_deleted_rows),
        spark=spark,
        **common,
    )
    swept = vacuum(table, settings=settings, **common)
    hidden = _hidden_rows(table)
    changed = "committed" in (rewritten.outcome, swept.outcome)
    done: Outcome = "committed" if changed else "nothing_to_do"
    return PurgeReport(
        outcome="dry_run" if dry_run else done,
        table=table.store.url,
        version=swept.version,
        files_rewritten=before.files if dry_run else rewritten.files_removed,
        deleted_row_count=hidden.rows,
        files_quarantined=swept.files_quarantined,
        files_deleted=swept.files_deleted,
        quarantine_id=swept.quarantine_id,
        gone_at=None if hidden.rows else _gone_at(swept, settings["grace"], clock.now()),
        remaining=tuple(_remains(hidden, swept)),
        dry_run=dry_run,
        errors=(*rewritten.errors, *swept.errors),
        duration_ms=(clock.monotonic() - started) * 1000,
    )


def _with_deleted_rows(files: pa.Table) -> pa.ChunkedArray:
    return pc.greater(files["deleted_rows"], 0)


def _hidden_rows(table: FormatTable) -> _Hidden:
    deleted = table.snapshot().files["deleted_rows"]
    return _Hidden(pc.sum(deleted).as_py() or 0, pc.sum(pc.greater(deleted, 0)).as_py() or 0)


def _gone_at(swept: VacuumReport, grace: timedelta, now: datetime) -> datetime | None:
    """Return when the last data file with deleted rows can be gone, if anybody can say so."""
    if swept.holders or swept.errors:
        return None
    if swept.oldest_version < swept.version:
        return now + timedelta(seconds=swept.retention_seconds) + grace
    return now + grace if swept.files_quarantined or swept.files_waiting else None


def _remains(hidden: _Hidden, swept: VacuumReport) -> Iterator[Remains]:
    """Name every place where deleted rows, or values of them, may still be found."""
    if hidden.rows:
        rows, files = format_count(hidden.rows, "deleted row"), format_count(hidden.files, "file")
        yield Remains(
            code="not_rewritten",
            message=f"{rows} in {files} of the newest version; purge again to take them out",
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
    yield from _always(swept)


def _always(swept: VacuumReport) -> Iterator[Remains]:
    if swept.version:
        yield Remains(
            code="log",
            message="the log holds smallest and largest values of files until its old entries are"
            " cleaned",
        )
    if not swept.table.startswith("file:"):
        yield Remains(
            code="object_versions",
            message="a bucket that keeps versions of objects keeps deleted files until they expire",
        )
