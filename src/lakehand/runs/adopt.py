"""Results of a dead run that still fit the table become results of another run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ObjectNotFoundError
from lakehand.model.work import Group
from lakehand.runs.records import table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile, GroupResult, StagedFile
    from lakehand.runs.ledger import Run
    from lakehand.runs.records import GroupRecord
    from lakehand.runs.state import RunState


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
    files, every input is live and unchanged, and every output is there.
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
        for group, record in self._candidates(dead):
            result = replace(record.result, group=self._next_group)
            own_group = replace(group, id=self._next_group)
            self._run.record(result, group=own_group)
            self._used_inputs.update(file.path for file in group.inputs)
            self.adopted.append(Adopted(group=own_group, result=result, run=dead.run.id))
            self._next_group += 1

    def _candidates(self, dead: RunState) -> Iterable[tuple[Group, GroupRecord]]:
        plan = dead.run.plan()
        identity = dead.run.identity()
        if plan is None or identity is None or not self._wanted(plan):
            return
        if identity["table_state"] != table_state(self._snapshot):
            return
        groups = {item["id"]: Group.from_json(item) for item in plan.get("groups", ())}
        found = [
            (record.group or groups.get(record.result.group), record)
            for record in dead.run.records()
        ]
        live = self._live_files(group for group, _ in found if group is not None)
        for group, record in found:
            if group is not None and self._goes_on(group, record.result, dead, live):
                yield group, record

    def _goes_on(
        self, group: Group, result: GroupResult, dead: RunState, live: Mapping[str, DataFile]
    ) -> bool:
        return (
            result.failure is None
            and not any(file.path in dead.claimed_paths for file in result.outputs)
            and not any(file.path in self._used_inputs for file in group.inputs)
            and all(live.get(file.path) == file for file in group.inputs)
            and all(self._is_there(file) for file in result.outputs)
        )

    def _live_files(self, groups: Iterable[Group]) -> dict[str, DataFile]:
        paths = pa.array({file.path for group in groups for file in group.inputs}, pa.string())
        chosen = pc.indices_nonzero(pc.is_in(self._snapshot.files["path"], value_set=paths))
        files = self._table.data_files(self._snapshot, chosen.to_pylist())
        return {file.path: file for file in files}

    def _is_there(self, file: StagedFile) -> bool:
        try:
            return self._run.store.head(file.path).bytes == file.bytes
        except ObjectNotFoundError:
            return False
