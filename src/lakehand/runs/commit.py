"""From results to a version: fate first, then the commit, then what a proven loss allows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakehand.errors import CommitConflictError, ReplanError, StorageError
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Change, GroupResult, Receipt
    from lakehand.runs.fate import Fate
    from lakehand.runs.ledger import Run

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
