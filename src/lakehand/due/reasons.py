"""Why a step was due, and what it left, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.planning.reasons import CHOSEN_WORDS, LEFT_WORDS, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.model.reports import OperationReport
    from lakehand.model.retention import VacuumReport

__all__ = ["left_by_rewrite", "left_by_vacuum", "rewrite_reason", "vacuum_reason"]

#: Files that are as they should be are not called left.
_IN_SHAPE = (Reason.LARGE_ENOUGH, Reason.IN_ORDER, Reason.ADOPTED)


def rewrite_reason(report: OperationReport) -> str:
    parts = [
        f"{format_count(count, 'file')} {CHOSEN_WORDS.get(reason, reason)}"
        for reason, count in report.files_chosen.items()
    ]
    if report.indices_updated:
        parts.append(f"indices that did not know all rows: {', '.join(report.indices_updated)}")
    if report.left_to_runs and not parts:
        parts.append(f"being rewritten by run {', '.join(report.left_to_runs)}")
    return "; ".join(parts) or "no file to rewrite now"


def left_by_rewrite(report: OperationReport, note: str | None) -> Iterator[str]:
    if note is not None:
        yield note
    for reason, count in report.files_left.items():
        if reason not in _IN_SHAPE:
            yield f"{format_count(count, 'file')}: {LEFT_WORDS.get(reason, reason)}"
    if report.groups.dropped:
        yield f"{format_count(report.groups.dropped, 'group')} lost to concurrent writers"


def vacuum_reason(report: VacuumReport, gone: int) -> str:
    retention = format_duration(timedelta(seconds=report.retention_seconds))
    parts = []
    if gone:
        size = format_bytes(report.bytes_freed + report.bytes_quarantined)
        files = format_count(gone, "file")
        parts.append(f"{files} ({size}) that no version of the last {retention} needs")
    if report.files_swept:
        parts.append(f"{format_count(report.files_swept, 'file')} of runs that died")
    return "; ".join(parts) or f"every file is needed, or younger than {retention}"


def left_by_vacuum(report: VacuumReport) -> Iterator[str]:
    if report.files_waiting:
        yield f"{format_count(report.files_waiting, 'file')} set aside before, within their grace"
    if report.kept.pinned:
        names = ", ".join(holder.name for holder in report.holders)
        yield f"{format_count(report.kept.pinned, 'file')} needed by pins only: {names}"
