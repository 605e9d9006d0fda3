"""Tasks in processes of this machine: no Java, and a first result in a fraction of a second."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any, Self

from lakehand.engine.base import (
    TASK_ATTEMPTS,
    CancelToken,
    OnResult,
    Task,
    TaskOutcome,
    failed_for_good,
)
from lakehand.engine.cores import CoreShare, usable_cores
from lakehand.engine.worker import FUNCTION, PAYLOAD, STOP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from lakehand.runs import Run

_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0
_TERMINATE_SECONDS = 1.0


class LocalRunner:
    """Keeps up to `parallelism` worker processes and reuses them."""

    def __init__(self, *, parallelism: int | None = None) -> None:
        self._parallelism = parallelism or usable_cores()
        self._workers: list[_Worker] = []

    def run(
        self,
        function: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        run: Run | None = None,  # noqa: ARG002  outcomes are known here before the ledger is read
        on_result: OnResult | None = None,
        cancel: CancelToken | None = None,
    ) -> list[TaskOutcome]:
        """Run `function` on every payload, as `Runner.run` promises."""
        share = CoreShare(tasks=min(self._parallelism, len(payloads)))
        job = _Job(function, payloads, share=share, on_result=on_result)
        cancel = cancel or CancelToken()
        try:
            while not job.is_done:
                cancel.raise_if_cancelled()
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
            worker.begin(job, job.waiting.popleft())

    def _start_worker(self) -> _Worker:
        worker = _Worker()
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
            worker.tell_to_stop()
        for worker in self._workers:
            worker.wait_for_end()
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


class _Job:
    """One call of `run`: what waits, how often it was tried, and what came of it."""

    def __init__(
        self,
        function: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        share: CoreShare,
        on_result: OnResult | None,
    ) -> None:
        self.function = pickle.dumps(function)
        self.payloads = [
            f"{share.of_task(index)} {json.dumps(payload)}".encode()
            for index, payload in enumerate(payloads)
        ]
        self.waiting = deque(range(len(payloads)))
        self._attempts = [0] * len(payloads)
        self._outcomes: dict[int, TaskOutcome] = {}
        self._on_result = on_result

    @property
    def is_done(self) -> bool:
        return len(self._outcomes) == len(self.payloads)

    def take(self, index: int, answer: Mapping[str, Any]) -> None:
        """Note the answer of one attempt; an unforeseen error is tried again, before others."""
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
        return [self._outcomes[index] for index in range(len(self.payloads))]


class _Worker:
    """A process that runs one task at a time."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        #: Task that it works on; None while it is idle.
        self.task: int | None = None
        self._job: _Job | None = None
        self._process = _start_process(theirs)
        theirs.close()

    def begin(self, job: _Job, task: int) -> None:
        self.task = task
        try:
            if self._job is not job:
                self.connection.send_bytes(FUNCTION + job.function)
                self._job = job
            self.connection.send_bytes(PAYLOAD + job.payloads[task])
        except (BrokenPipeError, ConnectionResetError):
            # It died while it was idle. The open task is found unanswered when it is collected.
            return

    def end(self) -> tuple[int, dict[str, Any] | None]:
        """Return the task and its answer; None if the process died."""
        assert self.task is not None  # noqa: S101  only busy workers are waited for
        task, self.task = self.task, None
        try:
            return task, json.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            return task, None

    def describe_end(self) -> str:
        self.connection.close()
        code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def tell_to_stop(self) -> None:
        try:
            self.connection.send_bytes(STOP)
        except OSError:
            self._process.kill()

    def wait_for_end(self) -> None:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self.connection.close()

    def kill(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.connection.close()


def _start_process(theirs: Connection) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that finds the same modules as this one.

    Not `multiprocessing`: it would import the user's main module again in every worker.
    """
    descriptor = theirs.fileno()
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-c", f"from lakehand.engine import worker; worker.main({descriptor})"],
        pass_fds=(descriptor,),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # Ctrl-C is for the driver, which then stops its workers.
        start_new_session=True,
    )
