"""From results to a version: fate first, then the commit, then what a proven loss allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import CommitConflictError, ReplanError
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import Change, GroupResult, Receipt
    from lakehand.runs.ledger import Run


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
        run.discard(fate.outputs)
        raise
    reached(Step.RUN_COMMITTED)
    run.discard(_outputs_of(results, receipt.dropped))
    return receipt


def _outputs_of(results: Sequence[GroupResult], groups: Collection[int]) -> list[str]:
    return [file.path for result in results if result.group in groups for file in result.outputs]
