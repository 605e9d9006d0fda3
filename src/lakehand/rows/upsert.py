"""Upsert: inserts rows by their keys, and replaces rows that exist.

Keys are looked for in key columns only, and only of files that may hold one of them. What is left
of touched files is proved as after a deletion: by the positions that vectors hide, or by the rows
of files that are rewritten. New rows are proved as storage gives them back. All of it is one
commit, which fails if another writer added or changed rows that were not searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitUnknownError, ReplanError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.rows.incoming import Incoming, files_with_keys
from lakehand.rows.inserts import IncomingRows, Inserts
from lakehand.rows.key_matching import KeyMatching
from lakehand.rows.read_once import ChosenFiles, bytes_of
from lakehand.rows.row_changes import CommittedChanges, RowChanges
from lakehand.rows.row_operation import RowOperation, open_row_operation
from lakehand.rows.row_reports import upsert_report
from lakehand.runs.operation import INLINE_BYTES, Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.reports import MergeReport, UpsertReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.model.work import Receipt, StagedFile, Transaction
    from lakehand.rows.read_once import RowSearch
    from lakehand.rows.row_addresses import Places
    from lakehand.runs.ledger_records import Fate


class AlreadyThere(Exception):  # noqa: N818  no failure: the caller knows whose it is, or asks
    """The table has the mark of this upsert, so it was committed before."""


@dataclass(kw_only=True, slots=True)
class Mark:
    """The transaction of an upsert, and the fates of attempts whose outcome is unknown."""

    transaction: Transaction
    doubtful: list[Fate]


@dataclass(frozen=True, kw_only=True, slots=True)
class Upserted:
    """The result of an upsert or a merge."""

    report: UpsertReport | MergeReport
    #: None if nothing was committed.
    receipt: Receipt | None
    #: Files of the new rows.
    files: tuple[StagedFile, ...] = ()


def upsert(
    table: FormatTable,
    incoming: Incoming,
    *,
    call: Call,
    head: TableHead,
    parameters: Mapping[str, Any] | None = None,
    mark: Mark | None = None,
) -> Upserted:
    """Bring rows in. `head` is the table as it was when they were made to fit it.

    Without anything to change nothing is committed. AlreadyThere if the table has the `mark`.
    """
    table = require_support(table, SupportsRowChanges, operation="upsert")
    snapshot = table.snapshot()
    require_same_table(snapshot, head, operation="upsert")
    table.require("append", snapshot)
    table.require_deletion(snapshot, keys=incoming.key.names)
    files = ChosenFiles(lambda newest: files_with_keys(table, newest, incoming))
    read_bytes = bytes_of(snapshot, files.of(snapshot))
    with open_row_operation(
        call, snapshot, read_bytes=read_bytes, inline_bytes=INLINE_BYTES
    ) as operation:
        matching = KeyMatching(operation, incoming, files)
        if call.dry_run:
            matching.find(snapshot)
            return Upserted(report=upsert_report(matching, incoming, operation), receipt=None)
        changes = RowChanges(
            operation,
            {"key": list(incoming.key.names), **(parameters or {})},
            inserts=Inserts(operation, IncomingRows(incoming, matching)),
            transaction=mark.transaction if mark else None,
        )
        done = commit_marked(changes, snapshot, matching, mark=mark, operation=operation)
    return upserted(upsert_report(matching, incoming, operation, done=done), done)


def commit_marked(
    changes: RowChanges,
    snapshot: Snapshot,
    search: RowSearch,
    *,
    mark: Mark | None,
    operation: RowOperation,
) -> CommittedChanges | None:
    """Commit what is found, once: AlreadyThere if a version has the mark.

    Notes in the mark what a commit with an unknown outcome may have left in the table.
    """

    def find(newest: Snapshot) -> Places:
        _require_unmarked(operation.table, mark)
        return search.find(newest)

    try:
        return changes.commit(snapshot, find)
    except CommitUnknownError:
        if mark is not None and operation.run is not None:
            mark.doubtful += operation.run.unsettled()
        raise


def upserted(report: UpsertReport | MergeReport, done: CommittedChanges | None) -> Upserted:
    """Return the result of rows that were committed, or of nothing to commit."""
    if done is None or done.inserted is None:
        return Upserted(report=report, receipt=None)
    if done.receipt.already_committed:
        raise AlreadyThere
    return Upserted(report=report, receipt=done.receipt, files=done.inserted.adds)


def _require_unmarked(table: SupportsRowChanges, mark: Mark | None) -> None:
    """Raise if the mark is in a version that the commit would not look at: one before its own."""
    if mark is not None and mark.transaction.is_in(table.transactions()):
        raise AlreadyThere


def require_same_table(snapshot: Snapshot, head: TableHead, *, operation: str) -> None:
    """Raise if the table asks something else of rows than when they were made to fit it."""
    is_same = (
        snapshot.table_id == head.table_id
        and snapshot.rules == head.rules
        and dict(snapshot.properties) == dict(head.properties)
        and snapshot.schema.equals(head.schema)
    )
    if not is_same:
        raise ReplanError(
            f"{snapshot.table} got other columns or properties while rows were made to fit it",
            table=snapshot.table,
            actual_version=snapshot.version,
            hint=f"nothing was written; run the {operation} again",
        )
