"""From a table and a wish to the work that has to be done: what is rewritten, and how."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakehand.model.work import Group
from lakehand.planning.compaction import paths_to_survey, plan_compaction
from lakehand.planning.plan import locate_inputs
from lakehand.planning.policy import CompactionPolicy

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.plan import Plan
    from lakehand.settings import Settings

__all__ = ["Work", "plan_work"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is to be rewritten, and under which settings."""

    table: FormatTable
    snapshot: Snapshot
    settings: Settings
    plan: Plan
    groups: tuple[Group, ...]


def plan_work(table: FormatTable, settings: Settings) -> Work:
    """Choose what to rewrite in the newest version; RefusedError if the table forbids it."""
    snapshot = table.snapshot()
    table.require("rewrite", snapshot)
    in_force = settings.with_properties(snapshot.properties)
    plan = _plan(table, snapshot, in_force)
    rows = locate_inputs(plan, snapshot.files)
    # One look into the log for all groups: it costs the same for one file as for all of them.
    files = iter(table.data_files(snapshot, [int(row) for group in rows for row in group]))
    groups = tuple(
        Group(
            id=planned.id,
            inputs=tuple(islice(files, len(planned.paths))),
            method=planned.method,
            recoded=planned.recoded,
            reason=planned.reason,
            target_file_bytes=planned.target_file_bytes,
        )
        for planned in plan.groups
    )
    return Work(table=table, snapshot=snapshot, settings=in_force, plan=plan, groups=groups)


def _plan(table: FormatTable, snapshot: Snapshot, settings: Settings) -> Plan:
    """Plan from what the table says, and from the footers that are worth a look."""
    policy = CompactionPolicy.from_settings(settings)
    keys = table.partition_keys(snapshot)
    paths = paths_to_survey(snapshot, keys, policy, limit=settings["max_surveyed_files"])
    return plan_compaction(
        snapshot, keys, policy, survey=table.survey(snapshot, paths) if paths else None
    ).plan
