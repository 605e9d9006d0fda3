"""The command for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import engine_options, setting_option, table_options
from lakehand.cli.output import print_report
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED, error_from_json

if TYPE_CHECKING:
    from lakehand.model.maintenance import MaintenanceReport


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Say what is due; write nothing.")
@click.option(
    "--skip",
    multiple=True,
    type=click.Choice(["compact", "cluster", "vacuum", "checkpoint", "clean-logs"]),
    help="Leave this step out. May be given several times.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
@setting_option("--min-files", "min_files", metavar="N")
@setting_option("--quiet-period", "quiet_period", metavar="TIME")
@setting_option("--quiet-period-max", "quiet_period_max", metavar="TIME")
@setting_option("--cluster-by", "cluster_by", metavar="COLUMNS")
@setting_option("--max-bytes", "max_bytes_per_run", metavar="SIZE")
@click.option(
    "--update-indices",
    is_flag=True,
    default=None,
    help="Also add rows that came after them to the indices of a Lance table.",
)
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--keep-versions", "keep_versions", metavar="N")
@setting_option("--grace", "grace", metavar="TIME")
@setting_option("--vacuum-interval", "vacuum_interval", metavar="TIME")
@engine_options
def maintain(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Do whatever is due on TABLE, in one call: for schedules.

    Compacts it, or clusters it if it has an order; vacuums it; writes a checkpoint; cleans its log.
    Partitions that are being written to are left alone. A step that fails stops no other; the exit
    code is then that of the failed step.
    """
    from lakehand.cli.screens.maintaining import maintenance_screen

    opened = open_for_command(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.maintain(on_progress=on_progress, **options)
    print_report(report, maintenance_screen, as_json=as_json)
    return _exit_code(report)


def _exit_code(report: MaintenanceReport) -> int:
    """Return the code of the failed steps, if they agree, and 1 if they do not."""
    if not report.errors:
        return 0
    failed = [step.error for step in report.steps if step.error is not None]
    codes = {error_from_json(error).exit_code for error in failed}
    # Errors within a step that was taken have no code of their own.
    is_more = len(report.errors) > len(failed)
    return codes.pop() if len(codes) == 1 and not is_more else EXIT_FAILED
