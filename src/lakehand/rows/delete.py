"""Delete: rows for which a condition is true leave the table, and no others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from lakehand.engine.runner_contract import granted_cores
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.expressions.pruning import ALL, UNKNOWN, decide
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.formats.rows import PlacedColumns, RowChangeWorker, change_feed_of
from lakehand.formats.scan import columns_with_bounds, with_bounds
from lakehand.model.snapshot import FILE_NUMBER, POSITION, Snapshot
from lakehand.model.work import DataFile
from lakehand.observe import reported
from lakehand.rows.read_once import ChosenFiles, ReadOnce, bytes_of
from lakehand.rows.row_addresses import Places, visible_rows
from lakehand.rows.row_changes import RowChanges
from lakehand.rows.row_operation import RowOperation, open_row_operation
from lakehand.rows.row_reports import deletion_report
from lakehand.runs.operation import Call, CallOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.worker import TaskLimits
    from lakehand.model.reports import DeletionReport
    from lakehand.rows.table_exchange import Exchange
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchTask:
    """From files to the places of rows that fulfil a condition. Picklable."""

    worker: RowChangeWorker
    exchange: Exchange
    #: What is read of the rows; their places are all that counts.
    wanted: PlacedColumns
    limits: TaskLimits

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        limits = replace(self.limits, threads=granted_cores())
        counts = np.zeros(len(files), np.int64)
        numbers = pa.array(payload["numbers"], pa.int32())
        found: list[pa.Table] = []
        for batch in self.worker.read_placed(files, self.wanted, limits=limits):
            places = batch.column(FILE_NUMBER)
            counts += np.bincount(places.to_numpy(), minlength=len(files))
            found.append(
                pa.table({"file": numbers.take(places), "position": batch.column(POSITION)})
            )
        name = f"matches-{payload['portion']:06d}"
        key = self.exchange.put(name, pa.concat_tables(found)) if found else None
        return {"key": key, "rows": counts.tolist()}


def file_verdicts(table: FormatTable, predicate: Predicate) -> ChosenFiles:
    """Return what metadata says of files: whether rows in them fulfil a condition."""

    def decide_all(snapshot: Snapshot) -> np.ndarray:
        bounded = with_bounds(table, snapshot, columns_with_bounds(predicate, snapshot))
        verdicts: np.ndarray = decide(predicate, bounded.files).to_numpy(zero_copy_only=False)
        return verdicts

    return ChosenFiles(decide_all)


class Matching:
    """Finds rows that fulfil a condition. Files that were read once are not read again."""

    #: The version that was searched last, and the rows that were compared for it.
    snapshot: Snapshot
    places: Places

    def __init__(
        self, operation: RowOperation, predicate: Predicate, verdicts: ChosenFiles
    ) -> None:
        """`verdicts` are those of `file_verdicts`."""
        self._operation = operation
        self._verdicts = verdicts
        self._predicate = predicate
        self._once = ReadOnce(operation)

    @property
    def rows_read(self) -> int:
        """Visible rows of files that were read."""
        return sum(self._count(number) for number in self._once.found)

    def find(self, snapshot: Snapshot) -> Places:
        """Return the rows of `snapshot` for which the condition is true."""
        with self._operation.call.watch.measure("plan"):
            self.snapshot, self.places = snapshot, self._find(snapshot)
        return self.places

    def _find(self, snapshot: Snapshot) -> Places:
        once, verdicts = self._once, self._verdicts.of(snapshot)
        whole = once.numbers_of(snapshot, verdicts == ALL)
        unclear = once.numbers_of(snapshot, verdicts == UNKNOWN)
        once.read(unclear, self._task())
        counts = once.counts(unclear)
        if counts and self._must_read_all:
            once.read(whole, self._task())
            counts |= once.counts(whole)
            whole = []
        divided = once.divided({*unclear, *counts})
        return Places(
            portions=divided,
            files=once.files,
            keys={
                portion: [key]
                for portion, key in once.keys.items()
                if any(number in counts for number in divided[portion])
            },
            counts=counts,
            unread={number: self._count(number) for number in whole},
        )

    @property
    def _must_read_all(self) -> bool:
        """Whether change data feed readers see only rows that are written to change files."""
        worker = self._operation.worker
        return change_feed_of(worker) is not None and not worker.hides_rows

    def _count(self, number: int) -> int:
        return visible_rows(self._once.files[number], self._operation.worker)

    def _task(self) -> MatchTask:
        columns = self._predicate.columns or tuple(self._operation.worker.schema.names[:1])
        return MatchTask(
            worker=self._operation.worker,
            exchange=self._operation.exchange,
            wanted=PlacedColumns(columns=columns[:1], where=self._predicate.text),
            limits=self._operation.limits,
        )


@reported
def delete(
    table: FormatTable,
    *,
    settings: Settings,
    where: str,
    **options: Unpack[CallOptions],
) -> DeletionReport:
    """Delete the rows for which `where` is true. Without any, nothing is committed."""
    table = require_support(table, SupportsRowChanges, operation="delete")
    snapshot = table.snapshot()
    predicate = parse_predicate(where, snapshot.schema, clock=options.get("clock"))
    table.require_deletion(snapshot)
    call = Call.begin("delete", table, settings.with_properties(snapshot.properties), options)
    verdicts = file_verdicts(table, predicate)
    read_bytes = bytes_of(snapshot, verdicts.of(snapshot) == UNKNOWN)
    with open_row_operation(call, snapshot, read_bytes=read_bytes) as operation:
        matching = Matching(operation, predicate, verdicts)
        if call.dry_run:
            matching.find(snapshot)
            return deletion_report(matching, operation)
        done = RowChanges(operation, {"where": predicate.text}).commit(snapshot, matching.find)
    return deletion_report(matching, operation, done=done)
