"""`lakehand plan`: what `compact` or `cluster` would rewrite, why, and at what cost."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.padding import Padding
from rich.text import Text

from lakehand.cli.output import print_document, print_lines, print_screen
from lakehand.cli.screen import effect_rows, figures_grid, left_rows
from lakehand.cli.shared_options import (
    clustering_options,
    open_for_command,
    planning_options,
    table_options,
)
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.planning.plan import Plan, PlannedGroup
    from lakehand.rewrite.prepare import RewriteOperation


@click.command()
@table_options
@click.option(
    "--operation",
    type=click.Choice(["compact", "cluster"]),
    help="Command to plan. Default: cluster with --by or --full, else compact.",
)
@clustering_options
@planning_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Store the plan; `compact --plan FILE` or `cluster --plan FILE` runs it later.",
)
@click.option("--files", "list_files", is_flag=True, help="Also list every file with its reason.")
def plan(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    operation: RewriteOperation | None,
    output: Path | None,
    list_files: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Show what `compact` or `cluster` would rewrite in TABLE, why, and at what cost. Reads only.

    Reads the log, the footers of candidate files and, for `cluster`, a sample of their rows to
    estimate what queries would skip.
    """
    from lakehand.cli.file_lists import planned_file_lines, planned_file_records
    from lakehand.rewrite.prepare import plan_request

    request = {name: options.pop(name) for name in ("by", "full", "curve", "where", "automatic")}
    opened = open_for_command(table, storage_options)
    planned = opened.planned(plan_request(operation, **request), **options)
    if output is not None:
        _store_plan(planned.plan, output)
    if as_json:
        records = ("files", planned_file_records(planned)) if list_files else None
        print_document(planned.plan.to_json(), records=records)
        return
    print_screen(*plan_screen(planned.plan, is_stored=output is not None))
    if output is not None and planned.plan.groups:
        # Not wrapped, so that it can be copied.
        command = ("lakehand", planned.plan.operation, table, "--plan", str(output))
        print_lines([f"  {shlex.join(command)}"])
    if list_files:
        print_lines(planned_file_lines(planned))


def _store_plan(plan: Plan, file: Path) -> None:
    try:
        file.write_text(plan.to_text())
    except OSError as error:
        raise click.FileError(str(file), hint=error.strerror) from error


#: Number of groups that are shown one by one.
_SHOWN_GROUPS = 10


_WHY_INDENT = 9


def plan_screen(plan: Plan, *, is_stored: bool = False) -> Iterable[RenderableType]:
    """Show what would be rewritten, why, at what cost, and what would remain."""
    yield Text(plan.table, style="bold", overflow="fold")
    yield Text(_headline(plan))
    yield Text()
    yield figures_grid(_figures(plan))
    if plan.groups:
        yield Text()
        yield from _groups(plan)
    if len(plan.groups) > _SHOWN_GROUPS:
        more = format_count(len(plan.groups) - _SHOWN_GROUPS, "smaller group")
        yield Text(f"  and {more}; --json lists all of them", style="dim")
    yield Text()
    yield Text(_ending(plan, is_stored=is_stored), style="dim")


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
    yield from _effect(plan)


def _effect(plan: Plan) -> Iterable[tuple[str, str]]:
    """Yield what queries gain from clustering."""
    if plan.operation != "cluster":
        return
    yield "clustered by", f"{', '.join(plan.order)} ({plan.curve})"
    if plan.layout is not None:
        yield from effect_rows(plan.layout.skip_rate, plan.layout.overlap_depth, about="about ")


def _task_time(plan: Plan) -> timedelta:
    return timedelta(seconds=plan.forecast.task_seconds)


def _groups(plan: Plan) -> Iterable[RenderableType]:
    """Yield two lines per group: its figures, and why it is rewritten in this way."""
    yield Text(_columns("group", "files", "size", "method", "partition"), style="dim")
    for group in plan.groups[:_SHOWN_GROUPS]:
        yield Text(_group_line(group), overflow="fold")
        why = Text(f"{group.reason}; {group.method_reason}", style="dim")
        yield Padding(why, (0, 0, 0, _WHY_INDENT))


def _group_line(group: PlannedGroup) -> str:
    files = f"{len(group.paths):,} → {group.expected_files:,}"
    size = f"{format_bytes(group.input_bytes)} → {format_bytes(group.expected_bytes)}"
    return _columns(str(group.id), files, size, group.method, group.partition)


def _columns(number: str, files: str, size: str, method: str, partition: str) -> str:
    return f"  {number:>5}  {files:>12}  {size:>23}  {method:<6}  {partition}".rstrip()


def _ending(plan: Plan, *, is_stored: bool) -> str:
    if not plan.groups:
        return "Nothing to do."
    if is_stored:
        return "Nothing was written but the plan; run it with:"
    return f"Nothing was written; run it with `{plan.operation}`."
