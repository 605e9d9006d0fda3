"""Merge: updates, deletes and inserts rows of a table by a join with a source, clause by clause.

The join decides over rows of the table (`merge_matching`); new rows are made of both sides
(`merged_rows`). From there on a merge is an upsert: rows leave their files, new ones are written,
both are proved, and all of it is one commit, which fails if another writer added or changed rows
that were not searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.expressions.pruning import may_match
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.formats.scan import columns_with_bounds, with_bounds
from lakehand.rows.incoming import files_with_values
from lakehand.rows.inserts import Inserts
from lakehand.rows.merge_clauses import Columns
from lakehand.rows.merge_conditions import MergeConditions
from lakehand.rows.merge_matching import MergeMatching
from lakehand.rows.merged_rows import Assignments, MergedRows
from lakehand.rows.read_once import ChosenFiles, bytes_of
from lakehand.rows.row_changes import RowChanges
from lakehand.rows.row_operation import open_row_operation
from lakehand.rows.row_reports import merge_report
from lakehand.rows.upsert import (
    Mark,
    Upserted,
    commit_marked,
    require_same_table,
    upserted,
)
from lakehand.runs.operation import INLINE_BYTES, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.rows.merge_clauses import MergeSpec
    from lakehand.rows.merge_source import MergeSource

    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRequest:
    """What a merge is about."""

    spec: MergeSpec
    source: MergeSource
    #: The table as it was when the merge began.
    head: TableHead
    #: Makes rows fit the table, and holds them against its rules.
    fit: Callable[[pa.RecordBatch], pa.RecordBatch]


def merge(
    table: FormatTable,
    request: MergeRequest,
    *,
    call: Call,
    parameters: Mapping[str, Any] | None = None,
    mark: Mark | None = None,
) -> Upserted:
    """Run a merge. Without anything to change nothing is committed.

    AlreadyThere if the table has the `mark`.
    """
    table = require_support(table, SupportsRowChanges, operation="merge")
    snapshot = table.snapshot()
    require_same_table(snapshot, request.head, operation="merge")
    table.require("append", snapshot)
    table.require_deletion(snapshot)
    conditions = MergeConditions(
        spec=request.spec,
        target=snapshot.schema,
        source=request.source.schema,
        now=call.clock.now(),
    )
    assignments = _assignments(request, conditions)
    files = _chosen_files(table, conditions, request.source)
    read_bytes = bytes_of(snapshot, files.of(snapshot))
    with open_row_operation(
        call, snapshot, read_bytes=read_bytes, inline_bytes=INLINE_BYTES
    ) as operation:
        matching = MergeMatching(operation, conditions, request.source, files)
        rows = MergedRows(
            matching,
            request.source,
            assignments,
            conditions=conditions,
            worker=operation.worker,
            fit=request.fit,
        )
        if call.dry_run:
            matching.find(snapshot)
            return Upserted(report=merge_report(matching, rows, request, operation), receipt=None)
        changes = RowChanges(
            operation,
            {**request.spec.parameters(), **(parameters or {})},
            inserts=Inserts(operation, rows),
            transaction=mark.transaction if mark else None,
        )
        done = commit_marked(changes, snapshot, matching, mark=mark, operation=operation)
    return upserted(merge_report(matching, rows, request, operation, done=done), done)


def _assignments(request: MergeRequest, conditions: MergeConditions) -> dict[int, Assignments]:
    """Compile the expressions of all clauses that write rows."""
    spec, head = request.spec, request.head
    columns = Columns(
        target=tuple(head.schema.names),
        source=tuple(request.source.schema.names),
        generated=frozenset(head.row_rules.generated),
    )
    schemas = {spec.target: head.schema, spec.source: request.source.schema}
    return {
        number: Assignments(clause, spec, columns, schemas=schemas, now=conditions.now)
        for number, clause in enumerate(spec.clauses)
        if clause.action != "delete"
    }


def _chosen_files(
    table: SupportsRowChanges, conditions: MergeConditions, source: MergeSource
) -> ChosenFiles:
    """Return which files may hold a row that matches, or that changes without a match."""
    on = conditions.on_target()
    alone = conditions.not_matched_by_source()
    keys = _keys(conditions, source)

    def choose(snapshot: Snapshot) -> Flags:
        if alone is None:
            return np.ones(snapshot.file_count, np.bool_)
        matching = np.full(snapshot.file_count, source.rows > 0, np.bool_)
        for predicate in on:
            matching &= _may_hold(table, snapshot, predicate)
        matching &= files_with_values(table, snapshot, keys)
        for predicate in alone:
            matching |= _may_hold(table, snapshot, predicate)
        return matching

    return ChosenFiles(choose)


def _may_hold(table: SupportsRowChanges, snapshot: Snapshot, predicate: Predicate) -> Flags:
    bounded = with_bounds(table, snapshot, columns_with_bounds(predicate, snapshot))
    found: Flags = may_match(predicate, bounded.files).to_numpy(zero_copy_only=False)
    return found


def _keys(conditions: MergeConditions, source: MergeSource) -> dict[str, pa.ChunkedArray]:
    """Return the values that columns of rows have to equal if the rows match."""
    # Clauses are not compiled with it: their value lists may read columns of the target.
    calculator = conditions.over_both()
    found = {}
    for equality in calculator.equalities(conditions.spec.on, target=conditions.spec.target):
        values = source.values(equality, calculator)
        found[equality.column] = values if equality.is_null_safe else pc.drop_null(values)
    return found
