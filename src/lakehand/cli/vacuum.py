"""`lakehand vacuum`: delete files that no retained version references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid
from lakehand.cli.shared_options import (
    allow_short_retention_option,
    engine_options,
    open_for_command,
    setting_option,
    table_options,
)
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from lakehand.model.retention import Holder, VacuumReport


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="List what would be deleted; change nothing.")
@setting_option("--retention", "retention", metavar="TIME")
@setting_option("--keep-versions", "keep_versions", metavar="N")
@setting_option("--grace", "grace", metavar="TIME")
@allow_short_retention_option
@click.option(
    "--mode",
    type=click.Choice(["full", "lite"]),
    default="full",
    show_default=True,
    help="full lists storage; lite checks only files that commits removed.",
)
@click.option("--undo", metavar="ID", help="Cancel the quarantine with this id.")
@click.option(
    "--expire", is_flag=True, help="Only delete quarantined files whose grace period is over."
)
@engine_options
def vacuum(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Delete files of TABLE that no retained version references.

    Files are quarantined first: a later vacuum deletes them when their grace period is over, and
    --undo cancels it until then. --grace 0 deletes at once. Vacuum never deletes recent, referenced
    or pinned files. Exit code 1 if a file could not be deleted.

    With --engine spark, --master or --remote, Spark lists and deletes very many files.
    """
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.vacuum(**options)
    print_report(report, vacuum_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def vacuum_screen(report: VacuumReport) -> Iterable[RenderableType]:
    """Show what a vacuum did, what it kept and why, and how to undo it."""
    yield Text(f"vacuum: {describe_vacuum(report)}", style="bold")
    yield figures_grid(_figures(report))
    for path in report.files_to_delete:
        yield Text(f"  {path}")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")
    untold = report.files_failed - len(report.errors)
    if untold > 0:
        yield Text(f"  failed: {format_count(untold, 'more file')}", style="red")


def describe_vacuum(report: VacuumReport) -> str:
    """Describe what was deleted or quarantined."""
    if report.files_undone:
        return f"{format_count(report.files_undone, 'file')} no longer quarantined"
    would = "would be " if report.dry_run else ""
    counts = ((report.files_deleted, "deleted"), (report.files_quarantined, "quarantined"))
    parts = [f"{format_count(count, 'file')} {would}{done}" for count, done in counts if count]
    return " and ".join(parts) or "nothing to do"


def _figures(report: VacuumReport) -> Iterator[tuple[str, str]]:
    if report.files_scanned:
        age = format_duration(timedelta(seconds=report.retention_seconds))
        yield "checked", f"{format_count(report.files_scanned, 'file')}; retention {age}"
    label = "kept"
    for count, description in _kept(report):
        if count:
            yield label, f"{count:,} {description}"
            label = ""
    for holder in report.holders:
        yield "held by", _describe_holder(holder)
    yield from _changes(report)
    yield "took", format_duration(timedelta(milliseconds=report.duration_ms))


def _kept(report: VacuumReport) -> Iterator[tuple[int, str]]:
    kept = report.kept
    yield kept.needed, f"needed by versions since {report.oldest_version:,}"
    yield kept.pinned, "needed only by pins"
    yield kept.young, "too recent: a writer may be about to commit them"
    yield kept.running, "written by active runs"
    yield report.files_waiting, "quarantined earlier, within their grace period"
    yield report.files_ignored, "not data files: never deleted"


def _changes(report: VacuumReport) -> Iterator[tuple[str, str]]:
    if report.files_deleted:
        yield "freed", format_bytes(report.bytes_freed)
    if report.files_swept:
        yield "cleaned up", f"{format_count(report.files_swept, 'file')} of dead runs"
    if report.files_quarantined:
        yield "quarantined", format_bytes(report.bytes_quarantined)
    if report.quarantine_id and not report.files_undone:
        yield "undo with", f"--undo {report.quarantine_id}"


def _describe_holder(holder: Holder) -> str:
    what = {
        "version": f"version {holder.version}",
        "stream": f"the stream {holder.uri}, which reads from version {holder.version} on",
        "clone": f"the clone {holder.uri}",
        "tag": f"version {holder.version}",
        "run": f"active, reads version {holder.version}",
        "branch": "which shares files with the table",
    }[holder.kind]
    who = holder.kind if holder.kind in ("tag", "run", "branch") else "pin"
    return f"{who} {holder.name!r}: {what}"
