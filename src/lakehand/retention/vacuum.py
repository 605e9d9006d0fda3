"""Vacuum on one page: what is promised -> what is there -> what is left over -> set aside, delete.

Nothing is deleted that a promised version refers to, that is young, or whose reference cannot be
ruled out. What is left over is written down first and deleted when its grace is over, after every
reference was checked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import ValidationError
from lakehand.model.quantities import format_duration
from lakehand.model.retention import VacuumReport
from lakehand.observe.clock import SystemClock
from lakehand.retention import quarantine as quarantines
from lakehand.retention.deleting import Deleter
from lakehand.retention.garbage import open_garbage
from lakehand.retention.pins import pinned_versions
from lakehand.runs import list_runs

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.retention import Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.clock import Clock
    from lakehand.retention.garbage import Garbage
    from lakehand.retention.quarantine import Quarantine
    from lakehand.settings import Settings

__all__ = ["choose_retention", "vacuum"]

DEFAULT_RETENTION = timedelta(hours=168)
_SHORTEST_RETENTION = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Promise:
    """What must stay, and for how long the rest does."""

    table: FormatTable
    clock: Clock
    retention: timedelta
    grace: timedelta
    protection: Protection


def vacuum(
    table: FormatTable, *, settings: Settings, dry_run: bool = False, clock: Clock | None = None
) -> VacuumReport:
    """Set aside what no version within the retention needs, and delete what was set aside before.

    RefusedError if it is not known which files those versions need.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    promise = _read_promise(table, settings, clock)
    with open_garbage() as garbage:
        _find(garbage, promise)
        found, _ = garbage.totals()
        deleter, new = Deleter(table.store), None
        listed = _keys(garbage) if dry_run else ()
        if not dry_run:
            _sweep_quarantines(garbage, promise, deleter)
            new = _set_aside(garbage, promise, deleter)
        changed: Outcome = "committed" if new or deleter.files else "nothing_to_do"
        return VacuumReport(
            outcome="dry_run" if dry_run else changed,
            table=table.store.url,
            version=promise.protection.newest_version,
            oldest_version=promise.protection.oldest_version,
            retention_seconds=promise.retention.total_seconds(),
            files_scanned=garbage.files_scanned,
            files_retained=garbage.files_scanned - found,
            files_quarantined=new.files if new else 0,
            bytes_quarantined=new.bytes if new else 0,
            files_deleted=deleter.files,
            bytes_freed=deleter.bytes,
            quarantine_id=new.id if new else None,
            dry_run=dry_run,
            files_to_delete=listed,
            errors=tuple(deleter.errors),
            duration_ms=(clock.monotonic() - started) * 1000,
        )


def choose_retention(table: FormatTable, snapshot: Snapshot, settings: Settings) -> timedelta:
    """Return how long files stay after their last version; ValidationError below what is safe."""
    floor = max(DEFAULT_RETENTION, table.retention(snapshot))
    asked: timedelta | None = settings["retention"]
    if asked is None or asked >= floor:
        return asked or floor
    if not settings["allow_short_retention"]:
        raise ValidationError(
            f"a retention of {format_duration(asked)} is below the {format_duration(floor)} that "
            "readers of this table may count on",
            field="retention",
            value=str(asked),
            hint="leave it out, or allow it with --allow-short-retention if nobody reads that far",
        )
    if asked < _SHORTEST_RETENTION:
        raise ValidationError(
            f"a retention of {format_duration(asked)} would delete files of running writers; it "
            f"must be at least {format_duration(_SHORTEST_RETENTION)}",
            field="retention",
            value=str(asked),
        )
    return asked


def _read_promise(table: FormatTable, settings: Settings, clock: Clock) -> _Promise:
    snapshot = table.snapshot()
    table.require("vacuum", snapshot)
    in_force = settings.with_properties(snapshot.properties)
    retention = choose_retention(table, snapshot, in_force)
    pins = pinned_versions(table.store, now=clock.now())
    protection = table.protected(since=clock.now() - retention, pinned_versions=pins)
    return _Promise(
        table=table,
        clock=clock,
        retention=retention,
        grace=in_force["grace"],
        protection=protection,
    )


def _find(garbage: Garbage, promise: _Promise) -> None:
    """List what is there, and keep all of it that is or may be needed."""
    table = promise.table
    garbage.list(table.store.list(), is_data=table.is_data)
    garbage.keep_young(promise.clock.now() - promise.retention)
    garbage.keep_protected(promise.protection)
    # Tasks of runs that are under way commit later than any retention tells.
    garbage.keep_starting_with([f"lakehand-{run}" for run in list_runs(table.store)])
    _look_again(garbage, promise)


def _look_again(garbage: Garbage, promise: _Promise) -> None:
    """Keep what came into the table since its log was read."""
    newest = promise.protection.newest_version
    garbage.keep_protected(promise.table.protected_since(version=newest))


def _sweep_quarantines(garbage: Garbage, promise: _Promise, deleter: Deleter) -> None:
    """Delete what was set aside long enough ago, if it is still left over and as it was then."""
    store, now = promise.table.store, promise.clock.now()
    quarantines.drop_abandoned(store, clock=promise.clock)
    for entry in quarantines.list_quarantines(store):
        if entry.sweep_after > now and promise.grace and entry.fate is None:
            _keep_set_aside(garbage, promise, entry)
        elif quarantines.decide(store, entry, "sweeping") == "undone":
            quarantines.drop(store, entry)
        else:
            _sweep(garbage, promise, deleter, entry)


def _keep_set_aside(garbage: Garbage, promise: _Promise, entry: Quarantine) -> None:
    for batch in quarantines.read_files(promise.table.store, entry):
        garbage.keep(pa.chunked_array([batch["key"]]))


def _sweep(garbage: Garbage, promise: _Promise, deleter: Deleter, entry: Quarantine) -> None:
    store, failures_before = promise.table.store, len(deleter.errors)
    _look_again(garbage, promise)
    for batch in quarantines.read_files(store, entry):
        deleter.delete(garbage.take(pa.Table.from_batches([batch])))
    if len(deleter.errors) == failures_before:
        quarantines.drop(store, entry)


def _set_aside(garbage: Garbage, promise: _Promise, deleter: Deleter) -> Quarantine | None:
    """Write down what is left over, or delete it where no grace is asked for."""
    if promise.grace:
        return quarantines.start_quarantine(
            promise.table.store, garbage.batches(), grace=promise.grace, clock=promise.clock
        )
    _look_again(garbage, promise)
    for batch in garbage.batches():
        deleter.delete(pa.Table.from_batches([batch]))
    return None


def _keys(garbage: Garbage) -> tuple[str, ...]:
    return tuple(key for batch in garbage.batches() for key in batch["key"].to_pylist())
