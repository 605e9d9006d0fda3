"""What became of a table's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.cli.screens.proving import findings_list
from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lakehand.model.repair import RepairReport
    from lakehand.model.upkeep import LogCleanupReport, RestoreReport


def cleanup_screen(report: LogCleanupReport) -> Iterator[RenderableType]:
    """Show what is gone, or what would go, file by file."""
    if report.dry_run:
        yield from (Text(file) for file in report.files)
    files = format_count(report.files_deleted, "file")
    verb = "would go" if report.dry_run else "deleted"
    if report.files:
        yield Text(
            f"{files} of the log {verb}, {format_bytes(report.bytes_freed)};"
            f" versions {report.oldest_version:,} to {report.version:,} stay readable"
        )
    else:
        yield Text(f"nothing to do: versions {report.oldest_version:,} to {report.version:,} stay")
    if report.reason:
        yield Text(f"not more, because {report.reason}", style="dim")
    if not report.sees_unfinished_uploads:
        yield Text("unfinished uploads are not seen here: let a rule of the bucket abort them")
    for error in report.errors:
        yield Text.assemble(("error: ", "bold red"), f"{error['path']}: {error['message']}")


def restore_screen(report: RestoreReport) -> Iterator[RenderableType]:
    """Show what came back and what left."""
    if report.outcome == "nothing_to_do":
        yield Text(f"nothing to do: the table is as version {report.restored_version:,} was")
        return
    back = format_count(report.files_restored, "file")
    left = format_count(report.files_removed, "file")
    verb = "would come back" if report.outcome == "dry_run" else "restored"
    columns = ", with its columns and properties" if report.metadata_restored else ""
    yield Text(
        f"version {report.restored_version:,} {verb}{columns}:"
        f" {back} ({format_bytes(report.bytes_restored)}) back,"
        f" {left} ({format_bytes(report.bytes_removed)}) out"
    )
    if report.outcome == "committed":
        yield Text(f"committed as version {report.version:,}")


def repair_screen(report: RepairReport) -> Iterator[RenderableType]:
    """Show what was done, what is lost by it, what was left alone, and what is still wrong."""
    yield Text(f"{report.operation}: {_repair_words(report)}", style="bold")
    for repair in report.repairs:
        yield Text(f"  {repair.name}: {repair.message}")
        yield from (Text(f"    {path}") for path in repair.paths)
        if repair.loses:
            yield Text.assemble(("    lost: ", "bold red"), repair.loses)
    if report.aside:
        yield Text(f"  what was set aside is in {report.aside}")
    for refusal in report.refused:
        what = refusal.path or "the table"
        yield Text.assemble(("  not repaired: ", "bold yellow"), f"{refusal.name} of {what}")
        yield Text(f"    {refusal.reason}")
    if report.remaining and not report.dry_run:
        yield Text("still wrong:", style="bold red")
        yield from findings_list(report.remaining)


def _repair_words(report: RepairReport) -> str:
    found = format_count(len(report.findings), "finding")
    if report.dry_run:
        return f"{found}; nothing was changed"
    if report.outcome == "nothing_to_do":
        return "the table is sound"
    if report.outcome == "refused":
        return f"{found}; nothing was repaired"
    left = format_count(len(report.remaining), "finding")
    return f"{found}; {left} left" if report.remaining else f"{found}; the table is sound again"
