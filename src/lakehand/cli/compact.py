"""`lakehand compact`: merge small files and drop deleted rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid, format_time, left_rows
from lakehand.cli.shared_options import (
    dry_run_option,
    engine_options,
    open_for_rewriting,
    planning_options,
    prove_option,
    read_plan,
    stored_plan_option,
    table_options,
    update_indices_option,
)
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.model.reports import OperationReport


@click.command()
@table_options
@dry_run_option
@stored_plan_option
@planning_options
@click.option(
    "--sort-by",
    metavar="COLUMNS",
    default="",
    help="Sort the rows of every group, for example: a DESC, b.",
)
@click.option(
    "--recompute-statistics",
    is_flag=True,
    help="Then compute missing statistics of the other files, in a separate commit.",
)
@update_indices_option
@prove_option
@engine_options
def compact(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    plan_file: Path | None,
    **options: Any,
) -> int:
    """Merge the small files of TABLE, and drop its deleted rows.

    Every group of files is proved to hold the same rows before the commit. The old files stay until
    vacuum deletes them, because earlier versions of the table refer to them.
    """
    opened = open_for_rewriting(table, storage_options, dry_run=dry_run, **options)
    with progress_bar():
        report = opened.compact(plan=read_plan(plan_file), dry_run=dry_run, **options)
    print_report(report, operation_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


_METHOD_NAMES = {"copy": "copied byte for byte", "recode": "rewritten", "sort": "sorted"}


_PROOF_DESCRIPTIONS = {
    "digest": "proved equal, read back from storage",
    "ranges": "proved equal by checksums of every byte range, read back from storage",
    "checksums": "proved equal by the store's checksums of whole files",
    "positions": "proved by the positions that deletion vectors hide, read back from storage",
    "mixed": "proved equal, each part by digest, checksums or positions, read back from storage",
    "counts": "counted, but not compared",
}


def operation_screen(
    report: OperationReport, *, effect: Iterable[tuple[str, str]] = ()
) -> Iterable[RenderableType]:
    """Show what an operation did, and the proof that it changed no row."""
    yield Text(f"{report.operation}: {_describe_outcome(report)}", style="bold")
    left = left_rows(report.files_left, report.remaining)
    yield figures_grid([*_figures(report), *left, *effect])
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _describe_outcome(report: OperationReport) -> str:
    groups = format_count(report.groups.planned, "group")
    rivals = ", ".join(report.left_to_runs)
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": f"nothing to do{f': being rewritten by run {rivals}' if rivals else ''}",
        "dry_run": f"{groups} of files would be rewritten; nothing was written",
    }[report.outcome]


def _figures(report: OperationReport) -> Iterable[tuple[str, str]]:
    if report.outcome == "dry_run" and report.groups.planned:
        yield from _expected(report)
    if report.outcome == "committed":
        yield from _changes(report)
        yield from _evidence(report)
        yield "took", _pace(report)
    if report.left_to_runs and report.outcome != "nothing_to_do":
        yield "left to", f"run {', '.join(report.left_to_runs)}, which is running"
    if report.indices_updated:
        yield "indices", f"{', '.join(report.indices_updated)} brought up to date"


def _expected(report: OperationReport) -> Iterable[tuple[str, str]]:
    forecast = report.forecast
    yield "files", f"{forecast.files_before:,} → {forecast.files_after:,}"
    before, after = format_bytes(forecast.bytes_before), format_bytes(forecast.bytes_after)
    yield "size", f"{before} → about {after}"
    cost = format_duration(timedelta(seconds=forecast.task_seconds))
    yield "cost", f"about {cost} of one core"


def _changes(report: OperationReport) -> Iterable[tuple[str, str]]:
    average = report.average_file_bytes
    averages = f"{format_bytes(average.before)} → {format_bytes(average.after)} on average"
    yield "files", f"{report.files_before:,} → {report.files_after:,}; {averages}"
    before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
    yield "size", f"{before} → {after}{_saving(report)}"
    yield "groups", ", ".join(_groups(report))


def _saving(report: OperationReport) -> str:
    saved = report.bytes_before - report.bytes_after
    if saved <= 0:
        return ""
    return f"; {format_bytes(saved)} ({saved / report.bytes_before:.0%}) less"


def _groups(report: OperationReport) -> Iterable[str]:
    for method, description in _METHOD_NAMES.items():
        count = getattr(report.methods, method)
        if count:
            yield f"{count:,} {description}"
    if report.groups.dropped:
        yield f"{report.groups.dropped:,} lost to concurrent writers"
    if report.errors:
        yield f"{len(report.errors):,} failed"


def _evidence(report: OperationReport) -> Iterable[tuple[str, str]]:
    if report.moved_in_store_bytes:
        yield "copied", f"{format_bytes(report.moved_in_store_bytes)} by the store itself"
    for reason in report.streamed_because:
        yield "streamed", reason
    if report.proof is not None:
        description = _PROOF_DESCRIPTIONS[report.proof.kind]
        yield "rows", f"{report.proof.rows:,} {description}"


def _pace(report: OperationReport) -> str:
    time = format_time(report.duration_ms, report.ran_on)
    speed = f"{format_bytes(report.bytes_per_second)}/s, {report.rows_per_second:,.0f} rows/s"
    return f"{time}; {speed}"
