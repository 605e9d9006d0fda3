"""Whether a plan that was made earlier may still be carried out.

A plan is carried out as it is or not at all: files that it names must be live, and the same, in the
newest version. Planning again is cheap; half of a plan is nothing that anybody looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ReplanError, ValidationError, VersionNotFoundError
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.plan import Plan
    from lakehand.settings import Settings

__all__ = ["require_current", "settings_of_plan"]


def settings_of_plan(plan: Plan, settings: Settings) -> Settings:
    """Return `settings` with those that the plan was made with; ValidationError if they differ."""
    planned = plan.policy.to_json()
    for name, value in planned.items():
        if settings.sources[name] == "call" and settings[name] != value:
            raise ValidationError(
                f"the plan was made with {name} {value}, and cannot be carried out with "
                f"{settings[name]}",
                field=name,
                value=settings[name],
                hint="plan again with the other value, or leave it out",
            )
    return settings.with_call(planned)


def require_current(plan: Plan, table: FormatTable, snapshot: Snapshot) -> None:
    """Raise ReplanError unless the plan fits `snapshot`, the newest version of the table."""
    if plan.table_id != snapshot.table_id:
        raise _replan(plan, snapshot, "it is for another table, or the table was created anew")
    if plan.version > snapshot.version:
        raise _replan(plan, snapshot, "the table has gone back to an earlier version")
    if plan.version < snapshot.version:
        _require_same_files(plan, table, snapshot)


def _require_same_files(plan: Plan, table: FormatTable, snapshot: Snapshot) -> None:
    try:
        difference = table.diff(plan.version, snapshot.version)
    except VersionNotFoundError as error:
        reason = "the log of its version is gone, so what happened since cannot be told"
        raise _replan(plan, snapshot, reason) from error
    if difference.schema_changed:
        raise _replan(plan, snapshot, "the columns of the table have changed since")
    paths = pa.array([path for group in plan.groups for path in group.paths], pa.string())
    changed = paths.filter(pc.is_in(paths, difference.removed["path"].combine_chunks()))
    if len(changed):
        count = format_count(len(changed), "file")
        was = "was" if len(changed) == 1 else "were"
        reason = f"{count} of it {was} removed or changed since, for example {changed[0].as_py()}"
        raise _replan(plan, snapshot, reason)


def _replan(plan: Plan, snapshot: Snapshot, reason: str) -> ReplanError:
    return ReplanError(
        f"the plan of version {plan.version} does not fit {snapshot.table}: {reason}",
        table=snapshot.table,
        expected_version=plan.version,
        actual_version=snapshot.version,
        hint="plan again; nothing was written",
    )
