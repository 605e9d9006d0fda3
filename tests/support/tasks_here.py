"""Tasks of any verb in the calling process: what they return and how they fail is as elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.engine import TaskOutcome
from lakehand.engine.runner_contract import attempt
from lakehand.runs import operation
from support.compactions import InlineRunner

if TYPE_CHECKING:
    import pytest


class TasksHere(InlineRunner):
    """Runs one task after the other; a typed error is an outcome."""

    def run(self, function, payloads, *, on_result=None, **_: Any) -> list[TaskOutcome]:
        outcomes = []
        for index, payload in enumerate(payloads):
            answer = attempt(function, json.loads(json.dumps(payload)))
            outcomes.append(TaskOutcome(index=index, **answer))
            if on_result is not None:
                on_result(outcomes[-1])
        return outcomes


def run_tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all verbs run their tasks in this process."""
    monkeypatch.setattr(operation, "open_runner", lambda _settings, **_: TasksHere())
