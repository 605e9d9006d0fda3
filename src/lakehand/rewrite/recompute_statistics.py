"""File statistics recomputed, without a data file being written."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lakehand.errors import LakehandError, error_from_json
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsStatistics
from lakehand.formats.scan import columns_with_bounds, with_bounds
from lakehand.model.reports import EngineName, Outcome, StatisticsReport
from lakehand.model.work import Change, DataFile, Receipt, Refreshed
from lakehand.observe import reported
from lakehand.observe.clock import Clock, Stopwatch
from lakehand.planning.restriction import files_outside_predicate
from lakehand.runs.operation import Call, CallOptions, divide_files, open_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.engine import TaskOutcome
    from lakehand.formats.worker import StatisticsWorker
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.footer_survey import Flags
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsRequest:
    """Which files a call is about. Default: those with missing or incomplete statistics."""

    #: Only files whose rows all fulfil this condition.
    where: str | None = None
    #: Files with complete statistics, too.
    full: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsTask:
    """A function from files to their statistics, as JSON. Picklable: it travels to the tasks."""

    worker: StatisticsWorker
    clock: Clock

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        watch = Stopwatch(self.clock)
        found = list(watch.iterate("read", self.worker.refresh(files)))
        return {
            "refreshed": [_without_file(item) for item in found if isinstance(item, Refreshed)],
            # One bad file is no reason to leave the others without statistics.
            "failures": [item.to_json() for item in found if isinstance(item, LakehandError)],
            "timings": watch.milliseconds(),
        }


def _without_file(refreshed: Refreshed) -> dict[str, Any]:
    """Return what the driver does not know: the file itself need not travel back."""
    return {**asdict(refreshed), "file": refreshed.file.path}


@reported
def recompute_statistics(
    table: FormatTable,
    *,
    settings: Settings,
    request: StatisticsRequest,
    **options: Unpack[CallOptions],
) -> StatisticsReport:
    """Recompute missing or incomplete statistics of files, and commit them.

    Rows and files do not change, nor does anything else that the log says of a file.
    """
    call = Call.begin("statistics", table, settings, options)
    watch = call.watch
    with watch.measure("plan"):
        chosen = _choose(table, settings, request, watch.clock)
    call = replace(call, settings=chosen.settings)
    if call.dry_run or not chosen.files:
        return _report(chosen, watch, outcome="dry_run" if call.dry_run else "nothing_to_do")
    done = _compute(chosen, call)
    if not done.refreshed:
        if len(done.failures) == len(chosen.files):
            raise error_from_json(done.failures[0])
        return _report(chosen, watch, outcome="nothing_to_do", done=done)
    with watch.measure("commit"):
        receipt = table.commit(_change(chosen, done.refreshed), token=f"lakehand-{uuid.uuid4()}")
    return _report(chosen, watch, outcome="committed", done=done, receipt=receipt)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chosen:
    """What a call is about."""

    table: SupportsStatistics
    snapshot: Snapshot
    settings: Settings
    request: StatisticsRequest
    files: tuple[DataFile, ...]
    remaining: int


def _choose(
    table: FormatTable, settings: Settings, request: StatisticsRequest, clock: Clock
) -> _Chosen:
    table = require_support(table, SupportsStatistics, operation="statistics")
    snapshot = table.snapshot()
    table.require("rewrite", snapshot)
    in_force = settings.with_properties(snapshot.properties)
    wanted = np.ones(snapshot.file_count, np.bool_)
    if not request.full:
        wanted &= table.lacks_statistics(snapshot).to_numpy(zero_copy_only=False)
    if request.where is not None:
        wanted &= ~_outside(table, snapshot, request.where, clock)
    rows = np.flatnonzero(wanted)
    kept = rows[: _most_files(snapshot, rows, in_force)]
    return _Chosen(
        table=table,
        snapshot=snapshot,
        settings=in_force,
        request=request,
        files=table.data_files(snapshot, kept.tolist()),
        remaining=len(rows) - len(kept),
    )


def _outside(table: FormatTable, snapshot: Snapshot, where: str, clock: Clock) -> Flags:
    from lakehand.expressions.predicate import parse_predicate  # SQL takes long to import

    predicate = parse_predicate(where, snapshot.schema, clock=clock)
    bounded = with_bounds(table, snapshot, columns_with_bounds(predicate, snapshot))
    return files_outside_predicate(predicate, bounded.files)


def _most_files(snapshot: Snapshot, rows: np.ndarray, settings: Settings) -> int:
    """Return how many of the chosen files the caps of a run allow; one at least."""
    count: int = settings.max_files_per_run or len(rows)
    most_bytes = settings.max_bytes_per_run
    if most_bytes is not None:
        total = np.cumsum(snapshot.files["bytes"].to_numpy()[rows])
        count = min(count, max(1, int(np.searchsorted(total, most_bytes, side="right"))))
    return count


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """What the tasks returned."""

    refreshed: tuple[Refreshed, ...]
    unchanged: int
    rows_read: int
    failures: tuple[Mapping[str, Any], ...]
    read_ms: float
    ran_on: EngineName


def _compute(chosen: _Chosen, call: Call) -> _Done:
    task = StatisticsTask(worker=chosen.table.worker(chosen.snapshot), clock=call.clock)
    read_bytes = sum(file.bytes for file in chosen.files)
    with open_tasks(call, read_bytes=read_bytes, snapshot=chosen.snapshot) as tasks:
        outcomes = tasks.over_files("read", task, divide_files(chosen.files))
    return _gather(chosen, outcomes, ran_on=tasks.runner.engine)


def _gather(chosen: _Chosen, outcomes: Sequence[TaskOutcome], *, ran_on: EngineName) -> _Done:
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    failures = [dict(outcome.failure) for outcome in outcomes if outcome.failure is not None]
    failures += [failure for result in results for failure in result["failures"]]
    files = {file.path: file for file in chosen.files}
    found = [
        Refreshed(**{**item, "file": files[item["file"]]})
        for result in results
        for item in result["refreshed"]
    ]
    refreshed = tuple(item for item in found if not item.is_known)
    return _Done(
        refreshed=refreshed,
        unchanged=len(found) - len(refreshed),
        rows_read=sum(item.rows for item in found),
        failures=tuple(failures),
        read_ms=sum(result["timings"].get("read", 0.0) for result in results),
        ran_on=ran_on,
    )


def _change(chosen: _Chosen, refreshed: tuple[Refreshed, ...]) -> Change:
    return Change(
        kind="statistics",
        base_version=chosen.snapshot.version,
        table_id=chosen.snapshot.table_id,
        operation="statistics",
        parameters={"where": chosen.request.where},
        refreshed=refreshed,
    )


def _report(
    chosen: _Chosen,
    watch: Stopwatch,
    *,
    outcome: Outcome,
    done: _Done | None = None,
    receipt: Receipt | None = None,
) -> StatisticsReport:
    snapshot = chosen.snapshot
    timings = watch.milliseconds()
    committed = receipt.files_added if receipt else 0
    return StatisticsReport(
        outcome=outcome,
        table=snapshot.table,
        version=receipt.version if receipt else snapshot.version,
        files_before=snapshot.file_count,
        files_after=snapshot.file_count,
        files_chosen=len(chosen.files) + chosen.remaining,
        files_refreshed=committed,
        files_unchanged=done.unchanged if done else 0,
        files_dropped=len(done.refreshed) - committed if done else 0,
        files_remaining=chosen.remaining,
        rows_read=done.rows_read if done else 0,
        bytes_before=snapshot.total_bytes,
        bytes_after=snapshot.total_bytes,
        duration_ms=watch.total_milliseconds(),
        plan_ms=timings.get("plan", 0.0),
        read_ms=done.read_ms if done else 0.0,
        commit_ms=timings.get("commit", 0.0),
        retries=receipt.attempts - 1 if receipt else 0,
        errors=done.failures if done else (),
        ran_on=done.ran_on if done else None,
    )
