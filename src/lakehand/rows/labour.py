"""Who runs the tasks of an operation on rows: one runner for all of its stages."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.engine import open_runner
from lakehand.engine.here import HERE
from lakehand.errors import error_from_json
from lakehand.observe import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakehand.engine import CancelToken, Runner
    from lakehand.observe import OnProgress
    from lakehand.rows.workshop import Call
    from lakehand.runs import Run

__all__ = ["Labour", "open_labour"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Labour:
    """Who runs tasks, and who is told how far they are."""

    runner: Runner
    cancel: CancelToken
    tell: OnProgress
    #: Whose names the tasks write under; None if they write nothing that lasts.
    ledger: Run | None
    #: Tasks on files of no more than this together need no runner.
    inline_bytes: int = 0

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
        outcomes = runner.run(task, payloads, run=self.ledger, on_result=count, cancel=self.cancel)
        for outcome in outcomes:
            if outcome.failure is not None:
                raise error_from_json(outcome.failure)
        return [outcome.result or {} for outcome in outcomes]


def _are_small(payloads: Sequence[Mapping[str, Any]], most_bytes: int) -> bool:
    """Say whether tasks read so little; of those that read no files nobody knows."""
    sizes = [int(file["bytes"]) for payload in payloads for file in payload.get("files", ())]
    return bool(sizes) and sum(sizes) <= most_bytes


@contextmanager
def open_labour(call: Call, *, ledger: Run | None, cancel: CancelToken) -> Iterator[Labour]:
    """Start a runner as `call` asks, and stop it at the end."""
    with open_runner(call.settings, spark=call.spark) as runner:
        yield Labour(
            runner=runner,
            cancel=cancel,
            tell=call.tell,
            ledger=ledger,
            inline_bytes=call.inline_bytes,
        )
