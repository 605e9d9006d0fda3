"""What an earlier run left undone: its proved groups go on, and only the rest is planned anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.rewrite.prepare import plan_again, prepare
from lakehand.rewrite.rivals import require_free, rivals_at_work
from lakehand.runs import earlier_than, resume

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.rewrite.prepare import Planned, Work
    from lakehand.runs import Run

__all__ = ["describe_work", "take_over", "yield_to_earlier"]


def describe_work(planned: Planned) -> dict[str, Any]:
    """Return what a run is about, for its ledger: results of equal ones fit each other."""
    request, settings = planned.request, planned.settings
    return {
        "operation": planned.plan.operation,
        "where": planned.plan.where,
        "order": list(planned.plan.order),
        "curve": planned.plan.curve,
        "full": request.full,
        "target_file_bytes": settings["target_file_bytes"],
        "prove": settings["prove"],
        # A function, or a plan made earlier, may choose otherwise the next time.
        "chosen_by_hand": request.file_filter is not None or request.plan is not None,
    }


def yield_to_earlier(planned: Planned, run: Run) -> Planned:
    """Leave files to runs that began before `run`, and that its plan did not know of."""
    rivals = rivals_at_work(planned.table, planned.settings, run.clock, but=run.id)
    paths = set(planned.paths)
    earlier = [one for one in earlier_than(run, rivals) if not paths.isdisjoint(one.inputs)]
    if not earlier:
        return planned
    if planned.request.plan is not None:
        require_free(planned.request.plan, earlier)
    again = plan_again(planned, without=(), rivals=rivals, clock=run.clock)
    run.publish_inputs(again.paths)
    return again


def take_over(planned: Planned, run: Run) -> Work:
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
        takeover_after=planned.settings["takeover_after"],
        # No plan of this snapshot counts so far.
        first_group=planned.snapshot.file_count,
    )
    if not adopted:
        return prepare(planned)
    rewritten = {file.path for item in adopted for file in item.group.inputs}
    rivals = rivals_at_work(planned.table, planned.settings, run.clock, but=run.id)
    again = plan_again(planned, without=rewritten, rivals=rivals, clock=run.clock)
    run.publish_inputs([*again.paths, *rewritten])
    work = prepare(again)
    return replace(work, adopted=tuple(adopted))
