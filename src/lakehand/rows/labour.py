"""Who runs the tasks of an operation on rows: one runner for all of its stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.engine.here import HERE
from lakehand.errors import error_from_json
from lakehand.observe import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.engine import CancelToken, Runner
    from lakehand.model.reports import EngineName
    from lakehand.observe import OnProgress
    from lakehand.runs import Run

__all__ = ["Labour"]


@dataclass(kw_only=True, slots=True)
class Labour:
    """Who runs tasks, and who is told how far they are."""

    runner: Runner
    cancel: CancelToken
    tell: OnProgress
    #: Whose names the tasks write under; None if they write nothing that lasts.
    ledger: Run | None
    #: Tasks on files of no more than this together need no runner.
    inline_bytes: int = 0
    #: Where tasks ran; None if there were none so far.
    ran_on: EngineName | None = None

    def run(
        self, phase: str, task: Callable[..., Any], payloads: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Run `task` on all payloads; the first failure is raised."""
        done = 0

        def count(_outcome: object) -> None:
            nonlocal done
            done += 1
            self.tell(Progress(phase=phase, done=done, total=len(payloads), unit="tasks"))

        if not payloads:
            return []
        runner: Runner = HERE if _are_small(payloads, self.inline_bytes) else self.runner
        if self.ran_on != "spark":
            self.ran_on = runner.engine
        outcomes = runner.run(task, payloads, run=self.ledger, on_result=count, cancel=self.cancel)
        for outcome in outcomes:
            if outcome.failure is not None:
                raise error_from_json(outcome.failure)
        return [outcome.result or {} for outcome in outcomes]


def _are_small(payloads: Sequence[Mapping[str, Any]], most_bytes: int) -> bool:
    """Say whether tasks read so little; of those that read no files nobody knows."""
    sizes = [int(file["bytes"]) for payload in payloads for file in payload.get("files", ())]
    return bool(sizes) and sum(sizes) <= most_bytes
