"""Which files living runs are about to replace, so that no two runs rewrite the same ones.

A run publishes its inputs before it can be seen (`inputs.json` is put before `run.json`), and looks
at the others after that. Of two that begin at once, each of which may see the other, the one whose
`run.json` is older keeps its files. If neither sees the other, both go on, and the commit of the
second leaves out what the first has replaced.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectNotFoundError, RunError
from lakehand.runs.ledger import Run, list_runs
from lakehand.runs.records import Identity, Inputs, read_record
from lakehand.runs.state import log_unreadable, read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from lakehand.observe.clock import Clock
    from lakehand.runs.state import RunState
    from lakehand.storage import Store

__all__ = ["LivingRun", "earlier_than", "living_runs"]


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


def living_runs(store: Store, *, clock: Clock, takeover_after: timedelta) -> list[LivingRun]:
    """Return the runs that are at work on a table; those that cannot be read are left out."""
    runs = (Run(store=store, id=run_id, clock=clock) for run_id in list_runs(store))
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
            inputs=_inputs(run),
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


def _inputs(run: Run) -> frozenset[str]:
    key = run.key(Inputs.NAME)
    try:
        return frozenset(read_record(Inputs, key, run.store.get(key)).paths)
    except ObjectNotFoundError:
        return frozenset()


def _has_died_here(identity: Identity) -> bool:
    """Say whether a run of this machine was killed: nobody has to wait for its heartbeat then."""
    if identity.pid is None or identity.host != platform.node():
        return False
    try:
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # what is no number of a process says nothing
    return False
