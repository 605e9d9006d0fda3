"""The numbers of reports about rows and files: all of them computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand.model.reports import (
    DeduplicationReport,
    DeletionReport,
    GroupCounts,
    MergeReport,
    MethodCounts,
    UpsertReport,
)
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from lakehand.model.reports import Outcome
    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.delete import Matching
    from lakehand.rows.deletes import Removed
    from lakehand.rows.incoming import Incoming
    from lakehand.rows.inserts import Inserted
    from lakehand.rows.key_equality import KeyEquality
    from lakehand.rows.key_matching import KeyMatching
    from lakehand.rows.merge_into import MergeRequest
    from lakehand.rows.merge_matching import MergeMatching
    from lakehand.rows.merged_rows import MergedRows
    from lakehand.rows.row_changes import CommittedChanges
    from lakehand.rows.row_operation import RowOperation
    from lakehand.rows.search import Found


def deduplication_report(
    found: Found,
    equality: KeyEquality,
    operation: RowOperation,
    *,
    done: CommittedChanges | None = None,
) -> DeduplicationReport:
    """Return the report of a deduplication; without `done` the table is as it was."""
    removed = found.places.rows
    return DeduplicationReport(
        **_figures(found.snapshot, operation, done=done),
        rows_before=found.rows,
        rows_after=found.rows - removed,
        rows_removed=removed,
        rows_read=found.rows,
        key=None if equality.exact else equality.columns,
        keep=equality.keep,
        order_by=equality.order_by,
        duplicates_removed=removed,
        exact_duplicates_removed=removed if equality.exact else 0,
        duplicate_distribution=found.distribution,
        max_duplicates_per_key=max(found.distribution, default=0) + min(found.rows, 1),
        deduplication_ratio=removed / found.rows if found.rows else 0.0,
    )


def deduplication_left_to(
    runs: tuple[str, ...], snapshot: Snapshot, equality: KeyEquality, operation: RowOperation
) -> DeduplicationReport:
    """Return the report of a deduplication that other runs are at work on."""
    return DeduplicationReport(
        **_figures(snapshot, operation, done=None),
        key=None if equality.exact else equality.columns,
        keep=equality.keep,
        order_by=equality.order_by,
        left_to_runs=runs,
    )


def deletion_report(
    matching: Matching, operation: RowOperation, *, done: CommittedChanges | None = None
) -> DeletionReport:
    """Return the report of a deletion; without `done` the table is as it was."""
    snapshot, removed = matching.snapshot, matching.places.rows
    before = _visible_rows(snapshot)
    return DeletionReport(
        **_figures(snapshot, operation, done=done),
        rows_before=before,
        rows_after=None if before is None else before - removed,
        rows_removed=removed,
        rows_read=matching.rows_read,
    )


def upsert_report(
    matching: KeyMatching,
    incoming: Incoming,
    operation: RowOperation,
    *,
    done: CommittedChanges | None = None,
) -> UpsertReport:
    """Return the report of an upsert; without `done` the table is as it was."""
    snapshot, matched = matching.snapshot, matching.matched
    before = _visible_rows(snapshot)
    updated, live = len(matched.numbers), len(incoming.live_numbers)
    after = None if before is None else before - matched.deleted + live - updated
    return UpsertReport(
        **_figures(snapshot, operation, done=done),
        rows_before=before,
        rows_after=after,
        rows_read=matching.rows_read,
        key=incoming.key.names,
        rows_given=incoming.rows_given,
        rows_inserted=live - updated,
        rows_updated=updated,
        rows_deleted=matched.deleted,
        files_scanned=matching.files_read,
    )


def merge_report(
    matching: MergeMatching,
    rows: MergedRows,
    request: MergeRequest,
    operation: RowOperation,
    *,
    done: CommittedChanges | None = None,
) -> MergeReport:
    """Return the report of a merge; without `done` the table is as it was."""
    snapshot, before = matching.snapshot, _visible_rows(matching.snapshot)
    inserted = rows.inserted
    return MergeReport(
        **_figures(snapshot, operation, done=done),
        rows_before=before,
        rows_after=None if before is None else before - matching.deleted + inserted,
        rows_read=matching.rows_read,
        on=request.spec.on,
        rows_given=request.source.rows,
        rows_inserted=inserted,
        rows_updated=rows.replacing,
        rows_deleted=matching.deleted,
        files_scanned=matching.files_read,
    )


def _visible_rows(snapshot: Snapshot) -> int | None:
    rows = snapshot.files["rows"]
    if rows.null_count:
        return None
    return (pc.sum(rows).as_py() or 0) - (pc.sum(snapshot.files["deleted_rows"]).as_py() or 0)


def _figures(
    snapshot: Snapshot, operation: RowOperation, *, done: CommittedChanges | None
) -> dict[str, Any]:
    """Return what every deletion reports of files and time."""
    call, watch = operation.call, operation.call.watch
    timings = watch.milliseconds()
    outcome: Outcome = "committed" if done else "nothing_to_do"
    figures = {
        "operation": call.operation,
        "outcome": "dry_run" if call.dry_run else outcome,
        "table": snapshot.table,
        "version": snapshot.version,
        "files_before": snapshot.file_count,
        "files_after": snapshot.file_count,
        "bytes_before": snapshot.total_bytes,
        "bytes_after": snapshot.total_bytes,
        "duration_ms": watch.total_milliseconds(),
        "plan_ms": timings.get("plan", 0.0),
        "ran_on": operation.tasks.ran_on,
    }
    return figures if done is None else figures | _differences(figures, done, timings)


def _differences(
    before: dict[str, Any], done: CommittedChanges, timings: dict[str, float]
) -> dict[str, Any]:
    ways = list(done.ways.values())
    gone = [done.places.files[n] for n, way in done.ways.items() if way != "hide"]
    gone += [done.places.files[number] for number in done.places.unread]
    marked = {done.places.files[n].path for n, way in done.ways.items() if way == "hide"}
    came = [f for part in done.removed for f in part.adds if f.path not in marked]
    parts: list[Removed | Inserted] = [*done.removed]
    if done.inserted is not None:
        came += done.inserted.adds
        parts.append(done.inserted)
    proofs = [part.proof for part in parts if part.proof is not None]
    portions = len(done.removed)
    return {
        "version": done.receipt.version,
        "files_after": before["files_before"] - len(gone) + len(came),
        "files_removed": len(gone),
        "files_added": len(came),
        "files_marked": len(marked),
        "change_files_added": sum(len(part.changes) for part in parts),
        "rows_written": sum(file.rows for file in came),
        "bytes_after": before["bytes_before"]
        - sum(file.bytes for file in gone)
        + sum(file.bytes for file in came),
        "write_ms": sum(part.timings.get("write", 0.0) for part in parts),
        "prove_ms": sum(part.timings.get("prove", 0.0) for part in parts),
        "commit_ms": timings.get("commit", 0.0),
        "methods": MethodCounts(recode=ways.count("rewrite")),
        "groups": GroupCounts(planned=portions, committed=portions),
        "proof": total_proof(proofs),
        "retries": done.retries + done.receipt.attempts - 1,
    }
