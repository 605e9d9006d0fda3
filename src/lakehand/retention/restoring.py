"""Bringing a table back to what it held before."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from lakehand.errors import RefusedError, ValidationError
from lakehand.model.upkeep import RestoreReport
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.work import Change

__all__ = ["restore"]

_NAMED = 5


def restore(
    table: FormatTable,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    accept_missing: bool = False,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> RestoreReport:
    """Commit the content of an earlier version as the newest one.

    RefusedError if storage no longer has a file of it, unless `accept_missing`.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    if (version is None) == (timestamp is None):
        raise ValidationError("give the version to restore, or its time", field="version")
    snapshot = table.snapshot()
    wanted = table.snapshot(version=version, timestamp=timestamp)
    change = table.restoring_change(snapshot, wanted)
    if not accept_missing:
        _require_files(table, change, wanted.version)
    outcome: Outcome = "committed" if _changes_anything(change) else "nothing_to_do"
    newest = snapshot.version
    if outcome == "committed" and not dry_run:
        newest = table.commit(change, token=str(uuid4())).version
    return RestoreReport(
        outcome="dry_run" if dry_run else outcome,
        table=table.store.url,
        version=newest,
        restored_version=wanted.version,
        files_restored=len(change.restored),
        bytes_restored=sum(file.bytes for file in change.restored),
        files_removed=len(change.removes),
        bytes_removed=sum(file.bytes for file in change.removes),
        metadata_restored=bool(change.native),
        duration_ms=(clock.monotonic() - started) * 1000,
    )


def _changes_anything(change: Change) -> bool:
    return bool(change.restored or change.removes or change.native)


def _require_files(table: FormatTable, change: Change, version: int) -> None:
    missing = table.missing_files(change.restored)
    if not missing:
        return
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    raise RefusedError(
        f"version {version} of {table.store.url} cannot be restored: {len(missing)} of its files"
        f" are gone: {named}",
        table=table.store.url,
        operation="restore",
        version=version,
        hint="nothing was written; choose a later version, or bring the files back from a backup",
    )
