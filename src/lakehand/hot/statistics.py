"""Where the rows of a hot table are, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakehand.hot.reports import StorageStats

if TYPE_CHECKING:
    from lakehand.hot.flusher import Flusher
    from lakehand.hot.opening import Opened
    from lakehand.hot.table import HotTable
    from lakehand.model.snapshot import Snapshot

__all__ = ["storage_stats"]


def storage_stats(table: HotTable, parts: Opened, flusher: Flusher) -> StorageStats:
    layers, snapshot = parts.layers, parts.layers.view.snapshot
    return StorageStats(
        table=table.url,
        sequence=layers.sequence,
        hot_rows=table.hot_rows,
        hot_bytes=table.hot_bytes,
        delta_entries=table.delta_count,
        frozen_rows=sum(memtable.rows for memtable in layers.frozen),
        oldest_seconds=table.oldest_seconds,
        log_bytes=parts.log.bytes if parts.log is not None else 0,
        log_segments=parts.log.segment_count if parts.log is not None else 0,
        cold_version=snapshot.version,
        cold_files=snapshot.file_count,
        cold_bytes=snapshot.total_bytes,
        cold_rows=_rows(snapshot),
        flushes=table.flushes,
        flush_failures=table.flush_failures,
        last_error=None if table.last_error is None else str(table.last_error).partition("\n")[0],
        shared_bytes=flusher.budget.used_bytes,
        shared_peak_bytes=flusher.budget.peak_bytes,
        waits=flusher.budget.waits,
    )


def _rows(snapshot: Snapshot) -> int | None:
    files = snapshot.files
    if files["rows"].null_count:
        return None
    return int((pc.sum(files["rows"]).as_py() or 0) - (pc.sum(files["deleted_rows"]).as_py() or 0))
