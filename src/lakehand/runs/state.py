"""A run as others see it: alive or silent, and what was decided about its outputs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import LakehandError, RunError
from lakehand.observe import get_logger, log_event
from lakehand.runs.ledger import Run, list_runs
from lakehand.runs.ledger_records import Fate, started_at

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """What the ledger of a run said when it was read."""

    run: Run
    #: None: the run is over, and these are remains.
    last_sign: datetime | None
    fates: tuple[Fate, ...]

    @property
    def is_over(self) -> bool:
        return self.last_sign is None

    @property
    def end(self) -> Fate | None:
        """The fate after which the run commits nothing more; None while it may."""
        return self.fates[-1] if self.fates and self.fates[-1].ends_the_run else None

    @property
    def commits(self) -> tuple[Fate, ...]:
        return tuple(fate for fate in self.fates if fate.kind == "committing")

    @property
    def claimed_paths(self) -> set[str]:
        """Files that a version refers to if the run's commits landed."""
        return {path for fate in self.commits for path in fate.outputs}

    def is_silent(self, *, now: datetime, takeover_after: timedelta) -> bool:
        return self.last_sign is not None and now - self.last_sign > takeover_after


def read_state(run: Run) -> RunState:
    # The sign of life is read first: a run that goes on after it is seen as older than it is, and
    # then keeps its outputs by winning its fate.
    return RunState(run=run, last_sign=run.last_sign(), fates=tuple(run.fates()))


def read_states(store: Store, *, clock: Clock, but: str | None = None) -> dict[str, RunState]:
    """Read all runs of a table; one that cannot be read is left out, and must not be touched.

    `but` is the id of the run that asks.
    """
    states: dict[str, RunState] = {}
    for run_id in (run_id for run_id in list_runs(store) if run_id != but):
        try:
            states[run_id] = read_state(Run(store=store, id=run_id, clock=clock))
        except RunError as error:
            log_unreadable(Run(store=store, id=run_id), error)
    return states


def log_unreadable(run: Run, error: LakehandError) -> None:
    """Warn of a ledger that cannot be read."""
    message = "Run %s is left alone with its files: %s"
    log_event(logger, logging.WARNING, "run_unreadable", message, run.id, error.message, run=run.id)


def versions_under_way(store: Store, *, now: datetime, takeover_after: timedelta) -> dict[str, int]:
    """Return the versions that living runs read, by the ids of the runs."""
    runs = (Run(store=store, id=run_id) for run_id in list_runs(store))
    alive = (run for run in runs if not is_idle(run, now=now, takeover_after=takeover_after))
    identities = {run.id: run.identity() for run in alive}
    versions = {run_id: found.base_version for run_id, found in identities.items() if found}
    return {run_id: version for run_id, version in versions.items() if version is not None}


def is_idle(run: Run, *, now: datetime, takeover_after: timedelta) -> bool:
    """Say whether nothing was written to the ledger of `run` lately; for remains of runs."""
    newest = max((info.modified_at for info in run.store.list(run.key())), default=None)
    # A run that is just about to begin has a directory on local disk, and nothing in it yet.
    newest = newest or started_at(run.id)
    return newest is None or now - newest > takeover_after
