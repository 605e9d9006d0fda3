"""A worker: claims jobs, runs each in its own process, and keeps its lease while it runs."""

from __future__ import annotations

import logging
import os
import platform
import random
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import JobStoreError, LakehandError, LeaseLostError
from lakehand.observe.clock import SystemClock
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.service.job_process import JobProcess, ProcessEndedError
from lakehand.service.job_states import LEASE_LOST, retry_rule
from lakehand.service.store.records import AttemptEnd, Claim
from lakehand.service.store.worker_registry import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.observe.clock import Clock
    from lakehand.service.job_main import JobSpec
    from lakehand.service.job_states import Wish
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.records import Job
    from lakehand.service.store.table_registry import TableRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry

#: A process is replaced after so many jobs: what libraries keep in memory is given back then.
_JOBS_PER_PROCESS = 50
#: Between two looks for a job where there was none.
_IDLE_SECONDS = 1.0
_logger = get_logger(__name__)


def _new_worker_id() -> str:
    return f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """How a worker works."""

    slots: int = 4
    lease_seconds: float = 60.0
    engines: tuple[str, ...] = ("local",)
    memory_bytes: int = 2**62
    pools: tuple[str, ...] = ()
    id: str = field(default_factory=_new_worker_id)


class JobWorker:
    """Runs jobs of a queue, several at a time."""

    def __init__(
        self,
        jobs: JobQueue,
        tables: TableRegistry,
        workers: WorkerRegistry,
        *,
        spec_of: Callable[[Job], JobSpec],
        options: WorkerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`spec_of` says what the process of a job is told: settings, storage options."""
        self._jobs = jobs
        self._tables = tables
        self._workers = workers
        self._spec_of = spec_of
        self._clock = clock or SystemClock()
        self.options = options or WorkerOptions()
        self._chance = random.Random()  # noqa: S311  spreads retries, guards nothing
        #: Set: claim no further job; running ones are wound down.
        self._draining = threading.Event()
        #: Set: end now; jobs are given back.
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- the worker ---------------------------------------------------------------------------

    def start(self) -> None:
        """Register the worker and start its slots."""
        options = self.options
        self._workers.start(
            Worker(
                id=options.id,
                host=platform.node(),
                pid=os.getpid(),
                version=__version__,
                engines=options.engines,
                slots=options.slots,
                memory_bytes=options.memory_bytes,
            )
        )
        for number in range(options.slots):
            slot = threading.Thread(target=self._serve, args=(number,), name=f"slot-{number}")
            slot.start()
            self._threads.append(slot)

    def drain(self) -> None:
        """Claim no further job, and wind running ones down."""
        self._draining.set()

    def stop(self) -> None:
        """End now: running jobs are killed and given back."""
        self._draining.set()
        self._stopping.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all slots have ended; say whether they have."""
        for thread in self._threads:
            thread.join(timeout)
        is_over = not any(thread.is_alive() for thread in self._threads)
        if is_over:
            self._workers.stop(self.options.id)
        return is_over

    def _serve(self, number: int) -> None:
        process: JobProcess | None = None
        claim = Claim(
            worker_id=self.options.id,
            lease_seconds=self.options.lease_seconds,
            engines=self.options.engines,
            memory_bytes=self.options.memory_bytes,
            pools=self.options.pools,
            offset=number,
        )
        try:
            while not self._draining.is_set():
                job = self._claim(claim)
                if job is None:
                    self._draining.wait(_IDLE_SECONDS * (0.5 + self._chance.random()))
                    continue
                reached(Step.JOB_CLAIMED)
                process = self._run(job, process)
        finally:
            if process is not None:
                process.close()

    def _claim(self, claim: Claim) -> Job | None:
        try:
            return self._jobs.claim(claim)
        except JobStoreError as error:
            log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
            return None

    # -- one job --------------------------------------------------------------------------------

    def _run(self, job: Job, process: JobProcess | None) -> JobProcess | None:
        """Run a job; return its process if the next job may have it."""
        try:
            spec = self._spec_of(job)
        except LakehandError as error:
            if not isinstance(error, LeaseLostError):  # Else the job is another worker's.
                self._end(job, {"error": error.to_json()})
            return process
        try:
            process = process or JobProcess()
            process.begin(spec)
            end = self._watch(job, process)
        except (LeaseLostError, ProcessEndedError) as error:
            if process is not None:
                process.kill()
            if isinstance(error, ProcessEndedError):
                self._give_back(job, f"the process of the job {error}")
            return None
        if end is None:
            process.kill()
            self._give_back(job, "the worker was stopped")
            return None
        self._end(job, end)
        if process.jobs >= _JOBS_PER_PROCESS:
            process.close()
            return None
        return process

    def _watch(self, job: Job, process: JobProcess) -> dict[str, Any] | None:
        """Keep the lease of a job until it ends; None if the worker is to stop before that."""
        interval = self.options.lease_seconds / 3
        beat_at = self._clock.monotonic() + interval
        progress: dict[str, Any] | None = None
        told: Wish | None = None
        while not self._stopping.is_set():
            answer = process.answer(timeout=min(0.2, interval))
            if answer is not None and ("report" in answer or "error" in answer):
                return answer
            if answer is not None and "run" in answer:
                self._note_run(job, answer["run"])
            if answer is not None and "progress" in answer:
                progress = answer["progress"]
            wish: Wish | None = "wind_down" if self._draining.is_set() else None
            if self._clock.monotonic() >= beat_at:
                wish = self._beat(job, progress) or wish
                beat_at = self._clock.monotonic() + interval
            if wish is not None and told not in (wish, "cancel"):
                process.wish(wish)
                told = wish
        return None

    def _note_run(self, job: Job, run_id: str) -> None:
        try:
            self._jobs.note_run(job.id, job.fence, run_id)
            reached(Step.JOB_RUN_NOTED)
        except JobStoreError as error:
            # Whoever comes after this attempt then waits for the heartbeat of the run.
            log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)

    def _beat(self, job: Job, progress: dict[str, Any] | None) -> Wish | None:
        try:
            return self._jobs.beat(
                job.id, job.fence, lease_seconds=self.options.lease_seconds, progress=progress
            )
        except JobStoreError as error:
            # The job goes on: whether it still has its lease is known when the store is back.
            log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
            return None

    def _end(self, job: Job, end: Mapping[str, Any]) -> None:
        """Record how a job ended: done, to be continued, to be retried, or failed for good."""
        reached(Step.JOB_ENDING)
        spent = end.get("spent", {})
        try:
            if "report" in end:
                self._end_with_report(job, end["report"], spent)
            else:
                self._end_with_error(job, end["error"], spent)
            reached(Step.JOB_ENDED)
        except LakehandError as error:
            # What was committed is in the table; the job is freed when its lease has run out.
            log_event(_logger, logging.WARNING, "end_not_noted", "%s", error.message, job=job.id)

    def _end_with_report(
        self, job: Job, report: Mapping[str, Any], spent: Mapping[str, float]
    ) -> None:
        outcome = str(report.get("outcome", "committed"))
        if _is_part(report):
            end = AttemptEnd(outcome="stopped_early", report=report, spent=spent)
            self._jobs.requeue(job.id, job.fence, end, waits_for="turn", counts=False)
            return
        end = AttemptEnd(outcome=outcome, report=report, spent=spent)
        self._jobs.finish(job.id, job.fence, end, state="succeeded")

    def _end_with_error(
        self, job: Job, error: Mapping[str, Any], spent: Mapping[str, float]
    ) -> None:
        if error.get("code") == "CANCELLED":
            end = AttemptEnd(outcome="cancelled", error=error, spent=spent)
            self._jobs.finish(job.id, job.fence, end, state="cancelled")
            return
        end = AttemptEnd(outcome="failed", error=error, spent=spent)
        rule = retry_rule(error)
        delay = None if rule is None else rule.delay_after(job.attempt, self._chance)
        if delay is not None and job.attempt < job.max_attempts:
            self._jobs.requeue(job.id, job.fence, end, waits_for="retry", delay=delay)
            return
        if rule is None:
            # Before the job ends: nothing may queue the verb again in between.
            self._tables.hold(job.table_id, job.verb, error, job_id=job.id, lakehand=__version__)
        self._jobs.finish(job.id, job.fence, end, state="failed")

    def _give_back(self, job: Job, reason: str) -> None:
        """Put a job back whose process has ended before it; after some attempts it has failed."""
        error = {"code": "JOB_CRASHED", "message": reason, "retryable": True}
        end = AttemptEnd(outcome="crashed", error=error)
        is_own_doing = self._stopping.is_set()
        delay = LEASE_LOST.delay_after(job.attempt, self._chance)
        try:
            if is_own_doing:
                self._jobs.requeue(job.id, job.fence, end, waits_for="turn", counts=False)
            elif delay is not None and job.attempt < job.max_attempts:
                self._jobs.requeue(job.id, job.fence, end, waits_for="retry", delay=delay)
            else:
                self._jobs.finish(job.id, job.fence, end, state="failed")
        except LakehandError as failed:
            # Its lease runs out, and whoever frees it puts it back.
            log_event(_logger, logging.WARNING, "not_given_back", "%s", failed.message, job=job.id)


def _is_part(report: Mapping[str, Any]) -> bool:
    """Say whether an operation, or a step of it, was wound down."""
    steps = report.get("steps") or ()
    parts = [report, *(step.get("report") or {} for step in steps)]
    return any(part.get("stopped_early") for part in parts)
