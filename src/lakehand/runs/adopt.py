"""Results of a dead run that still fit the table become results of another run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lakehand
from lakehand.errors import ObjectNotFoundError
from lakehand.runs.records import table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile, Group, GroupResult, StagedFile
    from lakehand.runs.ledger import Run
    from lakehand.runs.state import RunState


#: Age up to which files are adopted; a vacuum takes what is a week old, unless told otherwise.
ADOPTED_WITHIN = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Adopted:
    """A group of a dead run, under its number in the run that adopted it."""

    group: Group
    result: GroupResult
    #: Run that did the work.
    run: str


class Adopter:
    """Chooses which results of dead runs go on, and takes each into the ledger of `run`.

    A result is adopted when the dead run's plan is `wanted`, the table is as it was but for its
    files, every input is live and unchanged, the proof is for as many rows as the inputs have, and
    every output is as it was when it was proved and too young for a vacuum, of whichever engine, to
    delete it while it is being committed.
    """

    def __init__(
        self,
        run: Run,
        table: FormatTable,
        snapshot: Snapshot,
        *,
        wanted: Callable[[Mapping[str, Any]], bool],
        first_group: int = 0,
    ) -> None:
        self._run = run
        self._table = table
        self._snapshot = snapshot
        self._wanted = wanted
        self._next_group = first_group
        self._used_inputs: set[str] = set()
        self.adopted: list[Adopted] = []

    def adopt(self, dead: RunState) -> None:
        """Record in the own ledger what can go on of `dead`, whose fate the own run has put."""
        for group, found in self._candidates(dead):
            result = replace(found, group=self._next_group)
            own_group = replace(group, id=self._next_group)
            self._run.record(result, group=own_group)
            self._used_inputs.update(file.path for file in group.inputs)
            self.adopted.append(Adopted(group=own_group, result=result, run=dead.run.id))
            self._next_group += 1

    def _candidates(self, dead: RunState) -> Iterable[tuple[Group, GroupResult]]:
        if not self._fits(dead):
            return
        groups = dead.run.groups()
        found = [(groups[item.group], item) for item in dead.run.results() if item.group in groups]
        live = self._live_files(group for group, _ in found)
        for group, result in found:
            if self._goes_on(group, result, dead, live):
                yield group, result

    def _fits(self, dead: RunState) -> bool:
        identity = dead.run.identity()
        return (
            identity is not None
            # What another version means by its results is not known to this one.
            and identity.lakehand == lakehand.__version__
            and identity.table_state == table_state(self._snapshot)
            and self._wanted(identity.plan)
        )

    def _goes_on(
        self, group: Group, result: GroupResult, dead: RunState, live: Mapping[str, DataFile]
    ) -> bool:
        return (
            result.failure is None
            and _holds_all_rows(group, result)
            and not any(file.path in dead.claimed_paths for file in result.outputs)
            and not any(file.path in self._used_inputs for file in group.inputs)
            and all(live.get(file.path) == file for file in group.inputs)
            and (proved_before := dead.run.recorded_at(result.group)) is not None
            and all(self._is_as_proved(file, proved_before) for file in result.outputs)
        )

    def _live_files(self, groups: Iterable[Group]) -> dict[str, DataFile]:
        import pyarrow as pa
        import pyarrow.compute as pc

        paths = pa.array({file.path for group in groups for file in group.inputs}, pa.string())
        chosen = pc.indices_nonzero(pc.is_in(self._snapshot.files["path"], value_set=paths))
        files = self._table.data_files(self._snapshot, chosen.to_pylist())
        return {file.path: file for file in files}

    def _is_as_proved(self, file: StagedFile, proved_before: datetime) -> bool:
        """Say whether an output is there, and was not written again after its proof."""
        try:
            found = self._run.store.head(file.path)
        except ObjectNotFoundError:
            return False
        is_young = self._run.clock.now() - found.modified_at < ADOPTED_WITHIN
        return found.bytes == file.bytes and found.modified_at <= proved_before and is_young


def _holds_all_rows(group: Group, result: GroupResult) -> bool:
    """Say whether a result is proved, for as many rows as the files of its group have."""
    if result.proof is None or sum(file.rows for file in result.outputs) != result.proof.rows:
        return False
    counts = [None if file.rows is None else file.rows - file.deleted_rows for file in group.inputs]
    return None in counts or sum(filter(None, counts)) == result.proof.rows
