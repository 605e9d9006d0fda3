"""The command for monitoring."""

from __future__ import annotations

from typing import Any

import click

from lakehand.cli.options import setting_option, table_options
from lakehand.cli.output import print_report
from lakehand.errors import EXIT_UNHEALTHY


@click.command()
@table_options
@click.option("--orphans", is_flag=True, help="List storage, too, for files that no version needs.")
@setting_option("--max-small-file-ratio", "max_small_file_ratio", metavar="RATIO")
@setting_option("--max-deleted-row-ratio", "max_deleted_row_ratio", metavar="RATIO")
@setting_option("--max-commits-since-checkpoint", "max_commits_since_checkpoint", metavar="N")
@setting_option("--max-checkpoint-age", "max_checkpoint_age", metavar="TIME")
@setting_option("--max-overlap-depth", "max_overlap_depth", metavar="N")
@setting_option("--max-orphan-bytes", "max_orphan_bytes", metavar="SIZE")
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def health(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    orphans: bool,  # noqa: FBT001
    **settings: Any,
) -> int:
    """Say whether TABLE is healthy. Reads only; exit code 5 if it is not.

    A table that cannot be reached or read is unhealthy, too: the report holds the error.
    """
    from lakehand.cli.screens.health import health_screen
    from lakehand.table import check_health

    report = check_health(table, storage_options=storage_options, orphans=orphans, **settings)
    print_report(report, health_screen, as_json=as_json)
    return 0 if report.healthy else EXIT_UNHEALTHY
