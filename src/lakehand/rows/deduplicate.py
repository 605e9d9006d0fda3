"""Deduplication: of rows that count as one, one stays.

Keys are hashed and compared in tasks; only files that hold a duplicate are touched. Nothing is
committed before what is left of them is proved, nor if somebody added rows that were not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.observe import reported
from lakehand.observe.clock import SystemClock
from lakehand.observe.stopwatch import Stopwatch
from lakehand.rows.duplicates import Searching
from lakehand.rows.key_equality import Sameness
from lakehand.rows.operation import open_row_operation
from lakehand.rows.report import deduplication_left_to, deduplication_report
from lakehand.rows.row_changes import Withdrawal
from lakehand.rows.search import Search, partitions_for
from lakehand.runs.operation import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import DeduplicationReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.rows.operation import RowOperation
    from lakehand.settings import Settings

__all__ = ["DuplicateRequest", "deduplicate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateRequest:
    """What a call asks for beside its settings."""

    #: Rows with equal values in all of these columns are duplicates.
    key: Sequence[str] | None = None
    #: Rows that are equal in all columns are duplicates.
    exact: bool = False
    #: Which one stays: `first`, `last` or `latest`.
    keep: str = "first"
    #: Whose greatest value `latest` keeps.
    order_by: str | None = None


@reported
def deduplicate(
    table: FormatTable,
    *,
    settings: Settings,
    request: DuplicateRequest,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> DeduplicationReport:
    """Remove rows of which an equal one stays. Without duplicates nothing is committed."""
    snapshot = table.snapshot()
    sameness = _sameness(table, snapshot, request)
    call = Call(
        operation="deduplicate",
        table=table,
        settings=settings.with_properties(snapshot.properties),
        watch=Stopwatch(clock or SystemClock()),
        spark=spark,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    parameters, size = _parameters(sameness), snapshot.total_bytes
    with open_row_operation(call, snapshot, read_bytes=size, parameters=parameters) as operation:
        search = _search(operation, snapshot, sameness)
        if dry_run:
            return deduplication_report(search.find(snapshot), sameness, operation)
        if rivals := operation.rivals():
            return deduplication_left_to(rivals, snapshot, sameness, operation)
        done = Withdrawal(operation, parameters).commit(snapshot, lambda s: search.find(s).places)
    return deduplication_report(search.found, sameness, operation, done=done)


def _sameness(table: FormatTable, snapshot: Snapshot, request: DuplicateRequest) -> Sameness:
    sameness = Sameness.of(
        table.placed_schema(snapshot),
        key=request.key,
        exact=request.exact,
        keep=request.keep,
        order_by=request.order_by,
    )
    keys = () if sameness.exact else sameness.columns
    order = (sameness.order_by,) if sameness.order_by else ()
    table.require_deletion(snapshot, keys=(*keys, *order))
    return sameness


def _search(operation: RowOperation, snapshot: Snapshot, sameness: Sameness) -> Search:
    memory_bytes = operation.limits.memory_bytes
    searching = Searching(
        worker=operation.worker,
        exchange=operation.exchange,
        sameness=sameness,
        limits=operation.limits,
        partitions=partitions_for(snapshot, memory_bytes=memory_bytes),
    )
    return Search(operation, searching)


def _parameters(sameness: Sameness) -> dict[str, Any]:
    return {
        "key": None if sameness.exact else list(sameness.columns),
        "exact": sameness.exact,
        "keep": sameness.keep,
        "orderBy": sameness.order_by,
    }
