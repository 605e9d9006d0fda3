"""Reads tables for their pages: one at a time, in the background, and kept for a while.

A page waits a short time for it, and is shown without these parts if a table is large or its
storage is slow; the next request finds them.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError, describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.assess.inspection import Inspection
    from lakehand.model.reports import HistoryEntry
    from lakehand.model.snapshot import Snapshot
    from lakehand.service.table_explanation import Explanation
    from lakehand.table import Table

#: How long a page waits, how long what was read is kept, and how many tables.
_WAIT_SECONDS, _KEPT_SECONDS, _MAX_KEPT = 2.0, 60.0, 64
#: Commits that the page of a table shows.
HISTORY_LENGTH = 15
#: Partitions that it shows.
WORST_PARTITIONS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFiles:
    """The files of one partition."""

    #: Values of its columns, as `day=2026-01-31`.
    partition: str
    #: Files in it.
    file_count: int
    #: Small ones among them.
    small_file_count: int
    #: Size of all.
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TableContent:
    """What the log of a table says now."""

    #: Key figures; null while they are read, or if they cannot be.
    inspection: Inspection | None = None
    #: Its newest commits.
    history: tuple[HistoryEntry, ...] = ()
    #: Partitions with the most small files.
    partitions: tuple[PartitionFiles, ...] = ()
    #: Why the table is maintained or not; null while it is read.
    explanation: Explanation | None = None
    #: Why the table cannot be read; null if it can.
    error: dict[str, Any] | None = None
    #: Whether it is still being read.
    is_pending: bool = False

    def to_json(self) -> dict[str, Any]:
        from lakehand.web.endpoints import to_json

        named = ("history", "partitions", "explanation", "error", "is_pending")
        found = {name: to_json(getattr(self, name)) for name in named}
        inspection = None if self.inspection is None else self.inspection.to_json()
        return {"inspection": inspection, **found}


def read_table(
    table: Table,
    *,
    explanation: Explanation | None = None,
    snapshot: Snapshot | None = None,
    by: Sequence[str] = (),
) -> TableContent:
    """Read what the page of a table shows, from its log alone; `by` as for `inspect`."""
    snapshot = snapshot or table.snapshot(statistics=by)
    inspection = table.inspect_snapshot(snapshot, by=by)
    history = tuple(table.history(limit=HISTORY_LENGTH))
    partitions = worst_partitions(snapshot.files, small_bytes=inspection.small_file_bytes)
    return TableContent(
        inspection=inspection,
        history=history,
        partitions=partitions if inspection.partition_columns else (),
        explanation=explanation,
    )


def worst_partitions(files: Any, *, small_bytes: int) -> tuple[PartitionFiles, ...]:
    """Return the partitions with the most small files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = files["partition"].combine_chunks()
    if files.num_rows == 0 or not len(parts.type):
        return ()
    small = pc.less(files["bytes"], small_bytes).cast(pa.int64())
    table = pa.table({"partition": _names(parts), "bytes": files["bytes"], "small": small})
    sums = table.group_by("partition").aggregate(
        [("bytes", "count"), ("bytes", "sum"), ("small", "sum")]
    )
    order = [("small_sum", "descending"), ("bytes_count", "descending"), ("partition", "ascending")]
    rows = sums.sort_by(order).slice(0, WORST_PARTITIONS).to_pylist()
    return tuple(
        PartitionFiles(
            partition=row["partition"],
            file_count=row["bytes_count"],
            small_file_count=row["small_sum"],
            total_bytes=row["bytes_sum"],
        )
        for row in rows
    )


def _names(parts: Any) -> Any:
    """Return the name of each partition, as `day=2026-01-31, region=eu`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.binary_join_element_wise(
            pa.scalar(name),
            column.cast(pa.string()),
            "=",
            null_handling="replace",
            null_replacement="null",
        )
        for name, column in zip(parts.type.names, parts.flatten(), strict=True)
    ]
    return pc.binary_join_element_wise(*columns, ", ")


@dataclass(slots=True)
class _Kept:
    """A table that is read, or was."""

    result: Future[TableContent]
    at: float = field(default_factory=time.monotonic)


class TableReader:
    """Reads one table after the other, and keeps what it found."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lakehand-table-reader")
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int | None], _Kept] = {}

    def read(
        self,
        url: str,
        version: int | None,
        work: Callable[[], TableContent],
        *,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> TableContent:
        """Return what a table has at its known version, or what is known of it in time."""
        key = (url, version)
        now = time.monotonic()
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or (kept.result.done() and now - kept.at > _KEPT_SECONDS):
                if len(self._kept) >= _MAX_KEPT:
                    self._forget_oldest()
                kept = self._kept[key] = _Kept(self._threads.submit(_guarded, work))
        try:
            return kept.result.result(wait_seconds)
        except NotYetError:
            return TableContent(is_pending=True)

    def _forget_oldest(self) -> None:
        oldest = min(self._kept, key=lambda key: self._kept[key].at)
        self._kept.pop(oldest).result.cancel()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _guarded(work: Callable[[], TableContent]) -> TableContent:
    try:
        return work()
    except LakehandError as error:
        return TableContent(error=error.to_json())
    except Exception as error:  # noqa: BLE001  the page of a table that cannot be read is shown
        return TableContent(error={**describe_error(error), "message": type(error).__name__})
