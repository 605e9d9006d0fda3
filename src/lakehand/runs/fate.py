"""One object per commit batch says who may commit, adopt or delete its outputs; then the commit."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakehand.errors import (
    CommitConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplanError,
    StorageError,
    StoreUnreachableError,
)
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.runs.records import read_record, require_number, require_paths, unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Change, GroupResult, Receipt
    from lakehand.runs.ledger import Run
    from lakehand.storage import Store


FateKind = Literal["committing", "taken", "closed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What becomes of a batch, and who decided it."""

    kind: FateKind
    batch: int
    #: Run that wrote this fate.
    by: str
    #: When it was written.
    at: datetime
    #: Token of the commit; None unless `committing`.
    token: str | None = None
    #: Version above which the commit may have landed; None unless `committing`.
    base_version: int | None = None
    #: Paths that the commit refers to, if it landed.
    outputs: tuple[str, ...] = ()

    @property
    def ends_the_run(self) -> bool:
        return self.kind != "committing"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


def parse_fate(key: str, text: bytes) -> Fate:
    """Return the fate that is stored under `key`; RunError if it cannot be read.

    One that is about to be committed must name its token and outputs: without them nobody could
    tell which files belong to a version.
    """
    fate = read_record(Fate, key, text, required=("outputs",))
    if fate.kind == "committing" and not (fate.token and fate.base_version is not None):
        raise unreadable(key, "a commit without its token or its version")
    require_number(key, fate.batch)
    require_paths(key, fate.outputs)
    return fate


def read_fate(store: Store, key: str) -> Fate | None:
    """Return the fate under `key`, or None if nobody has decided yet."""
    try:
        return parse_fate(key, store.get(key))
    except ObjectNotFoundError:
        return None


def put_fate(store: Store, key: str, fate: Fate) -> Fate:
    """Put `fate` unless one is there, and return the one that counts."""
    try:
        store.put_if_absent(key, json.dumps(fate.to_json()).encode())
    except ObjectExistsError:
        return read_fate(store, key) or fate_vanished(fate)
    except StoreUnreachableError:
        # The put may have landed although its answer was lost; only the object itself can tell.
        winner = read_fate(store, key)
        if winner is None:
            raise
        return winner
    return fate


def fate_vanished(fate: Fate) -> Fate:
    """Return an end by somebody else: a fate disappears only when its run's ledger is dropped."""
    return Fate(kind="taken", batch=fate.batch, by="a run that has finished", at=fate.at)


logger = get_logger(__name__)


def commit_results(
    run: Run, table: FormatTable, change: Change, *, results: Sequence[GroupResult]
) -> Receipt:
    """Commit `change`, which is made of `results`, unless another run has taken over.

    Outputs are deleted only when it is proved that no version refers to them: those of groups that
    the commit left out, and all of them after a lost race. Any other error keeps every file.
    """
    fate = run.decide_fate(results, base_version=change.base_version)
    try:
        receipt = table.commit(change, token=fate.token or "")
    except (CommitConflictError, ReplanError):
        _clean_up(run, fate, fate.outputs, version=None)
        raise
    reached(Step.RUN_COMMITTED)
    _clean_up(run, fate, _outputs_of(results, receipt.dropped), version=receipt.version)
    return receipt


def _clean_up(run: Run, fate: Fate, lost: Collection[str], *, version: int | None) -> None:
    """Delete outputs that are proved lost and settle the batch.

    A store that fails here does not change what came of the commit; vacuum finds the files.
    """
    try:
        run.discard(lost)
        run.settle(fate, version=version)
        reached(Step.RUN_SETTLED)
    except StorageError as error:
        message = "Run %s could not clean up after its commit: %s"
        log_event(logger, logging.WARNING, "run_not_settled", message, run.id, error.message)


def _outputs_of(results: Sequence[GroupResult], groups: Collection[int]) -> list[str]:
    return [file.path for result in results if result.group in groups for file in result.outputs]
