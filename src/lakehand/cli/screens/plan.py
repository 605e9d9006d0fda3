"""What a run would do. Meaning never depends on colour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.screens.reasons import figures_grid, left_rows
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.planning.plan import Plan, PlannedGroup

#: Groups that are shown one by one: a screen is for reading.
_SHOWN_GROUPS = 10


def plan_screen(plan: Plan, *, stored_in: Path | None = None) -> Iterable[RenderableType]:
    """Show what would be rewritten, why, at what cost, and what would be left."""
    yield Text(plan.table, style="bold", overflow="fold")
    yield Text(_headline(plan))
    yield Text()
    yield figures_grid(_figures(plan))
    if plan.groups:
        yield Text()
        yield _groups(plan)
    if len(plan.groups) > _SHOWN_GROUPS:
        more = format_count(len(plan.groups) - _SHOWN_GROUPS, "smaller group")
        yield Text(f"  and {more}; --json lists all of them", style="dim")
    yield Text()
    yield Text(_ending(plan, stored_in), style="dim")


def _headline(plan: Plan) -> str:
    where = f" where {plan.where}" if plan.where else ""
    return f"plan for version {plan.version:,}{where}"


def _figures(plan: Plan) -> Iterable[tuple[str, str]]:
    forecast = plan.forecast
    if plan.groups:
        inputs = format_count(sum(plan.chosen.values()), "file")
        groups = format_count(len(plan.groups), "group")
        yield "rewrite", f"{inputs}, {format_bytes(forecast.bytes_read)}, in {groups}"
        yield "files", f"{forecast.files_before:,} → {forecast.files_after:,}"
        before, after = format_bytes(forecast.bytes_before), format_bytes(forecast.bytes_after)
        yield "size", f"{before} → about {after}"
        yield "cost", f"about {format_duration(_task_time(plan))} of one core"
    yield from left_rows(plan.left, plan.remaining)


def _task_time(plan: Plan) -> timedelta:
    return timedelta(seconds=plan.forecast.task_seconds)


def _groups(plan: Plan) -> RenderableType:
    has_partitions = any(group.partition for group in plan.groups)
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("group", justify="right")
    if has_partitions:
        grid.add_column("partition", overflow="fold")
    grid.add_column("files", justify="right", no_wrap=True)
    grid.add_column("size", justify="right", no_wrap=True)
    grid.add_column("method", no_wrap=True)
    grid.add_column("why", overflow="fold", ratio=1)
    for group in plan.groups[:_SHOWN_GROUPS]:
        partition = [group.partition] if has_partitions else []
        grid.add_row(str(group.id), *partition, *_group_cells(group))
    return Padding(grid, (0, 0, 0, 2))


def _group_cells(group: PlannedGroup) -> Iterable[str]:
    yield f"{len(group.paths):,} → {group.expected_files:,}"
    yield f"{format_bytes(group.input_bytes)} → {format_bytes(group.expected_bytes)}"
    yield group.method
    yield f"{group.reason}; {group.method}: {group.method_reason}"


def _ending(plan: Plan, stored_in: Path | None) -> str:
    if not plan.groups:
        return "Nothing to do."
    if stored_in is not None:
        return f"Stored in {stored_in}; carry it out with: compact --plan {stored_in}"
    return "Nothing was written; `compact` carries this out."
