"""What becomes of runs that died: their results are adopted, or their files are deleted.

A run is dead when its heartbeat is older than `takeover_after`. Its outputs belong to the run that
puts the fate `taken` under its next batch. Only that run may adopt them; later runs may at most
delete. So a suspended run that resumes in the middle of its deletions can never delete a file that
another run is about to commit.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, RunError, UnsafePathError, VersionNotFoundError
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock
from lakehand.observe.steps import Step, reached
from lakehand.runs.adopt import Adopted, Adopter
from lakehand.runs.control import current_control
from lakehand.runs.ledger_records import Fate, put_fate
from lakehand.runs.leftovers import (
    abort_uploads,
    delete_unfinished,
    disown,
    find_leftovers,
    recorded_files,
)
from lakehand.runs.state import RunState, is_idle, log_unreadable, read_state, read_states

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.runs.ledger import Run

logger = get_logger(__name__)

DEFAULT_TAKEOVER_AFTER = timedelta(minutes=2)
#: How long the ledger of a run is kept whose commit was never found. Its files are then old enough
#: for vacuum's default retention.
FORGET_AFTER = timedelta(days=7)


@dataclass(kw_only=True, slots=True)
class SweepReport:
    """What a sweep did to the runs it found dead."""

    #: Runs whose ledger is gone.
    dropped: list[str] = field(default_factory=list)
    #: Runs that were not touched, with the reason.
    kept: dict[str, str] = field(default_factory=dict)
    #: Files that no version refers to and that were deleted.
    files_deleted: list[str] = field(default_factory=list)


def sweep(
    table: FormatTable,
    *,
    clock: Clock | None = None,
    takeover_after: timedelta = DEFAULT_TAKEOVER_AFTER,
) -> SweepReport:
    """Delete what dead runs staged and did not commit, and drop their ledgers."""
    settling = _Settling(
        table, by=f"sweep-{uuid.uuid4().hex}", clock=clock, takeover_after=takeover_after
    )
    return settling.settle_all()


def resume(
    run: Run,
    table: FormatTable,
    snapshot: Snapshot,
    *,
    wanted: Callable[[Mapping[str, Any]], bool],
    takeover_after: timedelta = DEFAULT_TAKEOVER_AFTER,
    first_group: int = 0,
) -> list[Adopted]:
    """Take over dead runs: adopt into `run` what still fits `snapshot`, sweep the rest.

    `wanted` says from a dead run's plan whether its work is of use. Adopted groups are numbered
    from `first_group`; their inputs need no work and must be left out of the new plan.
    """
    adopter = Adopter(run, table, snapshot, wanted=wanted, first_group=first_group)
    settling = _Settling(
        table, by=run.id, clock=run.clock, takeover_after=takeover_after, adopter=adopter
    )
    settling.settle_all()
    return adopter.adopted


class _Settling:
    """One pass over the dead runs of a table."""

    def __init__(
        self,
        table: FormatTable,
        *,
        by: str,
        clock: Clock | None,
        takeover_after: timedelta,
        adopter: Adopter | None = None,
    ) -> None:
        self._table = table
        self._by = by
        self._clock = clock or SystemClock()
        self._takeover_after = takeover_after
        self._adopter = adopter
        self._known_dead = current_control().known_dead
        self._states = read_states(table.store, clock=self._clock, but=by)
        #: Runs that were cleaned up in this pass, as far as that was possible.
        self._cleaned: set[str] = set()
        self._report = SweepReport()

    def settle_all(self) -> SweepReport:
        for _, state in sorted(self._states.items()):
            if self._is_dead(state):
                self._settle_or_keep(state)
        return self._report

    def _settle_or_keep(self, state: RunState) -> None:
        try:
            state.run.require_readable()
            self._settle(state)
        except (RunError, UnsafePathError) as error:
            # A ledger that cannot be read does not say what may be deleted: nothing, then.
            self._report.kept[state.run.id] = error.message
            log_unreadable(state.run, error)

    def _is_dead(self, state: RunState) -> bool:
        now, after = self._clock.now(), self._takeover_after
        if state.is_over:
            # Its tasks may still be at work, even if its process is known to be dead.
            return is_idle(state.run, now=now, takeover_after=after)
        is_known = state.run.id in self._known_dead
        return is_known or state.is_silent(now=now, takeover_after=after)

    def _settle(self, state: RunState) -> None:
        if state.run.id in self._cleaned:
            return
        holder = self._takers_of(state)[-1:] or [state]
        if state.is_over or holder[0].is_over or holder[0].run.id == self._by:
            self._clean(state)
        elif not self._is_dead(holder[0]):
            self._keep(state, f"it is being taken over by run {holder[0].run.id}")
        elif holder[0].end is None:
            self._take_and_clean(holder[0])
        else:
            self._clean(holder[0])

    def _takers_of(self, state: RunState) -> list[RunState]:
        """Return who took the run, who took that one, and so on.

        The list ends with the run that holds the rights, with one that is over, or, where runs
        took each other, with one of them: then no run can commit their outputs any more.
        """
        takers: list[RunState] = []
        seen = {state.run.id}
        while state.end is not None and state.end.by not in seen:
            seen.add(state.end.by)
            # Read again: a taker that started after this pass did is not among the states.
            state = read_state(replace(state.run, id=state.end.by))
            takers.append(state)
        return takers

    def _take_and_clean(self, state: RunState) -> None:
        if not self._take(state):
            self._keep(state, "it came back to life, or another run was faster")
            return
        reached(Step.RUN_TOOK_OVER)
        if self._adopter is not None:
            self._adopter.adopt(state)
            reached(Step.RUN_ADOPTED)
        self._clean(read_state(state.run))

    def _take(self, state: RunState) -> bool:
        """Claim the run's undecided outputs; False if another run was faster."""
        batch = len(state.fates)
        fate = Fate(kind="taken", batch=batch, by=self._by, at=self._clock.now())
        return put_fate(state.run.store, state.run.fate_key(batch), fate) == fate

    def _clean(self, state: RunState) -> None:
        """Delete what is left of a run, and before that of the runs that it had taken over.

        That order matters: as long as a run's ledger is there, it tells which outputs it adopted.
        """
        self._cleaned.add(state.run.id)
        for victim in self._victims_of(state):
            self._clean(victim)
        entries = state.run.entries()
        adopted = {path for taker in self._takers_of(state) for path in recorded_files(taker.run)}
        disown(state.run, adopted)
        leftovers = find_leftovers(state.run, keep=adopted | state.claimed_paths)
        if not self._delete(state, leftovers):
            return
        delete_unfinished(state.run)
        abort_uploads(state.run)
        if self._is_known_to_have_landed(state):
            state.run.drop(entries)
            self._report.dropped.append(state.run.id)
            self._report.kept.pop(state.run.id, None)

    def _victims_of(self, taker: RunState) -> list[RunState]:
        """Return the runs that `taker` had taken over and not finished with.

        Read again: `taker` may have been at it since this pass began. What it takes from now on it
        can no longer pass on, because its own results were adopted before.
        """
        states = read_states(self._table.store, clock=self._clock)
        return [
            state
            for state in states.values()
            if state.end and state.end.by == taker.run.id and state.run.id not in self._cleaned
        ]

    def _delete(self, state: RunState, leftovers: list[str]) -> bool:
        """Delete `leftovers`; False if the table refers to one, which no fate allows."""
        if not leftovers:
            return True
        # Not only files of rows: what hides rows, and what belongs to files otherwise, as well.
        live = set(self._table.protected(since=self._clock.now()).keys.to_pylist())
        if not live.isdisjoint(leftovers):
            self._keep(state, "the table refers to files that its ledger calls uncommitted")
            return False
        state.run.discard(leftovers)
        self._report.files_deleted.extend(leftovers)
        return True

    def _is_known_to_have_landed(self, state: RunState) -> bool:
        """Look up each commit that the run was about to make; keep the ledger if one is missing."""
        if state.is_over:
            return True
        missing = [fate for fate in state.run.unsettled() if not self._is_in_log(fate)]
        if not missing or self._is_forgotten(missing):
            return True
        paths = sum(len(fate.outputs) for fate in missing)
        self._keep(
            state,
            f"commit {missing[0].token} did not land yet; its {paths} files are left to vacuum",
        )
        return False

    def _is_in_log(self, fate: Fate) -> bool:
        try:
            return (
                self._table.find_commit(fate.token or "", after=fate.base_version or 0) is not None
            )
        except (VersionNotFoundError, CorruptLogError):
            # The log of that time is cleaned away, so the answer is unknown.
            return False

    def _is_forgotten(self, missing: Collection[Fate]) -> bool:
        newest = max(fate.at for fate in missing)
        return self._clock.now() - newest > FORGET_AFTER

    def _keep(self, state: RunState, reason: str) -> None:
        self._report.kept[state.run.id] = reason
        log_event(logger, logging.INFO, "run_kept", "Run %s is kept: %s", state.run.id, reason)
