"""Found rows on their way out of the table: tasks that take them out, and one commit.

A commit that was overtaken by changes of rows is not tried again as it is: what came since is
searched, too, and only what that leaves is committed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitConflictError, ReplanError
from lakehand.model.work import Change, GroupResult, Receipt
from lakehand.observe import Progress
from lakehand.rewrite.execute import write_spec
from lakehand.rows.places import visible_rows
from lakehand.rows.removal import RemovalTask, Removed
from lakehand.runs import commit_results
from lakehand.runs.records import table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile
    from lakehand.rows.places import Places
    from lakehand.rows.removal import Way
    from lakehand.rows.workshop import Workshop
    from lakehand.runs import Run

__all__ = ["Withdrawal", "Withdrawn"]

#: How often rows are searched anew because others changed some meanwhile.
_TRIES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawn:
    """What was committed."""

    snapshot: Snapshot
    places: Places
    removed: tuple[Removed, ...]
    ways: Mapping[int, Way]
    receipt: Receipt
    #: Commits that were overtaken.
    retries: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """What was taken out of a portion, and for which rows."""

    signature: str
    removed: Removed


class Withdrawal:
    """Takes rows out of files and commits; what is written already is used while it is right."""

    def __init__(self, shop: Workshop, parameters: Mapping[str, Any]) -> None:
        """`parameters` are what the commit says of itself."""
        self._shop = shop
        self._parameters = parameters
        self._done: dict[int, _Done] = {}

    def commit(self, snapshot: Snapshot, search: Callable[[Snapshot], Places]) -> Withdrawn | None:
        """Commit what `search` finds in the newest version; None if there is nothing to commit.

        Raises CommitConflictError if others change rows all the time.
        """
        state = table_state(snapshot)
        overtaken: CommitConflictError | None = None
        for retries in range(_TRIES):
            places = search(snapshot)
            if not places.rows:
                return None
            ways = self._ways(places)
            removed = self._remove(places, ways)
            newest = self._shop.table.snapshot()
            if newest.version == snapshot.version:
                try:
                    receipt = self._commit(snapshot, places, removed)
                except CommitConflictError as error:
                    # What was written is deleted by now: nothing of it can be used again.
                    overtaken, self._done = error, {}
                    newest = self._shop.table.snapshot()
                else:
                    return Withdrawn(
                        snapshot=snapshot,
                        places=places,
                        removed=removed,
                        ways=ways,
                        receipt=receipt,
                        retries=retries,
                    )
            _require_same_table(newest, state)
            snapshot = newest
        raise overtaken or _outrun(snapshot)

    def _ways(self, places: Places) -> dict[int, Way]:
        """Return how each file loses its rows."""
        return {
            number: self._way(places.files[number], rows) for number, rows in places.counts.items()
        }

    def _way(self, file: DataFile, rows: int) -> Way:
        if rows == visible_rows(file, self._shop.worker):
            return "drop"
        return "hide" if self._shop.worker.hides_rows else "rewrite"

    def _remove(self, places: Places, ways: Mapping[int, Way]) -> tuple[Removed, ...]:
        """Run the tasks of portions whose rows are others than before."""
        # Removes and vectors alone tell readers of changes all there is to know.
        tells = self._shop.worker.feeds_changes and "rewrite" in ways.values()
        wanted = {p: self._signature(places, ways, p, tells=tells) for p in places.keys}
        stale = [p for p in wanted if p not in self._done or self._done[p].signature != wanted[p]]
        task = RemovalTask(
            worker=self._shop.worker,
            run=self._run,
            exchange=self._shop.exchange,
            spec=write_spec(self._shop.call.settings),
            limits=self._shop.limits,
            prove=self._shop.call.settings["prove"],
            tells_changes=tells,
        )
        payloads = [self._payload(places, ways, portion) for portion in stale]
        for portion, result in zip(
            stale, self._shop.labour.run("rewrite", task, payloads), strict=True
        ):
            removed = Removed.from_json(result)
            self._done[portion] = _Done(signature=wanted[portion], removed=removed)
        return tuple(self._done[portion].removed for portion in wanted)

    def _signature(
        self, places: Places, ways: Mapping[int, Way], portion: int, *, tells: bool
    ) -> str:
        """Return what tells the work on a portion from other work on it."""
        rows = places.rows_of(portion, self._shop.exchange)
        chosen = [ways[number] for number in places.files_of(portion)]
        found = hashlib.sha256(json.dumps([tells, chosen]).encode())
        for column in ("file", "position"):
            found.update(rows[column].to_numpy().tobytes())
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

    def _commit(self, snapshot: Snapshot, places: Places, removed: tuple[Removed, ...]) -> Receipt:
        self._shop.labour.tell(Progress(phase="commit", done=0, total=1, unit="commits"))
        results = [
            GroupResult(group=number, attempt="", outputs=part.objects)
            for number, part in enumerate(removed)
        ]
        change = Change(
            kind="delete",
            base_version=snapshot.version,
            table_id=snapshot.table_id,
            operation=self._shop.call.operation,
            parameters=self._parameters,
            adds=tuple(file for part in removed for file in part.adds),
            removes=tuple(places.files[n] for n in (*places.counts, *places.unread)),
            changes=tuple(file for part in removed for file in part.changes),
            reads_rows=True,
            proof=_proof(places, removed),
            metrics={"numDeletedRows": places.rows},
        )
        with self._shop.call.watch.measure("commit"):
            return commit_results(self._run, self._shop.table, change, results=results)

    @property
    def _run(self) -> Run:
        if self._shop.run is None:
            raise ValueError("a dry run has nothing to commit")
        return self._shop.run


def _proof(places: Places, removed: tuple[Removed, ...]) -> dict[str, Any]:
    """Return the evidence by portion; it tells of no digest for rows that nobody read."""
    proofs = (part.proof for part in removed)
    if places.unread:
        proofs = (replace(proof, removed_digest=None) for proof in proofs)
    return {str(number): proof.to_json() for number, proof in enumerate(proofs)}


def _outrun(snapshot: Snapshot) -> CommitConflictError:
    return CommitConflictError(
        f"others changed rows of {snapshot.table} faster than they could be compared, {_TRIES}"
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
