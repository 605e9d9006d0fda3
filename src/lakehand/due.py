"""What is due on a table, and doing it: for schedules, and for sinks beside their commits.

Each step decides for itself whether there is something to do, by the rules of its own verb: the
plan of an automatic run, the retention, the interval of checkpoints. Here they are only put
together, so that one call does them all and one failure stops no other.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.assess.inspect import measure
from lakehand.errors import (
    ObjectNotFoundError,
    RefusedError,
    StorageError,
    ValidationError,
    describe_error,
)
from lakehand.maintain import cluster, compact
from lakehand.model.maintenance import MaintenanceReport, MaintenanceStep
from lakehand.model.order import order_of, parse_order
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.observe.clock import SystemClock
from lakehand.observe.logs import get_logger, log_event
from lakehand.planning.reasons import CHOSEN_WORDS, LEFT_WORDS, Reason
from lakehand.retention.log_upkeep import checkpoint, clean_logs
from lakehand.retention.vacuum import vacuum
from lakehand.rewrite.ordering import resolve_order
from lakehand.rewrite.prepare import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.maintenance import StepOutcome
    from lakehand.model.order import Order
    from lakehand.model.reports import OperationReport, Outcome
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress, Progress
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["STEPS", "maintain", "rewrite_if_due", "vacuum_if_due", "vacuum_wait"]

#: Steps by their verbs; a table is either compacted or clustered.
STEPS = ("compact", "cluster", "vacuum", "checkpoint", "clean_logs")
#: When the table was vacuumed last, where `vacuum_interval` asks for it.
_VACUUMED = "_lakehand/vacuumed.json"
#: Files that are as they should be are not called left.
_IN_SHAPE = (Reason.LARGE_ENOUGH, Reason.IN_ORDER, Reason.ADOPTED)
_logger = get_logger(__name__)


def maintain(
    table: FormatTable,
    *,
    settings: Settings,
    skip: Collection[str] = (),
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> MaintenanceReport:
    """Do whatever is due. A step that fails is reported, and the others are taken all the same."""
    clock = clock or SystemClock()
    started = clock.monotonic()
    common = {"dry_run": dry_run, "spark": spark, "clock": clock}
    work = _Maintenance(table, settings, _Listener(on_progress), _verbs(skip), common)
    steps = work.run()
    is_changed = any(step.outcome == "committed" for step in steps)
    done: Outcome = "committed" if is_changed else "nothing_to_do"
    return MaintenanceReport(
        outcome="dry_run" if dry_run else done,
        table=table.store.url,
        version=work.version,
        steps=steps,
        dry_run=dry_run,
        errors=tuple(error for step in steps for error in step.errors),
        duration_ms=(clock.monotonic() - started) * 1000,
    )


def _verbs(skip: Collection[str]) -> frozenset[str]:
    verbs = frozenset(name.replace("-", "_") for name in skip)
    unknown = min(verbs - set(STEPS), default=None)
    if unknown is not None:
        message = f"no step named {unknown!r}; there are: {', '.join(STEPS)}"
        raise ValidationError(message, field="skip", value=unknown)
    return verbs


# Single steps, as sinks take them, too.


@dataclass(frozen=True, slots=True)
class _Choice:
    """How files are rewritten, and why not in an order that the table has."""

    request: Request
    note: str | None = None


def rewrite_if_due(
    table: FormatTable,
    *,
    settings: Settings,
    spark: Any = None,
    on_progress: OnProgress | None = None,
) -> OperationReport:
    """Rewrite what an automatic run would: in the order of the table, if it has one."""
    snapshot = table.snapshot()
    choice = _choose_rewrite(table, snapshot)
    return _rewrite(
        table, choice, snapshot, settings=settings, spark=spark, on_progress=on_progress
    )


def _rewrite(
    table: FormatTable, choice: _Choice, snapshot: Snapshot, **options: Any
) -> OperationReport:
    verb = cluster if choice.request.operation == "cluster" else compact
    return verb(table, request=choice.request, snapshot=snapshot, **options)


def _choose_rewrite(table: FormatTable, snapshot: Snapshot) -> _Choice:
    """Choose to cluster where the table has an order that it can be given, else to compact."""
    order = _order_of_table(table, snapshot)
    if order is None:
        return _Choice(Request(automatic=True))
    try:
        table.require("order", snapshot)
        known = snapshot.partition_columns
        resolve_order(order.terms, order.curve, snapshot.schema, partition_columns=known)
    except (RefusedError, ValidationError) as error:
        note = f"rows are not put in order by {', '.join(order.texts)}: {error.message}"
        return _Choice(Request(automatic=True), note)
    request = Request(automatic=True, operation="cluster", by=order.texts, curve=order.curve)
    return _Choice(request)


def _order_of_table(table: FormatTable, snapshot: Snapshot) -> Order | None:
    """Return the order that the table declares, or that most of its bytes were put into."""
    stored = _most_stored(table.stored_orders(snapshot), snapshot.files["bytes"])
    declared = table.clustering(snapshot)
    if declared and (stored is None or set(stored.columns) != set(declared)):
        return order_of(declared, "hilbert")
    return stored


def _most_stored(orders: pa.Array, sizes: pa.ChunkedArray) -> Order | None:
    # An order that was tried on a few files is no reason to sort all the others.
    half = (pc.sum(sizes).as_py() or 0) / 2
    grouped = pa.table({"order": orders, "bytes": sizes}).group_by("order")
    totals = grouped.aggregate([("bytes", "sum")]).drop_null().to_pylist()
    most = next((row["order"] for row in totals if row["bytes_sum"] > half), None)
    return None if most is None else parse_order(most)


def vacuum_wait(table: FormatTable, *, settings: Settings, clock: Clock) -> timedelta:
    """Return how long `vacuum_interval` still asks to wait since the last vacuum; 0: not at all."""
    interval: timedelta | None = settings["vacuum_interval"]
    last = _vacuumed_at(table.store) if interval is not None else None
    now = clock.now()
    if interval is None or last is None or last > now:
        return timedelta(0)
    return max(interval - (now - last), timedelta(0))


def vacuum_if_due(
    table: FormatTable,
    *,
    settings: Settings,
    clock: Clock,
    dry_run: bool = False,
    **options: Any,
) -> VacuumReport | None:
    """Vacuum, and note when, unless the last time is not long enough ago: None then."""
    if vacuum_wait(table, settings=settings, clock=clock):
        return None
    report = vacuum(table, settings=settings, clock=clock, dry_run=dry_run, **options)
    if settings["vacuum_interval"] is not None and not (dry_run or report.errors):
        _note_vacuumed(table.store, clock.now())
    return report


def _vacuumed_at(store: Store) -> datetime | None:
    try:
        return datetime.fromisoformat(json.loads(store.get(_VACUUMED))["at"])
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        # To vacuum once too often does no harm.
        return None


def _note_vacuumed(store: Store, at: datetime) -> None:
    try:
        store.put(_VACUUMED, json.dumps({"at": at.isoformat()}).encode())
    except StorageError as error:
        message = "When %s was vacuumed could not be noted, so it will be again: %s"
        log_event(_logger, logging.WARNING, "vacuum_not_noted", message, store.url, error.message)


# All of them.


class _Listener:
    """Hands progress on, and remembers whether its caller wants all of it to stop."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self.wants_to_stop = False

    def __call__(self, progress: Progress) -> None:
        if self._tell is None:
            return
        try:
            self._tell(progress)
        except BaseException:
            self.wants_to_stop = True
            raise


