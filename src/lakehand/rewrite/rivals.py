"""Other runs that are rewriting files of the table at this moment: these files are left to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ReplanError
from lakehand.model.quantities import format_count
from lakehand.runs import living_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.clock import Clock
    from lakehand.planning.plan import Plan
    from lakehand.planning.surveyed import Flags
    from lakehand.runs import LivingRun
    from lakehand.settings import Settings

__all__ = ["flags_of", "require_free", "rivals_at_work", "runs_in"]


def rivals_at_work(
    table: FormatTable, settings: Settings, clock: Clock, *, but: str | None = None
) -> tuple[LivingRun, ...]:
    """Return the other runs that are rewriting files of the table at this moment."""
    living = living_runs(table.store, clock=clock, takeover_after=settings["takeover_after"])
    return tuple(run for run in living if run.inputs and run.id != but)


def flags_of(snapshot: Snapshot, paths: Collection[str]) -> Flags:
    """Say of each file whether it is one of `paths`."""
    found = pa.array(list(paths), pa.string())
    mask = pc.is_in(snapshot.files["path"].combine_chunks(), value_set=found)
    flags: Flags = mask.to_numpy(zero_copy_only=False)
    return flags


def runs_in(snapshot: Snapshot, rivals: Iterable[LivingRun]) -> tuple[str, ...]:
    """Return those of `rivals` that are rewriting files of the snapshot."""
    return tuple(run.id for run in rivals if flags_of(snapshot, run.inputs).any())


def require_free(plan: Plan, rivals: Iterable[LivingRun]) -> None:
    """Raise ReplanError if a run that is at work is rewriting files of the plan."""
    paths = {path for group in plan.groups for path in group.paths}
    for run in rivals:
        if not paths.isdisjoint(run.inputs):
            count = format_count(len(paths & run.inputs), "file")
            raise ReplanError(
                f"{count} of the plan of version {plan.version} of {plan.table} being rewritten by"
                f" run {run.id}",
                table=plan.table,
                expected_version=plan.version,
                hint="nothing was written; plan again when that run has ended",
            )
