"""Groups that another run has finished or is working on: adopted, waited for, or left to it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import ObjectNotFoundError, RunError
from lakehand.runs.control import current_control
from lakehand.runs.ledger import Run, list_runs
from lakehand.runs.ledger_records import Identity, Inputs, read_record, table_state
from lakehand.runs.state import RunState, log_unreadable, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile, Group, GroupResult, StagedFile
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class LivingRun:
    """A run that is at work, as its ledger tells."""

    id: str
    #: By the clock of the store.
    began_at: datetime
    plan: Mapping[str, Any]
    #: Paths of the files that it is about to replace.
    inputs: frozenset[str]

    @property
    def turn(self) -> tuple[datetime, str]:
        """What decides between two runs: the smaller one keeps its files."""
        return self.began_at, self.id


def living_runs(
    store: Store, *, clock: Clock, takeover_after: timedelta, but: str | None = None
) -> list[LivingRun]:
    """Return the runs that are at work on a table; those that cannot be read are left out.

    `but` is the id of the run that asks.
    """
    others = [run_id for run_id in list_runs(store) if run_id != but]
    runs = (Run(store=store, id=run_id, clock=clock) for run_id in others)
    found = (_read(run, takeover_after=takeover_after) for run in runs)
    return [run for run in found if run is not None]


def earlier_than(run: Run, living: Iterable[LivingRun]) -> list[LivingRun]:
    """Return those of `living` whose turn comes before that of `run`."""
    others = [other for other in living if other.id != run.id]
    if not others:
        return []
    began_at = run.store.head(run.key("run.json")).modified_at
    return [other for other in others if other.turn < (began_at, run.id)]


def _read(run: Run, *, takeover_after: timedelta) -> LivingRun | None:
    if run.id in current_control().known_dead:
        return None
    try:
        identity, state = run.identity(), read_state(run)
        is_at_work = _is_alive(state, now=run.clock.now(), takeover_after=takeover_after)
        if identity is None or state.end is not None or not is_at_work:
            return None
        if _has_died_here(identity):
            return None
        key = run.key("run.json")
        return LivingRun(
            id=run.id,
            began_at=run.store.head(key).modified_at,
            plan=identity.plan,
            inputs=_inputs(run, identity),
        )
    except ObjectNotFoundError:
        # It has ended at this moment.
        return None
    except RunError as error:
        log_unreadable(run, error)
        return None


def _is_alive(state: RunState, *, now: datetime, takeover_after: timedelta) -> bool:
    """Say whether a run has given a sign of life just now.

    One from the future, by a clock that was wrong, would keep the files of a dead run for as long.
    """
    return state.last_sign is not None and abs(now - state.last_sign) <= takeover_after


def _inputs(run: Run, identity: Identity) -> frozenset[str]:
    key = run.key(Inputs.NAME)
    try:
        return frozenset(read_record(Inputs, key, run.store.get(key)).paths)
    except ObjectNotFoundError:
        return frozenset(identity.inputs)


def _has_died_here(identity: Identity) -> bool:
    """Return whether a run of this machine was killed, so that its heartbeat need not expire."""
    if identity.pid is None or identity.host != platform.node():
        return False
    try:
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # what is no number of a process says nothing
    return False


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
            and identity.lakehand == __version__
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
