"""Health checks for monitoring: thresholds, and a report even if the table cannot be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.assess.health_score import Measures, Reason, assess_health
from lakehand.assess.inspection import measure
from lakehand.errors import LakehandError, StorageError, TableError
from lakehand.formats.optional import clustering_columns
from lakehand.formats.worker import FileCheckWorker
from lakehand.model.notebook_view import NotebookView
from lakehand.observe import reported
from lakehand.observe.clock import Clock, SystemClock
from lakehand.planning.file_bounds import extents_of
from lakehand.planning.overlap import overlap_depth
from lakehand.retention.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.settings import Settings

#: Errors that concern the table, and not the call.
UNREADABLE = (StorageError, TableError)
#: Number of files checked in storage, with one request each.
_SAMPLED_FILES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One measured value and its threshold."""

    #: What was measured: the name of the threshold's setting, without `max_`; or `damaged_files`,
    #: with the limit 0.
    code: str
    #: The measured value.
    value: float
    #: The maximum allowed value.
    limit: float
    #: Whether the value is within the limit.
    passed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthReport(NotebookView):
    """Health of a table. Fields have the names of the JSON document."""

    #: URL of the table, without credentials.
    table: str
    #: Whether the table can be read and every check has passed.
    healthy: bool
    #: The latest version; null if it cannot be read. Likewise the next.
    version: int | None = None
    #: Files of the version.
    file_count: int | None = None
    #: Files checked in storage: existence, size, footer, row count and deletion vector. At most 64,
    #: different ones for each version.
    files_checked: int | None = None
    #: Of these, files that are missing or damaged.
    files_damaged: int | None = None
    #: Time until the latest version was read, or failed to be.
    latency_ms: float
    #: From 0 to 100; 0 if the table cannot be read.
    score: int
    #: What lowers the score, worst first.
    reasons: tuple[Reason, ...]
    #: All checked thresholds.
    checks: tuple[Check, ...] = ()
    #: Why the table cannot be read; null if it can.
    error: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand health --json` prints."""
        return asdict(self)


@reported
def check_health(
    table: FormatTable, *, settings: Settings, orphans: bool = False, clock: Clock | None = None
) -> HealthReport:
    """Read the latest version and compare it with the thresholds of `settings`.

    `orphans` lists storage for files that no version references. An unreadable table is reported,
    not raised.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    try:
        snapshot = table.snapshot()
        latency_ms = (clock.monotonic() - started) * 1000
        in_force = settings.with_properties(snapshot.properties)
        settled_at = clock.now() - in_force.quiet_period
        measures = measure(snapshot, settings=in_force, settled_at=settled_at)
        measures = replace(
            measures,
            uncovered_age=_uncovered_age(table, measures, clock),
            orphan_bytes=_orphan_bytes(table, settings, clock) if orphans else None,
            overlap_depth=_overlap_depth(table, snapshot),
            **_damage(table, snapshot),
        )
    except UNREADABLE as error:
        return report_unreadable(table.store.url, error, started=started, clock=clock)
    checks = tuple(_checks(measures, in_force))
    health = assess_health(measures)
    return HealthReport(
        table=snapshot.table,
        healthy=all(check.passed for check in checks),
        version=snapshot.version,
        file_count=measures.file_count,
        files_checked=measures.files_checked,
        files_damaged=len(measures.damage),
        latency_ms=latency_ms,
        score=health.score,
        reasons=health.reasons,
        checks=checks,
    )


def report_unreadable(
    url: str, error: LakehandError, *, started: float, clock: Clock
) -> HealthReport:
    """Return the report of a table at `url` that cannot be read."""
    return HealthReport(
        table=url,
        healthy=False,
        latency_ms=(clock.monotonic() - started) * 1000,
        score=0,
        reasons=(Reason(code="unreadable", points=100, message=error.message),),
        error=error.to_json(),
    )


def sampled_rows(file_count: int, version: int) -> range:
    """Return which files of a version are checked: evenly spread, others for each version."""
    step = max(1, -(-file_count // _SAMPLED_FILES))
    return range(version % step, file_count, step)


def _damage(table: FormatTable, snapshot: Snapshot) -> dict[str, Any]:
    """Check some files in storage, and return the problem of each damaged one."""
    rows = sampled_rows(snapshot.file_count, snapshot.version)
    if not rows:
        return {}
    worker = table.worker(snapshot)
    if not isinstance(worker, FileCheckWorker):
        return {}
    found = worker.check_files(snapshot.files.take(pa.array(rows, pa.int64())))
    by_path = {finding.path: f"{finding.name} {finding.path}" for finding in reversed(found)}
    return {"files_checked": len(rows), "damage": tuple(by_path.values())}


def _uncovered_age(table: FormatTable, measures: Measures, clock: Clock) -> timedelta | None:
    # Below the interval no checkpoint is due, whatever the age of commits.
    if not measures.is_checkpoint_due:
        return None
    uncovered = table.history(limit=measures.commits_since_checkpoint)
    return clock.now() - uncovered[-1].at


def _orphan_bytes(table: FormatTable, settings: Settings, clock: Clock) -> int:
    # Without a grace period, a dry run includes quarantined files.
    at_once = settings.with_call({"grace": "0"})
    report = vacuum(table, settings=at_once, dry_run=True, clock=clock)
    return report.bytes_freed + report.bytes_quarantined


def _overlap_depth(table: FormatTable, snapshot: Snapshot) -> float | None:
    columns = clustering_columns(table, snapshot)
    if not columns:
        return None
    files = table.snapshot(version=snapshot.version, statistics=columns).files
    return overlap_depth(extents_of(files, columns)).average


def _checks(measures: Measures, settings: Settings) -> Iterator[Check]:
    damaged = len(measures.damage)
    yield Check(code="damaged_files", value=damaged, limit=0, passed=not damaged)
    # What no automatic run would compact is no reason for an alarm.
    small = measures.automatic_excess_file_count / max(measures.file_count, 1)
    yield _check("small_file_ratio", small, settings)
    yield _check("deleted_row_ratio", measures.deleted_row_ratio, settings)
    yield _check("commits_since_checkpoint", measures.commits_since_checkpoint, settings)
    age, oldest = measures.overdue_age, settings.max_checkpoint_age
    yield Check(
        code="checkpoint_age",
        value=age.total_seconds(),
        limit=oldest.total_seconds(),
        passed=age <= oldest,
    )
    if measures.overlap_depth is not None:
        yield _check("overlap_depth", measures.overlap_depth, settings)
    if measures.orphan_bytes is not None:
        yield _check("orphan_bytes", measures.orphan_bytes, settings)


def _check(code: str, value: float, settings: Settings) -> Check:
    limit = settings[f"max_{code}"]
    return Check(code=code, value=value, limit=limit, passed=value <= limit)
