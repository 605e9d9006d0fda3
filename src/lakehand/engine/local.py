"""Tasks in processes of this machine: no Java, and a first result in a fraction of a second."""

from __future__ import annotations

import json
import pickle
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Self

from lakehand.engine.local_worker import LocalWorker, leave_worker, take_worker
from lakehand.engine.runner_contract import (
    TASK_ATTEMPTS,
    CancelToken,
    CoreShare,
    OnResult,
    Task,
    TaskOutcome,
    failed_for_good,
    usable_cores,
)
from lakehand.storage.pacing import Pace, current_pace, paced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from lakehand.engine.runner_contract import Ledger
    from lakehand.model.reports import EngineName

_POLL_SECONDS = 0.1


class LocalRunner:
    """Keeps up to `parallelism` worker processes and reuses them."""

    engine: EngineName = "local"

    def __init__(self, *, parallelism: int | None = None) -> None:
        self._parallelism = parallelism or usable_cores()
        self._workers: list[LocalWorker] = []

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
        share = CoreShare(tasks=len(payloads), slots=self._parallelism)
        job = _Job(function, payloads, share=share, on_result=on_result)
        cancel = cancel or CancelToken()
        try:
            while not job.is_done:
                cancel.raise_if_cancelled()
                if may_wind_down and cancel.is_winding_down:
                    job.leave_waiting()
                self._assign(job)
                self._collect(job)
        except BaseException:
            self._kill_workers()
            raise
        return job.outcomes()

    def _assign(self, job: _Job) -> None:
        idle = [worker for worker in self._workers if worker.task is None]
        while job.waiting and (idle or len(self._workers) < self._parallelism):
            worker = idle.pop() if idle else self._start_worker()
            task = job.waiting.popleft()
            worker.begin(task, job.function, job.payloads[task])

    def _start_worker(self) -> LocalWorker:
        worker = take_worker()
        self._workers.append(worker)
        return worker

    def _collect(self, job: _Job) -> None:
        busy = [worker for worker in self._workers if worker.task is not None]
        ready = wait([worker.connection for worker in busy], timeout=_POLL_SECONDS)
        for worker in (worker for worker in busy if worker.connection in ready):
            task, answer = worker.end()
            if answer is None:
                self._workers.remove(worker)
                answer = {"error": f"its process {worker.describe_end()}"}
            job.take(task, answer)

    def close(self) -> None:
        for worker in self._workers:
            leave_worker(worker)
        self._workers.clear()

    def _kill_workers(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class PacedTask:
    """A task whose process shares the byte rate of the process that started it."""

    function: Task
    pace: Pace

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        with paced(self.pace):
            return self.function(payload)


class _Job:
    """One call of `run`: waiting tasks, their attempts and their outcomes."""

    def __init__(
        self,
        function: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        share: CoreShare,
        on_result: OnResult | None,
    ) -> None:
        pace = current_pace()
        self.function = pickle.dumps(function if pace is None else PacedTask(function, pace))
        self.payloads = [
            f"{share.of_task(index)} {json.dumps(payload)}".encode()
            for index, payload in enumerate(payloads)
        ]
        self.waiting = deque(range(len(payloads)))
        self._attempts = [0] * len(payloads)
        self._outcomes: dict[int, TaskOutcome] = {}
        self._left: set[int] = set()
        self._on_result = on_result

    @property
    def is_done(self) -> bool:
        return len(self._outcomes) + len(self._left) == len(self.payloads)

    def leave_waiting(self) -> None:
        """Leave out every task that has not begun, or would begin again."""
        self._left.update(self.waiting)
        self.waiting.clear()

    def take(self, index: int, answer: Mapping[str, Any]) -> None:
        """Record the answer of one attempt; an unexpected error is retried before other tasks."""
        self._attempts[index] += 1
        attempts = self._attempts[index]
        if "error" in answer and attempts < TASK_ATTEMPTS:
            self.waiting.appendleft(index)
            return
        if "error" in answer:
            outcome = failed_for_good(index, answer["error"], attempts=attempts)
        else:
            outcome = TaskOutcome(index=index, attempts=attempts, **answer)
        self._outcomes[index] = outcome
        if self._on_result is not None:
            self._on_result(outcome)

    def outcomes(self) -> list[TaskOutcome]:
        return [self._outcomes[index] for index in sorted(self._outcomes)]
