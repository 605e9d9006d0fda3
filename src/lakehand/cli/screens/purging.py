"""What a purge did, and what is still to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rich.console import RenderableType

    from lakehand.model.purging import PurgeReport


def purge_screen(report: PurgeReport) -> Iterable[RenderableType]:
    """Show what was done, then every place where what was deleted still is."""
    would = "would be " if report.dry_run else ""
    yield Text(
        f"purge: {format_count(report.files_rewritten, 'file')} {would}rewritten, "
        f"{report.files_quarantined:,} {would}set aside, {report.files_deleted:,} {would}deleted"
    )
    if report.gone_at is not None:
        yield Text(f"  vacuum can delete the last file that holds them at {_at(report.gone_at)}")
    if report.log_gone_at is not None:
        yield Text(f"  the log can be cleaned of their values at {_at(report.log_gone_at)}")
    for place in report.remaining:
        yield Text(f"  still there: {place.message}")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
