"""Deduplication: of rows that count as one, one stays.

Keys are hashed and compared in tasks; only files that hold a duplicate are touched. Nothing is
committed before the remaining rows are proved, nor if a writer added rows that were not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.observe import reported
from lakehand.rows.duplicates import Searching
from lakehand.rows.key_equality import KeyEquality
from lakehand.rows.row_changes import RowChanges
from lakehand.rows.row_operation import RowOperation, open_row_operation
from lakehand.rows.row_reports import deduplication_left_to, deduplication_report
from lakehand.rows.search import Search, partitions_for
from lakehand.runs.operation import Call, CallOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.reports import DeduplicationReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateRequest:
    """What a call asks for in addition to its settings."""

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
    **options: Unpack[CallOptions],
) -> DeduplicationReport:
    """Remove rows of which an equal one stays. Without duplicates nothing is committed."""
    table = require_support(table, SupportsRowChanges, operation="deduplicate")
    snapshot = table.snapshot()
    equality = _equality(table, snapshot, request)
    call = Call.begin("deduplicate", table, settings.with_properties(snapshot.properties), options)
    parameters, size = _parameters(equality), snapshot.total_bytes
    with open_row_operation(call, snapshot, read_bytes=size, parameters=parameters) as operation:
        search = _search(operation, snapshot, equality)
        if call.dry_run:
            return deduplication_report(search.find(snapshot), equality, operation)
        if rivals := operation.rivals():
            return deduplication_left_to(rivals, snapshot, equality, operation)
        done = RowChanges(operation, parameters).commit(snapshot, lambda s: search.find(s).places)
    return deduplication_report(search.found, equality, operation, done=done)


def _equality(
    table: SupportsRowChanges, snapshot: Snapshot, request: DuplicateRequest
) -> KeyEquality:
    equality = KeyEquality.of(
        table.placed_schema(snapshot),
        key=request.key,
        exact=request.exact,
        keep=request.keep,
        order_by=request.order_by,
    )
    keys = () if equality.exact else equality.columns
    order = (equality.order_by,) if equality.order_by else ()
    table.require_deletion(snapshot, keys=(*keys, *order))
    return equality


def _search(operation: RowOperation, snapshot: Snapshot, equality: KeyEquality) -> Search:
    memory_bytes = operation.limits.memory_bytes
    searching = Searching(
        worker=operation.worker,
        exchange=operation.exchange,
        equality=equality,
        limits=operation.limits,
        partitions=partitions_for(snapshot, memory_bytes=memory_bytes),
    )
    return Search(operation, searching)


def _parameters(equality: KeyEquality) -> dict[str, Any]:
    return {
        "key": None if equality.exact else list(equality.columns),
        "exact": equality.exact,
        "keep": equality.keep,
        "orderBy": equality.order_by,
    }