class _Maintenance:
    """One call under way."""

    def __init__(
        self,
        table: FormatTable,
        settings: Settings,
        listener: _Listener,
        skip: Collection[str],
        common: Mapping[str, Any],
    ) -> None:
        self._table = table
        self._settings = settings
        self._listener = listener
        self._skip = skip
        self._dry_run: bool = common["dry_run"]
        self._clock: Clock = common["clock"]
        self._common = {**common, "on_progress": listener, "settings": settings}
        self._snapshot = table.snapshot()
        self.version = self._snapshot.version

    def run(self) -> tuple[MaintenanceStep, ...]:
        """Take the steps. What a vacuum commits is folded by the checkpoint, so that comes last."""
        return (
            self._guard("compact", self._rewrite),
            self._take("vacuum", self._vacuum),
            self._take("checkpoint", self._checkpoint),
            self._take("clean_logs", self._clean_logs),
        )

    def _take(self, verb: str, step: Callable[[], MaintenanceStep]) -> MaintenanceStep:
        lacking = self._table.capabilities.lacking.get(verb)
        if verb in self._skip or lacking is not None:
            reason = "not wanted" if lacking is None else lacking
            return MaintenanceStep(step=verb, outcome="left_out", reason=reason)
        return self._guard(verb, step)

    def _guard(self, verb: str, step: Callable[[], MaintenanceStep]) -> MaintenanceStep:
        try:
            return step()
        except Exception as error:
            if self._listener.wants_to_stop:
                raise
            _logger.debug("A step failed", exc_info=True, extra={"event": "step_failed"})
            document = describe_error(error)
            return MaintenanceStep(
                step=verb, outcome="failed", reason=document["message"], error=document
            )

    def _rewrite(self) -> MaintenanceStep:
        choice = _choose_rewrite(self._table, self._snapshot)
        return self._take(choice.request.operation, lambda: self._rewrite_as(choice))

    def _rewrite_as(self, choice: _Choice) -> MaintenanceStep:
        report = _rewrite(self._table, choice, self._snapshot, **self._common)
        is_changed = report.outcome == "committed" or bool(report.indices_updated)
        self._read_again(if_changed=is_changed, version=report.version)
        is_due = bool(report.groups.planned or report.indices_updated)
        return MaintenanceStep(
            step=report.operation,
            outcome=self._outcome(is_due=is_due),
            is_due=is_due,
            reason=_rewrite_reason(report),
            left=tuple(_left_by_rewrite(report, choice.note)),
            report=report,
        )

    def _vacuum(self) -> MaintenanceStep:
        report = vacuum_if_due(self._table, **self._common)
        if report is None:
            interval = format_duration(self._settings["vacuum_interval"])
            reason = f"the last vacuum is less than {interval} ago (vacuum_interval)"
            return MaintenanceStep(
                step="vacuum", outcome="nothing_to_do", is_due=False, reason=reason
            )
        self._read_again(if_changed=report.outcome == "committed", version=report.version)
        gone = report.files_deleted + report.files_quarantined
        is_due = bool(gone or report.files_swept or report.errors)
        return MaintenanceStep(
            step="vacuum",
            outcome=self._outcome(is_due=is_due),
            is_due=is_due,
            reason=_vacuum_reason(report, gone),
            left=tuple(_left_by_vacuum(report)),
            report=report,
        )

    def _checkpoint(self) -> MaintenanceStep:
        snapshot = self._snapshot
        measures = measure(snapshot, settings=self._settings.with_properties(snapshot.properties))
        commits = format_count(measures.commits_since_checkpoint, "commit")
        is_due = measures.is_checkpoint_due
        report = None
        if is_due and not self._dry_run:
            report = checkpoint(self._table, clock=self._clock)
        return MaintenanceStep(
            step="checkpoint",
            outcome=self._outcome(is_due=is_due),
            is_due=is_due,
            reason=f"{commits} to replay; due every {measures.checkpoint_interval}",
            report=report,
        )

    def _clean_logs(self) -> MaintenanceStep:
        report = clean_logs(self._table, dry_run=self._dry_run, clock=self._clock)
        is_due = bool(report.files or report.errors)
        reason = report.reason or "nothing in the log is old enough"
        left = (f"more of the log: {report.reason}",) if is_due and report.reason else ()
        if is_due:
            reason = f"{format_count(len(report.files), 'file')} older than the log's retention"
        return MaintenanceStep(
            step="clean_logs",
            outcome=self._outcome(is_due=is_due),
            is_due=is_due,
            reason=reason,
            left=left,
            report=report,
        )

    def _outcome(self, *, is_due: bool) -> StepOutcome:
        if not is_due:
            return "nothing_to_do"
        return "dry_run" if self._dry_run else "committed"

    def _read_again(self, *, if_changed: bool, version: int) -> None:
        """Look at the table again, if this call changed it or somebody else made a `version`."""
        if if_changed or version != self._snapshot.version:
            self._snapshot = self._table.snapshot()
            self.version = self._snapshot.version


