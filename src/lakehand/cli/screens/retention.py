"""What stays, what is set aside and what is gone, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.cli.screens.words import figures_grid
from lakehand.model.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from lakehand.model.retention import Holder, VacuumReport
    from lakehand.retention.pins import Pin


def vacuum_screen(report: VacuumReport) -> Iterable[RenderableType]:
    """Show what a vacuum did, what stays and why, and how to undo it."""
    yield Text(f"vacuum: {vacuum_words(report)}", style="bold")
    yield figures_grid(_figures(report))
    for path in report.files_to_delete:
        yield Text(f"  {path}")
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")
    untold = report.files_failed - len(report.errors)
    if untold > 0:
        yield Text(f"  failed: {format_count(untold, 'more file')}", style="red")


def vacuum_words(report: VacuumReport) -> str:
    """Say what became of files."""
    if report.files_undone:
        return f"{format_count(report.files_undone, 'file')} given back; nothing will be deleted"
    would = "would be " if report.dry_run else ""
    counts = ((report.files_deleted, "deleted"), (report.files_quarantined, "set aside"))
    parts = [f"{format_count(count, 'file')} {would}{done}" for count, done in counts if count]
    return " and ".join(parts) or "nothing to do"


def _figures(report: VacuumReport) -> Iterator[tuple[str, str]]:
    if report.files_scanned:
        age = format_duration(timedelta(seconds=report.retention_seconds))
        yield "looked at", f"{format_count(report.files_scanned, 'file')}; retention {age}"
    label = "kept"
    for count, words in _kept(report):
        if count:
            yield label, f"{count:,} {words}"
            label = ""
    for holder in report.holders:
        yield "held by", _holder_words(holder)
    yield from _changes(report)
    yield "took", format_duration(timedelta(milliseconds=report.duration_ms))


def _kept(report: VacuumReport) -> Iterator[tuple[int, str]]:
    kept = report.kept
    yield kept.needed, f"needed by versions since {report.oldest_version:,}"
    yield kept.pinned, "needed by pins only"
    yield kept.young, "too young: their writers may be about to commit them"
    yield kept.running, "written by runs that are under way"
    yield report.files_waiting, "set aside before, and still within their grace"
    yield report.files_ignored, "no data of the table: never touched"


def _changes(report: VacuumReport) -> Iterator[tuple[str, str]]:
    if report.files_deleted:
        yield "freed", format_bytes(report.bytes_freed)
    if report.files_swept:
        yield "swept", f"{format_count(report.files_swept, 'file')} of runs that died"
    if report.files_quarantined:
        yield "set aside", format_bytes(report.bytes_quarantined)
    if report.quarantine_id and not report.files_undone:
        yield "undo with", f"--undo {report.quarantine_id}"


def _holder_words(holder: Holder) -> str:
    what = {
        "version": f"version {holder.version}",
        "stream": f"the stream {holder.uri}, which reads from version {holder.version} on",
        "clone": f"the clone {holder.uri}",
        "tag": f"version {holder.version}",
        "run": f"which is under way and reads version {holder.version}",
        "branch": "which shares files with the table",
    }[holder.kind]
    who = holder.kind if holder.kind in ("tag", "run", "branch") else "pin"
    return f"{who} {holder.name!r}: {what}"


def pins_screen(pins: Sequence[Pin], *, removed: bool = False) -> Iterable[RenderableType]:
    """Show pins, one a line."""
    if not pins:
        yield Text("no pins")
    for pin in pins:
        what = f"version {pin.version}" if pin.kind == "version" else f"{pin.kind} {pin.uri}"
        until = "for ever" if pin.expires_at is None else f"until {pin.expires_at:%Y-%m-%d %H:%M}"
        yield Text(f"{pin.name}: {what}, {'dropped' if removed else until}")
