"""Found rows on their way out of the table, and new ones on theirs into it: tasks, and one commit.

A commit that lost to a concurrent change of rows is not retried unchanged: new files are searched
too, and only the remaining changes are committed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakehand.errors import CommitConflictError, ReplanError
from lakehand.formats.rows import change_feed_of
from lakehand.formats.worker import WriteSpec
from lakehand.model.work import Change, DataFile, GroupResult, Receipt, Transaction
from lakehand.observe import Progress
from lakehand.rows.deletes import RemovalTask, Removed, Way
from lakehand.rows.row_addresses import Places, visible_rows
from lakehand.runs import Run, commit_results
from lakehand.runs.ledger_records import table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.inserts import Inserted
    from lakehand.rows.row_operation import RowOperation

#: How often rows are searched again because of concurrent changes.
_TRIES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedChanges:
    """What was committed."""

    snapshot: Snapshot
    places: Places
    removed: tuple[Removed, ...]
    ways: Mapping[int, Way]
    receipt: Receipt
    #: Commits that were overtaken.
    retries: int
    #: None if no rows were to come.
    inserted: Inserted | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """What was taken out of a portion, and for which rows."""

    signature: str
    removed: Removed


class Exchanged(Protocol):
    """Rows that are added while others are deleted."""

    @property
    def rows(self) -> int:
        """How many are to be in the table."""
        ...

    def replaced(self) -> int:
        """Return how many of the rows that were found another row replaces."""
        ...

    def write(self, *, tells_changes: bool) -> Inserted:
        """Write the new rows, given the rows that were found."""
        ...

    def forget(self) -> None:
        """Note that what was written is deleted."""
        ...


class RowChanges:
    """Takes rows out of files and commits; what is written already is used while it is right."""

    def __init__(
        self,
        operation: RowOperation,
        parameters: Mapping[str, Any],
        *,
        inserts: Exchanged | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """`parameters` are what the commit says of itself; `inserts` are to be in it, too."""
        self._operation = operation
        self._parameters = parameters
        self._inserts = inserts
        self._transaction = transaction
        self._done: dict[int, _Done] = {}
        #: Tries that were begun.
        self._taken = 0

    def commit(
        self, snapshot: Snapshot, search: Callable[[Snapshot], Places]
    ) -> CommittedChanges | None:
        """Commit what `search` finds in the newest version; None if there is nothing to commit.

        Raises CommitConflictError if others change rows all the time.
        """
        state = table_state(snapshot)
        overtaken: CommitConflictError | None = None
        for retries in self._tries():
            places = search(snapshot)
            if not places.rows and not (self._inserts and self._inserts.rows):
                return None
            work = self._work(snapshot, places)
            newest = self._operation.table.snapshot()
            if newest.version == snapshot.version:
                try:
                    receipt = self._commit(work)
                except CommitConflictError as error:
                    if not error.retryable:
                        raise
                    overtaken = error
                    self._forget()
                    newest = self._operation.table.snapshot()
                else:
                    return replace(work, receipt=receipt, retries=retries)
            _require_same_table(newest, state)
            snapshot = newest
        raise overtaken or _outrun(snapshot, tries=self._taken)

    def _tries(self) -> Iterator[int]:
        """Count tries: `_TRIES` at least, and more of them while commits may be rebased."""
        settings, clock = self._operation.call.settings, self._operation.call.watch.clock
        deadline = clock.monotonic() + settings.commit_timeout.total_seconds()
        for number in range(max(_TRIES, settings.commit_attempts)):
            if number >= _TRIES and clock.monotonic() > deadline:
                return
            self._taken = number + 1
            yield number

    def _forget(self) -> None:
        """Give up what was written: it is deleted by now."""
        self._done = {}
        if self._inserts is not None:
            self._inserts.forget()

    def _work(self, snapshot: Snapshot, places: Places) -> CommittedChanges:
        """Return all that is to be committed, written and proved."""
        ways = self._ways(places)
        tells = self._tells(ways)
        removed = self._remove(places, ways, tells=tells)
        inserted = None
        if self._inserts is not None:
            inserted = self._inserts.write(tells_changes=tells)
        return CommittedChanges(
            snapshot=snapshot,
            places=places,
            removed=removed,
            ways=ways,
            receipt=Receipt(version=snapshot.version),
            retries=0,
            inserted=inserted,
        )

    def _tells(self, ways: Mapping[int, Way]) -> bool:
        """Whether change data feed readers would otherwise derive wrong changes from the files.

        Removed files and deletion vectors mean deleted rows to them, and new files mean new rows.
        """
        replaces = self._inserts is not None and self._inserts.replaced() > 0
        is_fed = change_feed_of(self._operation.worker) is not None
        return is_fed and (replaces or "rewrite" in ways.values())

    def _ways(self, places: Places) -> dict[int, Way]:
        """Return how each file loses its rows."""
        return {
            number: self._way(places.files[number], rows) for number, rows in places.counts.items()
        }

    def _way(self, file: DataFile, rows: int) -> Way:
        worker = self._operation.worker
        may_drop = self._inserts is None or not worker.keeps_emptied_files
        if may_drop and rows == visible_rows(file, worker):
            return "drop"
        return "hide" if worker.hides_rows else "rewrite"

    def _remove(
        self, places: Places, ways: Mapping[int, Way], *, tells: bool
    ) -> tuple[Removed, ...]:
        """Run the tasks of portions whose rows are others than before."""
        wanted = {p: self._signature(places, ways, p, tells=tells) for p in places.keys}
        stale = [p for p in wanted if p not in self._done or self._done[p].signature != wanted[p]]
        task = RemovalTask(
            worker=self._operation.worker,
            run=self._run,
            exchange=self._operation.exchange,
            spec=WriteSpec.of_tasks(self._operation.call.settings),
            limits=self._operation.limits,
            prove=self._operation.call.settings.prove,
            tells_changes=tells,
        )
        payloads = [self._payload(places, ways, portion) for portion in stale]
        for portion, result in zip(
            stale, self._operation.tasks.results("rewrite", task, payloads), strict=True
        ):
            removed = Removed.from_json(result)
            self._done[portion] = _Done(signature=wanted[portion], removed=removed)
        return tuple(self._done[portion].removed for portion in wanted)

    def _signature(
        self, places: Places, ways: Mapping[int, Way], portion: int, *, tells: bool
    ) -> str:
        """Return what tells the work on a portion from other work on it."""
        rows = places.rows_of(portion, self._operation.exchange)
        chosen = [ways[number] for number in places.files_of(portion)]
        found = hashlib.sha256(json.dumps([tells, chosen]).encode())
        for column in rows.columns:
            numbers = column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column
            found.update(numbers.to_numpy().tobytes())
        return found.hexdigest()

    def _payload(self, places: Places, ways: Mapping[int, Way], portion: int) -> dict[str, Any]:
        numbers = places.files_of(portion)
        return {
            "group": portion,
            "numbers": numbers,
            "files": [asdict(places.files[number]) for number in numbers],
            "ways": [ways[number] for number in numbers],
            "keys": places.keys[portion],
        }

    def _commit(self, work: CommittedChanges) -> Receipt:
        self._operation.call.tell(Progress(phase="commit", done=0, total=1, unit="commits"))
        written = [part.objects for part in work.removed]
        if work.inserted is not None:
            written.append((*work.inserted.adds, *work.inserted.changes))
        results = [
            GroupResult(group=number, attempt="", outputs=outputs)
            for number, outputs in enumerate(written)
        ]
        with self._operation.call.watch.measure("commit"):
            return commit_results(
                self._run, self._operation.table, self._change(work), results=results
            )

    def _change(self, work: CommittedChanges) -> Change:
        places, inserted = work.places, work.inserted
        return Change(
            kind="delete" if inserted is None else "update",
            base_version=work.snapshot.version,
            table_id=work.snapshot.table_id,
            operation=self._operation.call.operation,
            parameters=self._parameters,
            adds=(
                *(file for part in work.removed for file in part.adds),
                *(inserted.adds if inserted else ()),
            ),
            removes=tuple(places.files[n] for n in (*places.counts, *places.unread)),
            changes=(
                *(file for part in work.removed for file in part.changes),
                *(inserted.changes if inserted else ()),
            ),
            transaction=self._transaction,
            reads_rows=True,
            proof=_proof(work),
            metrics=self._metrics(work),
        )

    def _metrics(self, work: CommittedChanges) -> dict[str, int]:
        if self._inserts is None:
            return {"numDeletedRows": work.places.rows}
        updated = self._inserts.replaced()
        kept = {number for number, way in work.ways.items() if way == "rewrite"}
        files = work.places.files
        visible = sum(visible_rows(files[number], self._operation.worker) for number in kept)
        return {
            "numTargetRowsUpdated": updated,
            "numTargetRowsDeleted": work.places.rows - updated,
            "numTargetRowsInserted": self._inserts.rows - updated,
            "numTargetRowsCopied": visible - sum(work.places.counts[number] for number in kept),
        }

    @property
    def _run(self) -> Run:
        if self._operation.run is None:
            raise ValueError("a dry run has nothing to commit")
        return self._operation.run


def _proof(work: CommittedChanges) -> dict[str, Any]:
    """Return the evidence by portion, without a digest for rows that were not read."""
    proofs = [part.proof for part in work.removed]
    if work.places.unread:
        proofs = [replace(proof, removed_digest=None) for proof in proofs]
    if work.inserted is not None and work.inserted.proof is not None:
        proofs.append(work.inserted.proof)
    return {str(number): proof.to_json() for number, proof in enumerate(proofs)}


def _outrun(snapshot: Snapshot, *, tries: int) -> CommitConflictError:
    return CommitConflictError(
        f"others changed rows of {snapshot.table} faster than they could be compared, {tries}"
        " times in a row",
        table=snapshot.table,
        actual_version=snapshot.version,
        hint="nothing was written; try again when fewer writers are at work",
    )


def _require_same_table(snapshot: Snapshot, state: str) -> None:
    if table_state(snapshot) != state:
        raise ReplanError(
            f"version {snapshot.version} of {snapshot.table} has other columns or properties than"
            " the rows were compared by",
            table=snapshot.table,
            actual_version=snapshot.version,
            hint="nothing was written; run the operation again",
        )
