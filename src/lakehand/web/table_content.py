"""Reads tables for their pages: one at a time, in the background, and kept for a while.

A page waits a short time for it, and is shown without these parts if a table is large or its
storage is slow; the next request finds them.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError, ValidationError, describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from datetime import datetime

    from lakehand.assess.inspection import Inspection, SizeRange
    from lakehand.model.reports import HistoryEntry
    from lakehand.model.snapshot import Snapshot
    from lakehand.service.table_explanation import Explanation
    from lakehand.table import Table

#: How long a page waits, how long what was read of one version is kept, and how many tables.
_WAIT_SECONDS, _KEPT_SECONDS, _MAX_KEPT = 2.0, 300.0, 64
#: Commits that the page of a table shows.
HISTORY_LENGTH = 15
#: Partitions that it shows.
WORST_PARTITIONS = 10
#: Files that its picture shows, of more files a sample; of tables with more none is drawn.
_DRAWN_FILES, _MOST_FILES = 700, 200_000
#: Columns that are looked at for the axes of the picture, if none is asked for.
_CANDIDATES = 8


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
class SizeChange:
    """The sizes of files before and after a rewrite."""

    #: The version that the rewrite committed.
    version: int
    #: When.
    at: datetime
    #: Name of the operation.
    operation: str | None
    #: Histogram of file sizes before it.
    before: tuple[SizeRange, ...]
    #: The same after it.
    after: tuple[SizeRange, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableContent:
    """What the log of a table says now."""

    #: Key figures; null while they are read, or if they cannot be.
    inspection: Inspection | None = None
    #: Its newest commits.
    history: tuple[HistoryEntry, ...] = ()
    #: Partitions with the most small files.
    partitions: tuple[PartitionFiles, ...] = ()
    #: What the last rewrite did to the sizes of files; null if there was none lately.
    rewrite: SizeChange | None = None
    #: Picture of its files over two columns, as SVG without a style; null if there is none.
    picture: str | None = None
    #: Why there is no picture; null if there is one.
    no_picture: str | None = None
    #: Why the table is maintained or not; null while it is read.
    explanation: Explanation | None = None
    #: Why the table cannot be read; null if it can.
    error: dict[str, Any] | None = None
    #: Whether it is still being read.
    is_pending: bool = False

    def to_json(self) -> dict[str, Any]:
        from lakehand.web.endpoints import to_json

        named = ("history", "partitions", "rewrite", "explanation", "error", "is_pending")
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


def read_for_page(
    table: Table, *, explanation: Explanation | None, by: Sequence[str]
) -> TableContent:
    """Read what the page of a table in a service shows: with the picture, and the last rewrite.

    The picture is drawn over the columns `by`, else over two that have bounds.
    """
    content = read_table(table, explanation=explanation)
    assert content.inspection is not None  # noqa: S101  it was read
    if content.inspection.file_count > _MOST_FILES:
        why = f"the table has more than {_MOST_FILES:,} files"
        return replace(content, no_picture=why)
    try:
        inspection, picture = _draw(table, by)
    except LakehandError as error:
        return replace(content, rewrite=_last_rewrite(table, content), no_picture=error.message)
    return replace(
        content,
        inspection=inspection,
        rewrite=_last_rewrite(table, content),
        picture=picture,
    )


def _draw(table: Table, by: Sequence[str]) -> tuple[Inspection, str]:
    from lakehand.assess.layout_picture import PICTURE_COLUMNS, draw_inspection

    columns = by or _axes(table)
    if len(columns) != PICTURE_COLUMNS:
        message = "a picture needs two columns with minimum and maximum in the log"
        raise ValidationError(message, field="by")
    snapshot = table.snapshot(statistics=columns)
    inspection = table.inspect_snapshot(snapshot, by=columns)
    drawn = draw_inspection(inspection, snapshot.files, max_drawn=_DRAWN_FILES, with_style=False)
    return inspection, drawn


def _axes(table: Table) -> tuple[str, ...]:
    """Return two columns for a picture: those that cluster the table, or the first with bounds."""
    from lakehand.planning.file_bounds import value_bounds
    from lakehand.sorting.ordering import orderable_columns

    declared = table.clustering_columns()
    candidates = list(dict.fromkeys([*declared, *orderable_columns(table.schema())]))[:_CANDIDATES]
    files = table.snapshot(statistics=candidates).files

    def is_useful(column: str) -> bool:
        low = value_bounds(files, column).low
        return low.null_count < len(low) and len(low.unique().drop_null()) > 1

    return tuple(column for column in candidates if is_useful(column))[:2]


def _last_rewrite(table: Table, content: TableContent) -> SizeChange | None:
    """Return what the last proved rewrite changed; None if its log is gone."""
    commit = next((one for one in content.history if one.proof and one.version), None)
    if commit is None:
        return None
    try:
        before, after = (
            table.inspect_snapshot(table.snapshot(version=version)).sizes
            for version in (commit.version - 1, commit.version)
        )
    except LakehandError:  # Cleaned, or not readable: the page does without.
        return None
    return SizeChange(
        version=commit.version,
        at=commit.at,
        operation=commit.operation,
        before=before,
        after=after,
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
        self._kept: dict[Hashable, _Kept] = {}

    def read(
        self,
        key: Hashable,
        work: Callable[[], TableContent],
        *,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> TableContent:
        """Return what a table has, or what is known of it in time; `key` has its version."""
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
