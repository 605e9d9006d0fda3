"""Tasks in the process that asks for them: for work that is done before another one has started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from lakehand.engine.runner_contract import (
    TASK_ATTEMPTS,
    CancelToken,
    TaskOutcome,
    attempt,
    describe,
    failed_for_good,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.engine.runner_contract import Ledger, OnResult, Task
    from lakehand.model.reports import EngineName


class InlineRunner:
    """Runs one task after the other, each on all cores."""

    engine: EngineName = "local"

    def run(
        self,
        function: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        run: Ledger | None = None,  # noqa: ARG002  outcomes are known here before the ledger is read
        on_result: OnResult | None = None,
        cancel: CancelToken | None = None,
        may_wind_down: bool = False,
    ) -> list[TaskOutcome]:
        """Run `function` on every payload, as `Runner.run` promises."""
        outcomes = []
        for index, payload in enumerate(payloads):
            if cancel is not None:
                cancel.raise_if_cancelled()
                if may_wind_down and cancel.is_winding_down:
                    break
            outcome = _outcome(function, json.dumps(payload), index)
            outcomes.append(outcome)
            if on_result is not None:
                on_result(outcome)
        return outcomes

    def close(self) -> None:
        """Do nothing: nothing was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _outcome(function: Task, payload: str, index: int) -> TaskOutcome:
    reason = ""
    for attempts in range(1, TASK_ATTEMPTS + 1):
        try:
            answer = attempt(function, json.loads(payload), cores=usable_cores())
        except Exception as error:  # noqa: BLE001  any unexpected error is retried
            reason = describe(error)
        else:
            return TaskOutcome(index=index, attempts=attempts, **answer)
    return failed_for_good(index, reason, attempts=TASK_ATTEMPTS)


#: It has no state.
HERE = InlineRunner()
