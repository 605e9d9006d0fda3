"""Deletion: rows for which a condition is true leave the table, and no others.

Files of which metadata says that all rows go are dropped unread. Of the others only those are
touched that hold such a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import UNKNOWN
from lakehand.observe.clock import SystemClock
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.rows.matching import Matching, file_verdicts
from lakehand.rows.read_once import bytes_of
from lakehand.rows.report import deletion_report
from lakehand.rows.withdrawal import Withdrawal
from lakehand.rows.workshop import Call, open_workshop

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.row_reports import DeletionReport
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["delete"]


def delete(
    table: FormatTable,
    *,
    settings: Settings,
    where: str,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> DeletionReport:
    """Delete the rows for which `where` is true. Without any, nothing is committed."""
    clock = clock or SystemClock()
    snapshot = table.snapshot()
    predicate = parse_predicate(where, snapshot.schema, clock=clock)
    table.require_deletion(snapshot)
    call = Call(
        operation="delete",
        settings=settings.with_properties(snapshot.properties),
        watch=Stopwatch(clock),
        spark=spark,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    verdicts = file_verdicts(table, predicate)
    read_bytes = bytes_of(snapshot, verdicts.of(snapshot) == UNKNOWN)
    with open_workshop(table, snapshot, call, read_bytes=read_bytes) as shop:
        matching = Matching(shop, predicate, verdicts)
        if dry_run:
            matching.find(snapshot)
            return deletion_report(matching, shop)
        done = Withdrawal(shop, {"where": predicate.text}).commit(snapshot, matching.find)
    return deletion_report(matching, shop, done=done)
