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
    """Show what was done, then every place that still holds what was deleted."""
    would = "would be " if report.dry_run else ""
    yield Text(
        f"purge: {format_count(report.files_rewritten, 'file')} {would}rewritten, "
        f"{report.files_quarantined:,} {would}quarantined, {report.files_deleted:,} {would}deleted"
    )
    for place in report.remaining:
        until = "" if place.until is None else f" (until {_at(place.until)})"
        yield Text(f"  remaining: {place.message}{until}")
    if dates := [at for at in (report.gone_at, report.log_gone_at) if at is not None]:
        yield Text(f"  run purge again at each of these times, the last at {_at(max(dates))}")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
