"""A rewrite: snapshot -> plan -> rewrite -> prove -> commit.

Nothing is changed unless every step before the commit has succeeded. A run that dies at any point
leaves the table as it was, and its ledger tells the next run what it had done already and which
files it may have left behind.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from lakehand.errors import LakehandError
from lakehand.formats.optional import SupportsIndices
from lakehand.model.order import order_of
from lakehand.observe import Progress, reported
from lakehand.rewrite.execute import Batches, rewrite_groups
from lakehand.rewrite.forecast import expected_files, rehearse
from lakehand.rewrite.prepare import (
    Request,
    make_plan,
    plan_again,
    prepare,
    require_free,
    rivals_at_work,
)
from lakehand.rewrite.prestart import INLINE_REWRITE_BYTES, start_movers_ahead
from lakehand.rewrite.report import Done, cluster_report, report_of
from lakehand.rewrite.task import keeping_reads
from lakehand.runs import Run, earlier_than, resume, sweep
from lakehand.runs.control import is_winding_down
from lakehand.runs.operation import Call, CallOptions, open_run, open_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import ClusterReport, OperationReport, Outcome
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.plan import Plan
    from lakehand.rewrite.prepare import OnSurvey, Work
    from lakehand.settings import Settings


def describe_work(planned: Work) -> dict[str, Any]:
    """Return what a run is about, for its ledger: results of equal ones fit each other."""
    request, settings = planned.request, planned.settings
    return {
        "operation": planned.plan.operation,
        "where": planned.plan.where,
        "order": list(planned.plan.order),
        "curve": planned.plan.curve,
        "full": request.full,
        "target_file_bytes": settings.target_file_bytes,
        "prove": settings.prove,
        # A function, or a plan made earlier, may choose otherwise the next time.
        "chosen_by_hand": request.file_filter is not None or request.plan is not None,
    }


def yield_to_earlier(planned: Work, run: Run) -> Work:
    """Leave files to runs that began before `run`, and that its plan did not know of."""
    rivals = rivals_at_work(planned.table, planned.settings, run.clock, but=run.id)
    paths = set(planned.plan.paths)
    earlier = [one for one in earlier_than(run, rivals) if not paths.isdisjoint(one.inputs)]
    if not earlier:
        return planned
    if planned.request.plan is not None:
        require_free(planned.request.plan, earlier)
    again = plan_again(planned, without=(), rivals=rivals, clock=run.clock)
    run.publish_inputs(again.plan.paths)
    return again


def take_over(planned: Work, run: Run) -> Work:
    """Adopt into `run` what dead runs did of the same kind, sweep the rest, and prepare the work.

    Groups that were adopted come with their results; their files are left out of the plan.
    """
    wish = describe_work(planned)

    def is_wanted(plan: Mapping[str, Any]) -> bool:
        return plan == wish and not wish["chosen_by_hand"]

    adopted = resume(
        run,
        planned.table,
        planned.snapshot,
        wanted=is_wanted,
        takeover_after=planned.settings.takeover_after,
        # No plan of this snapshot counts so far.
        first_group=planned.snapshot.file_count,
    )
    if not adopted:
        return prepare(planned)
    rewritten = {file.path for item in adopted for file in item.group.inputs}
    rivals = rivals_at_work(planned.table, planned.settings, run.clock, but=run.id)
    again = plan_again(planned, without=rewritten, rivals=rivals, clock=run.clock)
    run.publish_inputs([*again.plan.paths, *rewritten])
    work = prepare(again)
    return replace(work, adopted=tuple(adopted))


@reported
def compact(
    table: FormatTable,
    *,
    settings: Settings,
    request: Request | None = None,
    snapshot: Snapshot | None = None,
    **options: Unpack[CallOptions],
) -> OperationReport:
    """Rewrite small files, and files with deleted rows, into files of the target size.

    Every group is proved to hold the same rows before anything is committed. Concurrent writers
    are not disturbed; a group whose files one of them removed is left out. `snapshot` is the newest
    version, where the caller has read it already.
    """
    call = Call.begin("compact", table, settings, options)
    on_survey = None if call.dry_run else partial(start_movers_ahead, spark=call.spark)
    with keeping_reads(table.store, call.settings.prove):
        planned = _plan(call, request or Request(), snapshot, on_survey)
        report = _with_indices(planned, _rewrite(planned, call), dry_run=call.dry_run)
    if not planned.request.recompute_statistics:
        return report
    return _with_statistics(report, planned, call)


@reported
def cluster(
    table: FormatTable,
    *,
    settings: Settings,
    request: Request,
    snapshot: Snapshot | None = None,
    **options: Unpack[CallOptions],
) -> ClusterReport:
    """Put rows that are near each other into the same files; proved and committed as ever.

    What it did for queries is measured on the statistics of the files, before and after.
    """
    call = Call.begin("cluster", table, settings, options)
    with keeping_reads(table.store, call.settings.prove):
        planned = _plan(call, request, snapshot)
        report = _with_indices(planned, _rewrite(planned, call), dry_run=call.dry_run)
    order = order_of(planned.plan.order, planned.plan.curve or "linear")
    before = after = planned.snapshot.files
    if call.dry_run:
        after, _ = expected_files(planned, order)
    if report.outcome == "committed":
        after = table.snapshot(version=report.version, statistics=order.columns).files
    return cluster_report(report, order, before=before, after=after)


def _plan(
    call: Call, request: Request, snapshot: Snapshot | None, on_survey: OnSurvey | None = None
) -> Work:
    call.tell(Progress(phase="survey", done=0, unit="files"))
    with call.watch.measure("plan"):
        return make_plan(
            call.table,
            call.settings,
            request,
            clock=call.clock,
            snapshot=snapshot,
            on_survey=on_survey,
        )


def _rewrite(planned: Work, call: Call) -> OperationReport:
    """Do what is planned, or only say what would be done."""
    watch = call.watch
    if call.dry_run:
        return report_of(planned.snapshot, rehearse(planned).plan, watch, outcome="dry_run")
    if not planned.plan.groups:
        takeover_after = planned.settings.takeover_after
        sweep(planned.table, clock=call.clock, takeover_after=takeover_after)
        return report_of(planned.snapshot, planned.plan, watch, outcome="nothing_to_do")
    plan, done = _carry_out(planned, replace(call, settings=planned.settings))
    outcome: Outcome = "nothing_to_do" if done is None else "committed"
    report = report_of(planned.snapshot, plan, watch, outcome=outcome, done=done)
    return replace(report, stopped_early=_is_part(plan, done)) if is_winding_down() else report


def _is_part(plan: Plan, done: Done | None) -> bool:
    """Say whether groups of a plan were not begun."""
    return bool(plan.groups) and (done is None or len(done.results) < len(plan.groups))


def _with_indices(planned: Work, report: OperationReport, *, dry_run: bool) -> OperationReport:
    """Bring indices up to date; that this fails does not change what was done before.

    Rows that were put in another order are added again to the indices that knew them.
    """
    is_asked = planned.settings.update_indices
    is_moved = bool(planned.plan.order) and report.outcome == "committed"
    table = planned.table
    if dry_run or not (is_asked or is_moved) or not isinstance(table, SupportsIndices):
        return report
    since = None if is_asked else planned.snapshot
    try:
        return replace(report, indices_updated=table.update_indices(since=since))
    except LakehandError as error:
        if report.outcome != "committed":
            raise
        return replace(report, errors=(*report.errors, error.to_json()))


def _with_statistics(report: OperationReport, planned: Work, call: Call) -> OperationReport:
    """Compute statistics where files have none; that this fails does not change what was done.

    These are two commits, because a format may use another operation for refreshed entries.
    """
    from lakehand.rewrite.recompute_statistics import StatisticsRequest, recompute_statistics

    try:
        statistics = recompute_statistics(
            call.table,
            settings=call.settings,
            request=StatisticsRequest(where=planned.request.where),
            spark=call.spark,
            dry_run=call.dry_run,
            on_progress=call.on_progress,
            clock=call.clock,
        )
    except LakehandError as error:
        if report.outcome != "committed":
            raise
        return replace(report, errors=(*report.errors, error.to_json()))
    return replace(report, statistics=statistics)


def _carry_out(planned: Work, call: Call) -> tuple[Plan, Done | None]:
    """Rewrite, prove and commit the planned groups, in a run whose ledger names what it writes.

    An error does not undo earlier commits of the run. Returns the plan that was carried out
    and its results; None if all of it was left to other runs.
    """
    with open_run(call, planned.snapshot, describe_work(planned), inputs=planned.plan.paths) as (
        run,
        cancel,
    ):
        planned = yield_to_earlier(planned, run)
        if not planned.plan.groups:
            return planned.plan, None
        work = take_over(planned, run)
        with open_tasks(
            call,
            read_bytes=work.read_bytes,
            moved_bytes=work.moved_bytes,
            snapshot=planned.snapshot,
            run=run,
            cancel=cancel,
            inline_bytes=INLINE_REWRITE_BYTES,
        ) as tasks:
            batches = Batches(work, run, call, ran_on=tasks.runner.engine)
            try:
                rewrite_groups(work, run, tasks, on_result=batches.take)
                batches.commit()
            except LakehandError as error:
                batches.stop(error)
    return planned.plan, batches.done()
