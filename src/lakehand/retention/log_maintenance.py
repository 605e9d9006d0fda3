"""Checkpoints, log cleanup and restore, with every pin and reader of old versions respected."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from lakehand.errors import RefusedError, ValidationError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsCheckpoints, SupportsPurge, SupportsRestore
from lakehand.model.maintenance import ExtraRetention, LogCleanupReport, RestoreReport
from lakehand.model.reports import CheckpointReport, Outcome
from lakehand.observe import reported
from lakehand.observe.clock import Clock, Stopwatch, SystemClock
from lakehand.retention.pins import list_pins
from lakehand.retention.protection import hold

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.model.work import Change


@reported
def checkpoint(
    table: FormatTable, *, version: int | None = None, clock: Clock | None = None
) -> CheckpointReport:
    """Write a checkpoint of the newest version, or of `version`, unless one exists."""
    clock = clock or SystemClock()
    watch = Stopwatch(clock)
    supported = require_support(table, SupportsCheckpoints, operation="checkpoint")
    receipt = supported.checkpoint(version=version)
    return CheckpointReport(
        outcome="committed" if receipt["is_new"] else "nothing_to_do",
        table=table.store.url,
        version=receipt["version"],
        kind=receipt["kind"],
        files=tuple(receipt["keys"]),
        bytes=receipt["bytes"],
        action_count=receipt["action_count"],
        duration_ms=watch.total_milliseconds(),
    )


def held_versions(table: FormatTable, clock: Clock) -> tuple[int, ...]:
    """Return the versions that pins in force keep, or from which on they keep all."""
    in_force = [pin for pin in list_pins(table.store) if pin.is_in_force(clock.now())]
    holders = hold(table, in_force).holders
    return tuple(holder.version for holder in holders if holder.version is not None)


@reported
def clean_logs(
    table: FormatTable,
    *,
    keep_versions: int = 0,
    keep_checkpoints: int = 0,
    even_if_disabled: bool = False,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> LogCleanupReport:
    """Delete log files that are older than the table's log retention and not protected."""
    clock = clock or SystemClock()
    watch = Stopwatch(clock)
    for field, value in (("keep_versions", keep_versions), ("keep_checkpoints", keep_checkpoints)):
        if value < 0:
            raise ValidationError(f"{field} must not be negative", field=field, value=value)
    supported = require_support(table, SupportsPurge, operation="clean_logs")
    pins = held_versions(table, clock)
    wishes = ExtraRetention(
        versions=keep_versions, checkpoints=keep_checkpoints, pinned_versions=pins
    )
    done = supported.clean_logs(wishes, even_if_disabled=even_if_disabled, dry_run=dry_run)
    changed: Outcome = "committed" if done.files else "nothing_to_do"
    return LogCleanupReport(
        outcome="dry_run" if dry_run else changed,
        table=table.store.url,
        version=done.version,
        oldest_version=done.oldest_version,
        cutoff=done.cutoff.isoformat(),
        reason=done.reason,
        files=done.files,
        files_deleted=len(done.files),
        bytes_freed=done.bytes,
        sees_unfinished_uploads=table.store.sees_unfinished_uploads,
        dry_run=dry_run,
        errors=done.errors,
        duration_ms=watch.total_milliseconds(),
    )


_NAMED = 5


@reported
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
    watch = Stopwatch(clock)
    if (version is None) == (timestamp is None):
        raise ValidationError("give the version to restore, or its time", field="version")
    supported = require_support(table, SupportsRestore, operation="restore")
    snapshot = table.snapshot()
    wanted = table.snapshot(version=version, timestamp=timestamp)
    change = supported.restoring_change(snapshot, wanted)
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
        duration_ms=watch.total_milliseconds(),
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
