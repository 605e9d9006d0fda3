"""The verb `maintain`: whatever is due, in one call; a failed step does not stop the others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.assess.inspection import measure
from lakehand.errors import ValidationError, describe_error
from lakehand.formats.optional import reason_against
from lakehand.maintenance.due_steps import RewriteChoice, carry_out, choose_rewrite, vacuum_if_due
from lakehand.model.maintenance import MAINTENANCE_STEPS, MaintenanceReport, MaintenanceStep
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.observe import OnProgress, Progress, get_logger, reported
from lakehand.observe.clock import Clock, Stopwatch, SystemClock
from lakehand.planning.policy import (
    LEFT_DESCRIPTIONS,
    Reason,
    describe_chosen,
)
from lakehand.retention.log_maintenance import checkpoint, clean_logs
from lakehand.runs.control import is_winding_down

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.maintenance import MaintenanceOutcome, StepOutcome
    from lakehand.model.reports import OperationReport
    from lakehand.model.retention import VacuumReport
    from lakehand.settings import Settings

_STOPPED_EARLY = "stopped early"
#: Files that are as they should be are not called left.
_IN_SHAPE = (Reason.LARGE_ENOUGH, Reason.IN_ORDER, Reason.ADOPTED)


def rewrite_reason(report: OperationReport) -> str:
    parts = [describe_chosen(reason, count) for reason, count in report.files_chosen.items()]
    if report.indices_updated:
        parts.append(f"indices that did not know all rows: {', '.join(report.indices_updated)}")
    if report.left_to_runs and not parts:
        parts.append(f"being rewritten by run {', '.join(report.left_to_runs)}")
    if Reason.DISABLED in report.files_left and not parts:
        parts.append("automatic compaction is off")
    return "; ".join(parts) or "no file to rewrite now"


def left_by_rewrite(report: OperationReport, note: str | None) -> Iterator[str]:
    if note is not None:
        yield note
    for reason, count in report.files_left.items():
        if reason not in _IN_SHAPE:
            yield f"{format_count(count, 'file')}: {LEFT_DESCRIPTIONS.get(reason, reason)}"
    if report.groups.dropped:
        yield f"{format_count(report.groups.dropped, 'group')} lost to concurrent writers"


def vacuum_reason(report: VacuumReport, gone: int) -> str:
    retention = format_duration(timedelta(seconds=report.retention_seconds))
    parts = []
    if gone:
        size = format_bytes(report.bytes_freed + report.bytes_quarantined)
        files = format_count(gone, "file")
        parts.append(f"{files} ({size}) that no version of the last {retention} needs")
    if report.files_swept:
        parts.append(f"{format_count(report.files_swept, 'file')} of runs that died")
    return "; ".join(parts) or f"every file is needed, or younger than {retention}"


def left_by_vacuum(report: VacuumReport) -> Iterator[str]:
    if report.files_waiting:
        yield f"{format_count(report.files_waiting, 'file')} in quarantine, within the grace period"
    if report.kept.pinned:
        names = ", ".join(holder.name for holder in report.holders)
        yield f"{format_count(report.kept.pinned, 'file')} needed by pins only: {names}"


_logger = get_logger(__name__)


@reported
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
    """Do whatever is due. A step that fails is reported, and the others are still taken."""
    clock = clock or SystemClock()
    watch = Stopwatch(clock)
    common = {"dry_run": dry_run, "spark": spark, "clock": clock}
    work = _Maintenance(table, settings, _Listener(on_progress), _verbs(skip), common)
    steps = work.run()
    return MaintenanceReport(
        outcome="dry_run" if dry_run else _sum_of(steps),
        table=table.store.url,
        version=work.version,
        steps=steps,
        dry_run=dry_run,
        stopped_early=any(_is_part(step) for step in steps),
        errors=tuple(error for step in steps for error in step.errors),
        duration_ms=watch.total_milliseconds(),
    )


def _is_part(step: MaintenanceStep) -> bool:
    """Say whether a step, or a part of it, was not begun because the call was wound down."""
    return step.reason == _STOPPED_EARLY or getattr(step.report, "stopped_early", False)


def _sum_of(steps: Collection[MaintenanceStep]) -> MaintenanceOutcome:
    outcomes = {step.outcome for step in steps}
    if "committed" in outcomes:
        return "committed"
    return "failed" if "failed" in outcomes else "nothing_to_do"


def _verbs(skip: Collection[str]) -> frozenset[str]:
    verbs = frozenset(name.replace("-", "_") for name in skip)
    unknown = min(verbs - set(MAINTENANCE_STEPS), default=None)
    if unknown is not None:
        message = f"no step named {unknown!r}; there are: {', '.join(MAINTENANCE_STEPS)}"
        raise ValidationError(message, field="skip", value=unknown)
    return verbs


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
        """Take the steps. The checkpoint is last, so that it includes the commits of the vacuum."""
        return (
            self._guard("compact", self._rewrite),
            self._take("vacuum", self._vacuum),
            self._take("checkpoint", self._checkpoint),
            self._take("clean_logs", self._clean_logs),
        )

    def _take(self, verb: str, step: Callable[[], MaintenanceStep]) -> MaintenanceStep:
        lacking = reason_against(self._table, verb)
        if verb in self._skip or lacking is not None:
            reason = "not wanted" if lacking is None else lacking
            return MaintenanceStep(step=verb, outcome="left_out", reason=reason)
        if is_winding_down():
            return MaintenanceStep(step=verb, outcome="left_out", reason=_STOPPED_EARLY)
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
        choice = choose_rewrite(self._table, self._snapshot, self._settings)
        return self._take(choice.request.operation, lambda: self._rewrite_as(choice))

    def _rewrite_as(self, choice: RewriteChoice) -> MaintenanceStep:
        report = carry_out(self._table, choice, self._snapshot, **self._common)
        is_changed = report.outcome == "committed" or bool(report.indices_updated)
        self._read_again(if_changed=is_changed, version=report.version)
        is_due = bool(report.groups.planned or report.indices_updated)
        return MaintenanceStep(
            step=report.operation,
            outcome=self._outcome(is_due=is_due, is_done=is_changed),
            is_due=is_due,
            reason=rewrite_reason(report),
            left=tuple(left_by_rewrite(report, choice.note)),
            report=report,
        )

    def _vacuum(self) -> MaintenanceStep:
        report = vacuum_if_due(self._table, **self._common)
        if report is None:
            interval = format_duration(self._settings.vacuum_interval or timedelta(0))
            reason = f"the last vacuum is less than {interval} ago (vacuum_interval)"
            return MaintenanceStep(
                step="vacuum", outcome="nothing_to_do", is_due=False, reason=reason
            )
        self._read_again(if_changed=report.outcome == "committed", version=report.version)
        gone = report.files_deleted + report.files_quarantined
        is_due = bool(gone or report.files_swept or report.errors)
        is_done = report.outcome == "committed"
        return MaintenanceStep(
            step="vacuum",
            outcome=self._outcome(is_due=is_due, is_done=is_done, has_failed=bool(report.errors)),
            is_due=is_due,
            reason=vacuum_reason(report, gone),
            left=tuple(left_by_vacuum(report)),
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
        is_done = report.outcome == "committed"
        return MaintenanceStep(
            step="clean_logs",
            outcome=self._outcome(is_due=is_due, is_done=is_done, has_failed=bool(report.errors)),
            is_due=is_due,
            reason=reason,
            left=left,
            report=report,
        )

    def _outcome(
        self, *, is_due: bool, is_done: bool = True, has_failed: bool = False
    ) -> StepOutcome:
        """Return the outcome of a step that may have been due, and may have done nothing."""
        if is_due and self._dry_run:
            return "dry_run"
        if is_due and is_done:
            return "committed"
        return "failed" if has_failed else "nothing_to_do"

    def _read_again(self, *, if_changed: bool, version: int) -> None:
        """Read the table again, if this call changed it or another writer made a `version`."""
        if if_changed or version != self._snapshot.version:
            self._snapshot = self._table.snapshot()
            self.version = self._snapshot.version
