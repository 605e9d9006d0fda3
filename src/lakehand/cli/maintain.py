"""`lakehand maintain`: run all maintenance that is due."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.checkpoint import describe_checkpoint
from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.shared_options import (
    complete_table,
    engine_options,
    json_option,
    logging_options,
    open_for_command,
    setting_option,
    storage_option,
    update_indices_option,
)
from lakehand.cli.vacuum import describe_vacuum
from lakehand.errors import LakehandError, NotATableError
from lakehand.model.maintenance import MAINTENANCE_STEPS, LogCleanupReport
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.model.reports import CheckpointReport, OperationReport
from lakehand.model.retention import VacuumReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from lakehand.model.maintenance import MaintenanceReport, MaintenanceStep
    from lakehand.service.run_metrics import RunMetrics


@click.command()
@click.argument("tables", nargs=-1, metavar="TABLE...", shell_complete=complete_table)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Configuration file: maintain the tables of its sources, or the named ones, by its"
    " policies.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="With several tables: maintain at most N at a time, each in its own process.",
)
@storage_option
@json_option
@logging_options
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write metrics of the run to this file, for node_exporter's textfile collector.",
)
@click.option(
    "--metrics-push",
    metavar="URL",
    help="Push metrics of the run to this Pushgateway; env:NAME or file:PATH if it is a secret.",
)
@click.option(
    "--metrics-job",
    default="lakehand",
    show_default=True,
    metavar="NAME",
    help="Label `job` of pushed metrics; a push replaces earlier metrics with the same label.",
)
@click.option("--dry-run", is_flag=True, help="Show what is due; write nothing.")
@click.option(
    "--skip",
    multiple=True,
    type=click.Choice([step.replace("_", "-") for step in MAINTENANCE_STEPS]),
    help="Skip this step. Repeatable.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
@setting_option("--min-files", "min_files", metavar="N")
@setting_option("--quiet-period", "quiet_period", metavar="TIME")
@setting_option("--quiet-period-max", "quiet_period_max", metavar="TIME")
@setting_option("--cluster-by", "cluster_by", metavar="COLUMNS")
@setting_option("--max-bytes", "max_bytes_per_run", metavar="SIZE")
@update_indices_option
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--keep-versions", "keep_versions", metavar="N")
@setting_option("--grace", "grace", metavar="TIME")
@setting_option("--vacuum-interval", "vacuum_interval", metavar="TIME")
@engine_options
def maintain(
    tables: tuple[str, ...],
    config: Path | None,
    jobs: int,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    metrics_file: Path | None,
    metrics_push: str | None,
    metrics_job: str,
    **options: Any,
) -> int:
    """Run all maintenance that is due on each TABLE, in one call: for schedules.

    Compacts it, or clusters it if it is clustered; vacuums it; writes a checkpoint; cleans its log.
    Partitions with recent writes are skipped. A step that fails does not stop the others; the exit
    code is that of the failed step, or 1 if steps or tables failed in different ways.

    TABLE is the path or URL of a table, of a directory of tables, or a pattern such as
    's3://lake/*/events'. A table that fails does not stop the others. With several tables, Ctrl-C
    and SIGTERM let running ones commit what is proved, and a second one stops them at once.
    """
    if not tables and config is None:
        raise click.UsageError("Missing argument 'TABLE...'.")
    from lakehand.service.run_metrics import RunMetrics
    from lakehand.service.url_patterns import is_pattern

    metrics = RunMetrics(file=metrics_file, push=metrics_push, job=metrics_job)
    if options["dry_run"] and metrics != RunMetrics(job=metrics_job):
        raise click.UsageError("A dry run has no metrics: leave --metrics-file and --metrics-push.")
    metrics.check()
    absent: NotATableError | None = None
    if len(tables) == 1 and config is None and not is_pattern(tables[0]):
        try:
            return _maintain_one(tables[0], storage_options, metrics, as_json=as_json, **options)
        except NotATableError as error:
            absent = error
    from lakehand.cli.maintain_many import maintain_many

    return maintain_many(
        tables,
        absent=absent,
        config=config,
        jobs=jobs,
        storage_options=storage_options,
        as_json=as_json,
        metrics=metrics,
        **options,
    )


def _maintain_one(
    table: str,
    storage_options: dict[str, str],
    metrics: RunMetrics,
    *,
    as_json: bool,
    **options: Any,
) -> int:
    from lakehand.service.many_tables import TableResult

    opened = open_for_command(table, storage_options)
    began = time.monotonic()
    try:
        with progress_bar():
            report = opened.maintain(**options)
    except LakehandError:
        seconds = time.monotonic() - began
        result = TableResult(table=opened.url, outcome="failed", duration_ms=1000 * seconds)
        metrics.tell([result])
        raise
    metrics.tell(
        [
            TableResult(
                table=report.table,
                outcome="failed" if report.errors else report.outcome,
                duration_ms=report.duration_ms,
                report=report.to_json(),
            )
        ]
    )
    print_report(report, maintenance_screen, as_json=as_json)
    return report.exit_code


#: Text and colour of each outcome.
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "committed": ("done", "green"),
    "nothing_to_do": ("nothing to do", "dim"),
    "dry_run": ("due", "yellow"),
    "failed": ("failed", "red"),
    "left_out": ("skipped", "dim"),
}


def maintenance_screen(report: MaintenanceReport) -> Iterable[RenderableType]:
    """Show every step: whether it was due, why, what it did and what remains."""
    yield Text(report.table, style="bold", overflow="fold")
    yield Text(f"maintain: {_headline(report)}")
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(min_width=0)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for step in report.steps:
        text, style = _OUTCOMES[step.outcome]
        lines = "\n".join(_lines(step))
        grid.add_row("", step.step.replace("_", "-"), Text(text, style=style), Text(lines))
    yield grid


def _headline(report: MaintenanceReport) -> str:
    failed = sum(1 for step in report.steps if step.outcome == "failed")
    parts = [_describe_outcome(report)]
    if failed:
        parts.append(f"{format_count(failed, 'step')} failed")
    parts.append(f"took {format_duration(timedelta(milliseconds=report.duration_ms))}")
    return ", ".join(parts)


def _describe_outcome(report: MaintenanceReport) -> str:
    if report.dry_run:
        due = sum(1 for step in report.steps if step.is_due)
        steps = format_count(due, "step") if due else "nothing"
        return f"{steps} due at version {report.version:,}; nothing was written"
    done = "done" if report.outcome == "committed" else "nothing done"
    return f"{done}, version {report.version:,}"


def _lines(step: MaintenanceStep) -> Iterator[str]:
    did = _did(step)
    if did:
        yield did
    yield f"reason: {step.reason}" if did else step.reason
    for text in step.left:
        yield f"left: {text}"
    if step.error is not None and step.error.get("hint"):
        yield f"hint: {step.error['hint']}"
    for error in getattr(step.report, "errors", ()):
        yield f"failed: {error['message']}"


def _did(step: MaintenanceStep) -> str:
    """Describe what a step did, or would do."""
    if not step.is_due:
        return ""
    match step.report:
        case OperationReport():
            return _describe_rewrite(step.report)
        case VacuumReport():
            return describe_vacuum(step.report)
        case CheckpointReport():
            return describe_checkpoint(step.report)
        case LogCleanupReport():
            verb = "would be deleted" if step.report.dry_run else "deleted"
            size = format_bytes(step.report.bytes_freed)
            return f"{format_count(step.report.files_deleted, 'file')} of the log {verb}, {size}"
    return ""


def _describe_rewrite(report: OperationReport) -> str:
    if report.outcome == "dry_run":
        forecast = report.forecast
        cost = format_duration(timedelta(seconds=forecast.task_seconds))
        files = f"{forecast.files_before:,} → {forecast.files_after:,} files"
        return f"{files}, about {cost} of one core"
    before, after = format_bytes(report.bytes_before), format_bytes(report.bytes_after)
    files = f"{report.files_before:,} → {report.files_after:,} files, {before} → {after}"
    is_proved = report.proof is not None and report.proof.kind != "counts"
    return f"{files}; {report.rows_written:,} rows proved equal" if is_proved else files