def _rewrite_reason(report: OperationReport) -> str:
    parts = [
        f"{format_count(count, 'file')} {CHOSEN_WORDS.get(reason, reason)}"
        for reason, count in report.files_chosen.items()
    ]
    if report.indices_updated:
        parts.append(f"indices that did not know all rows: {', '.join(report.indices_updated)}")
    return "; ".join(parts) or "no file to rewrite now"


def _left_by_rewrite(report: OperationReport, note: str | None) -> Iterator[str]:
    if note is not None:
        yield note
    for reason, count in report.files_left.items():
        if reason not in _IN_SHAPE:
            yield f"{format_count(count, 'file')}: {LEFT_WORDS.get(reason, reason)}"
    if report.groups.dropped:
        yield f"{format_count(report.groups.dropped, 'group')} lost to concurrent writers"


def _vacuum_reason(report: VacuumReport, gone: int) -> str:
    retention = format_duration(timedelta(seconds=report.retention_seconds))
    parts = []
    if gone:
        size = format_bytes(report.bytes_freed + report.bytes_quarantined)
        files = format_count(gone, "file")
        parts.append(f"{files} ({size}) that no version of the last {retention} needs")
    if report.files_swept:
        parts.append(f"{format_count(report.files_swept, 'file')} of runs that died")
    return "; ".join(parts) or f"every file is needed, or younger than {retention}"


def _left_by_vacuum(report: VacuumReport) -> Iterator[str]:
    if report.files_waiting:
        yield f"{format_count(report.files_waiting, 'file')} set aside before, within their grace"
    if report.kept.pinned:
        names = ", ".join(holder.name for holder in report.holders)
        yield f"{format_count(report.kept.pinned, 'file')} needed by pins only: {names}"
