"""The story on one page: snapshot -> plan -> rewrite -> prove -> commit.

Nothing is changed unless every step before the commit has succeeded. A run that dies at any point
leaves the table as it was, and its ledger tells the next run which files it may have left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.engine import CancelToken, open_runner
from lakehand.errors import error_from_json
from lakehand.formats.base import TaskLimits, WriteSpec
from lakehand.model.work import Change, GroupResult, Replacement
from lakehand.observe import Progress
from lakehand.observe.clock import Clock, SystemClock
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.rewrite.report import Done, report_of
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Heartbeat, Run, commit_results, sweep

if TYPE_CHECKING:
    from lakehand.engine import TaskOutcome
    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import OperationReport, Outcome
    from lakehand.observe import OnProgress
    from lakehand.rewrite.prepare import Work
    from lakehand.settings import Settings

__all__ = ["compact"]

#: Part of a task's memory that one row group may take.
_ROW_GROUP_SHARE = 16
_MAX_ROW_GROUP_BYTES = 64 * 2**20


def compact(
    table: FormatTable,
    *,
    settings: Settings,
    request: Request | None = None,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> OperationReport:
    """Rewrite small files, and files with deleted rows, into files of the target size.

    Every group is proved to hold the same rows before anything is committed. Concurrent writers
    are not disturbed; a group whose files one of them removed is left out.
    """
    watch = Stopwatch(clock or SystemClock())
    if not dry_run:
        sweep(table, clock=watch.clock, takeover_after=settings["takeover_after"])
    with watch.measure("plan"):
        planned = make_plan(table, settings, request or Request(), clock=watch.clock)
    if dry_run or not planned.plan.groups:
        outcome: Outcome = "dry_run" if dry_run else "nothing_to_do"
        return report_of(planned.snapshot, planned.plan, watch, outcome=outcome)
    work = prepare(planned)
    done = _rewrite_and_commit(work, watch, spark=spark, on_progress=on_progress)
    return report_of(work.snapshot, work.plan, watch, outcome="committed", done=done)


def _rewrite_and_commit(
    work: Work, watch: Stopwatch, *, spark: Any, on_progress: OnProgress | None
) -> Done:
    plan = {"operation": "compact", "groups": [group.to_json() for group in work.groups]}
    run = Run.start(work.table.store, plan, snapshot=work.snapshot, clock=watch.clock)
    try:
        outcomes = _rewrite(work, run, spark=spark, on_progress=on_progress)
        results, failures = _sort_out(outcomes)
        with watch.measure("commit"):
            receipt = commit_results(run, work.table, _change(work, results), results=results)
    finally:
        # What was not committed is deleted here; what may have been is kept.
        run.finish()
    return Done(groups=work.groups, results=results, failures=failures, receipt=receipt)


def _rewrite(
    work: Work, run: Run, *, spark: Any, on_progress: OnProgress | None
) -> list[TaskOutcome]:
    """Rewrite and prove every group in a task of its own."""
    row_group_bytes = work.settings["task_memory_bytes"] // _ROW_GROUP_SHARE
    spec = WriteSpec(
        target_file_bytes=work.settings["target_file_bytes"],
        row_group_bytes=min(row_group_bytes, _MAX_ROW_GROUP_BYTES),
    )
    task = RewriteTask(
        worker=work.table.worker(work.snapshot),
        run=run,
        spec=spec,
        limits=_limits(work),
        prove=work.settings["prove"],
    )
    payloads = [{"group": group.to_json()} for group in work.groups]
    cancel = CancelToken()
    counter = _Counter(len(payloads), on_progress)
    interval = work.settings["heartbeat_interval"]
    with (
        Heartbeat(run, interval=interval, on_stop=cancel.cancel),
        open_runner(work.settings, spark=spark) as runner,
    ):
        return runner.run(task, payloads, run=run, on_result=counter.count, cancel=cancel)


def _limits(work: Work) -> TaskLimits:
    return TaskLimits(
        memory_bytes=work.settings["task_memory_bytes"],
        scratch_bytes=work.settings["scratch_bytes"],
        scratch_directory=work.settings["scratch_directory"],
    )


class _Counter:
    """Tells how many groups are done; raising from the callback cancels the run."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._total = total
        self._done = 0
        self._on_progress = on_progress or (lambda _progress: None)

    def count(self, _outcome: TaskOutcome) -> None:
        self._done += 1
        done = Progress(phase="rewrite", done=self._done, total=self._total, unit="groups")
        self._on_progress(done)


def _sort_out(
    outcomes: list[TaskOutcome],
) -> tuple[tuple[GroupResult, ...], tuple[dict[str, Any], ...]]:
    """Return results and failures; if there are no results, the first failure is raised."""
    results = tuple(
        GroupResult.from_json(outcome.result) for outcome in outcomes if outcome.result is not None
    )
    failures = tuple(dict(outcome.failure) for outcome in outcomes if outcome.failure is not None)
    if not results:
        raise error_from_json(failures[0])
    return results, failures


def _change(work: Work, results: tuple[GroupResult, ...]) -> Change:
    """Return what one commit does: the inputs of every proved group give way to its outputs."""
    groups = {group.id: group for group in work.groups}
    return Change(
        kind="rewrite",
        base_version=work.snapshot.version,
        table_id=work.snapshot.table_id,
        operation="OPTIMIZE",
        parameters={
            "predicate": [work.plan.where] if work.plan.where else [],
            "zOrderBy": [],
            "auto": work.request.automatic,
        },
        replacements=tuple(
            Replacement(
                group=result.group, removes=groups[result.group].inputs, adds=result.outputs
            )
            for result in results
        ),
        proof={str(result.group): result.proof.to_json() for result in results if result.proof},
    )
