"""`lakehand health`: whether a table is healthy, for monitoring."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.shared_options import setting_option, table_options
from lakehand.errors import EXIT_UNHEALTHY
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.console import RenderableType

    from lakehand.assess.health_check import Check, HealthReport


@click.command()
@table_options
@click.option("--orphans", is_flag=True, help="Also list storage for unreferenced files.")
@setting_option("--max-small-file-ratio", "max_small_file_ratio", metavar="RATIO")
@setting_option("--max-deleted-row-ratio", "max_deleted_row_ratio", metavar="RATIO")
@setting_option("--max-commits-since-checkpoint", "max_commits_since_checkpoint", metavar="N")
@setting_option("--max-checkpoint-age", "max_checkpoint_age", metavar="TIME")
@setting_option("--max-overlap-depth", "max_overlap_depth", metavar="N")
@setting_option("--max-orphan-bytes", "max_orphan_bytes", metavar="SIZE")
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
@setting_option("--quiet-period", "quiet_period", metavar="TIME")
def health(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    orphans: bool,  # noqa: FBT001
    **settings: Any,
) -> int:
    """Check TABLE against thresholds. Reads only; exit code 5 if it is unhealthy.

    A table that cannot be reached or read is unhealthy: the report has the error.
    """
    from lakehand.table import check_health

    report = check_health(table, storage_options=storage_options, orphans=orphans, **settings)
    print_report(report, health_screen, as_json=as_json)
    return 0 if report.healthy else EXIT_UNHEALTHY


def _ratio(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _depth(value: float) -> str:
    return f"{value:,.1f}"


def _age(value: float) -> str:
    return format_duration(timedelta(seconds=value))


#: Label and format of each number.
_NUMBERS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "damaged_files": ("files missing or damaged", _count),
    "small_file_ratio": ("files that automatic runs would remove", _ratio),
    "deleted_row_ratio": ("deleted rows", _ratio),
    "commits_since_checkpoint": ("commits since the checkpoint", _count),
    "checkpoint_age": ("checkpoint overdue by", _age),
    "overlap_depth": ("overlap depth", _depth),
    "orphan_bytes": ("unreferenced files", format_bytes),
}


def health_screen(report: HealthReport) -> Iterable[RenderableType]:
    """Show the verdict, every threshold, and what lowers the score."""
    verdict, style = ("healthy", "green") if report.healthy else ("unhealthy", "red")
    yield Text(report.table, style="bold", overflow="fold")
    yield Text.assemble((verdict, f"bold {style}"), f", score {report.score}/100, {_facts(report)}")
    yield Padding(_checks(report.checks), (0, 0, 0, 2))
    for reason in report.reasons:
        yield Text(f"  -{reason.points}  {reason.message}")


def _facts(report: HealthReport) -> str:
    latency = f"answered in {report.latency_ms:,.0f} ms"
    if report.version is None or report.file_count is None:
        return latency
    checked = f"{report.files_checked or 0:,} of {format_count(report.file_count, 'file')} checked"
    return f"version {report.version:,}, {checked}, {latency}"


def _checks(checks: Iterable[Check]) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column()
    for check in checks:
        name, write = _NUMBERS[check.code]
        verdict = "ok" if check.passed else "too high"
        grid.add_row(verdict, name, write(check.value), f"at most {write(check.limit)}")
    return grid
