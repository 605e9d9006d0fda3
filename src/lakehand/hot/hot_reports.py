"""What the hot tier reports. Fields have the names of JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand.model.reports import Outcome, Report

if TYPE_CHECKING:
    from lakehand.hot.flusher import Flusher
    from lakehand.hot.hot_table import HotTable
    from lakehand.hot.opening import Opened
    from lakehand.model.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class FlushReport(Report):
    """What a flush brought into the cold table."""

    #: The verb; not in the JSON.
    operation: str = "flush"
    #: `committed`, or `nothing_to_do` if there were no changes, or none that the table needs.
    outcome: Outcome
    #: URL of the cold table.
    table: str
    #: Newest version of the cold table that is known.
    version: int
    #: Commits that were made: one per epoch.
    epochs: int = 0
    #: Changed rows and deleted keys that were flushed, older versions of the same keys included.
    changes: int = 0
    #: Rows that were written.
    rows_written: int = 0
    #: Keys that were deleted.
    keys_deleted: int = 0
    #: Memory that was freed.
    bytes_freed: int = 0
    duration_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        document = asdict(self)
        del document["operation"]
        return document


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageStats:
    """Where the rows of a hot table are."""

    #: URL of the cold table.
    table: str
    #: Newest change that can be seen.
    sequence: int
    #: Changed rows in memory; older versions count until they are merged.
    hot_rows: int
    #: Memory of these.
    hot_bytes: int
    #: Changes in memory that were not merged yet.
    delta_entries: int
    #: Changed rows among `hot_rows` that are being flushed.
    frozen_rows: int
    #: How long the oldest change has been out of the cold table; 0 if there is none.
    oldest_seconds: float
    #: Size of the log, and the files that it is in.
    log_bytes: int
    log_segments: int
    #: The version of the cold table that readers see.
    cold_version: int
    cold_files: int
    cold_bytes: int
    #: Rows of the cold table, rows that hot changes hide included; None where it does not say.
    cold_rows: int | None
    #: Flushes since the table was opened, and how many failed.
    flushes: int
    flush_failures: int
    #: What the last flush failed for; None if it succeeded.
    last_error: str | None
    #: Memory that all tables under the same limit use together, and its peak.
    shared_bytes: int
    shared_peak_bytes: int
    #: How often a writer had to wait for memory.
    waits: int

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as a JSON document."""
        return asdict(self)


def storage_stats(table: HotTable, parts: Opened, flusher: Flusher) -> StorageStats:
    layers, snapshot = parts.layers, parts.layers.view.snapshot
    return StorageStats(
        table=table.url,
        sequence=layers.sequence,
        hot_rows=table.hot_rows,
        hot_bytes=table.hot_bytes,
        delta_entries=table.unmerged_changes,
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
