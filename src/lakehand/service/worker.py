"""A worker: claims jobs, runs each in its own process, and keeps its lease while it runs."""

from __future__ import annotations

import contextlib
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
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import SystemClock
from lakehand.observe.steps import Step, reached
from lakehand.service.job_process import JobProcess, ProcessEndedError
from lakehand.service.job_states import LEASE_LOST, retry_rule
from lakehand.service.store.records import AttemptEnd, Claim, JobRequest
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

#: A process is replaced after this many jobs, because libraries keep memory.
_JOBS_PER_PROCESS = 50
#: A process, and the Spark session in it, is kept for so long without a job.
_IDLE_PROCESS_SECONDS = 600.0
#: Progress of a job is told to the store no more often than this.
_PROGRESS_SECONDS = 2.0
#: Between two looks for a job where there was none.
_IDLE_SECONDS = 1.0
_logger = get_logger(__name__)


def _new_worker_id() -> str:
    return f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """How a worker works."""

    slots: int = 4
    #: Slots that run jobs of Spark pools; the process of each keeps its session.
    spark_sessions: int = 1
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
        #: Set: all slots have ended.
        self._ended = threading.Event()
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
        threading.Thread(target=self._tell_alive, name="worker-beat", daemon=True).start()

    def _tell_alive(self) -> None:
        """Tell the store that the worker is alive, and hear what it is asked to do."""
        while not self._ended.wait(self.options.lease_seconds / 3):
            try:
                wish = self._workers.beat(self.options.id)
            except LakehandError as error:
                log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
                continue
            if wish == "drain":
                self.drain()
            elif wish == "stop":
                self.stop()

    def drain(self) -> None:
        """Claim no further job, and wind running ones down."""
        self._draining.set()

    def stop(self) -> None:
        """End now: running jobs are killed and given back."""
        self._draining.set()
        self._stopping.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all slots have ended; say whether they have."""
        until = None if timeout is None else self._clock.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - self._clock.monotonic()))
        is_over = not any(thread.is_alive() for thread in self._threads)
        if is_over and not self._ended.is_set():
            self._ended.set()
            with contextlib.suppress(JobStoreError):  # It is then taken to be lost.
                self._workers.stop(self.options.id)
        return is_over

    @property
    def is_draining(self) -> bool:
        """Whether the worker takes no further job, because it was told or asked to end."""
        return self._draining.is_set()

    def _serve(self, number: int) -> None:
        process: JobProcess | None = None
        claim = Claim(
            worker_id=self.options.id,
            lease_seconds=self.options.lease_seconds,
            engines=self._engines_of(number),
            memory_bytes=self.options.memory_bytes,
            pools=self.options.pools,
            offset=number,
        )
        try:
            while not self._draining.is_set():
                job = self._claim(claim)
                if job is None:
                    self._draining.wait(_IDLE_SECONDS * (0.5 + self._chance.random()))
                    process = self._keep_or_close(process)
                    continue
                reached(Step.JOB_CLAIMED)
                process = self._run(job, process)
        finally:
            if process is not None:
                process.close()

    def _engines_of(self, number: int) -> tuple[str, ...]:
        engines = self.options.engines
        has_session = number < self.options.spark_sessions
        return engines if has_session else tuple(one for one in engines if one != "spark")

    def _keep_or_close(self, process: JobProcess | None) -> JobProcess | None:
        """End a process that has had no job for long, and give its memory back."""
        if process is None or process.idle_seconds < _IDLE_PROCESS_SECONDS:
            return process
        process.close()
        return None

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
                self._end(job, None, {"error": error.to_json()})
            return process
        message = "%s of %s started (job %d)"
        log_event(_logger, logging.INFO, "job_started", message, job.verb, spec.url, job.id)
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
        self._end(job, spec, end)
        # What failed may have left its process, or its Spark session, in a bad state.
        if process.jobs >= _JOBS_PER_PROCESS or "error" in end:
            process.close()
            return None
        return process

    def _watch(self, job: Job, process: JobProcess) -> dict[str, Any] | None:
        """Keep the lease of a job until it ends; None if the worker is to stop before that."""
        interval = self.options.lease_seconds / 3
        told_at = self._clock.monotonic()
        beat_at = told_at + interval
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
                # A user who watches the job sees it soon.
                beat_at = min(beat_at, told_at + _PROGRESS_SECONDS)
            wish: Wish | None = "wind_down" if self._draining.is_set() else None
            if self._clock.monotonic() >= beat_at:
                wish = self._beat(job, progress) or wish
                told_at = self._clock.monotonic()
                beat_at = told_at + interval
            if wish is not None and told not in (wish, "cancel"):
                process.wish(wish)
                told = wish
        return None

    def _note_run(self, job: Job, run_id: str) -> None:
        try:
            self._jobs.note_run(job.id, job.fence, run_id)
            reached(Step.JOB_RUN_NOTED)
        except JobStoreError as error:
            # The next attempt then waits until the heartbeat of the run is old.
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

    def _end(self, job: Job, spec: JobSpec | None, end: Mapping[str, Any]) -> None:
        """Record how a job ended: done, to be continued, to be retried, or failed for good."""
        reached(Step.JOB_ENDING)
        spent = end.get("spent", {})
        self._log_end(job, spec, end)
        digest = "" if spec is None else spec.policy_digest
        try:
            if "error" in end:
                self._end_with_error(job, end["error"], spent, policy=digest)
            elif (failed := _failed_step(end["report"])) is not None:
                self._end_with_error(job, failed, spent, policy=digest, report=end["report"])
            else:
                self._end_with_report(job, end["report"], spent)
                self._check_again(job, spec, end["report"])
            reached(Step.JOB_ENDED)
        except LakehandError as error:
            # What was committed is in the table; the job is freed when its lease has run out.
            log_event(_logger, logging.WARNING, "end_not_noted", "%s", error.message, job=job.id)

    def _log_end(self, job: Job, spec: JobSpec | None, end: Mapping[str, Any]) -> None:
        where = f"table {job.table_id}" if spec is None else spec.url
        if "error" in end:
            message = "%s of %s failed (job %d): %s"
            values = (job.verb, where, job.id, end["error"].get("message"))
            log_event(_logger, logging.WARNING, "job_failed", message, *values)
            return
        message = "%s of %s ended (job %d): %s"
        values = (job.verb, where, job.id, describe_end(end["report"]))
        log_event(_logger, logging.INFO, "job_ended", message, *values)

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

    def _check_again(self, job: Job, spec: JobSpec | None, report: Mapping[str, Any]) -> None:
        """Queue the job once more for when the files that were too new for it are old enough.

        Without that, a table without further writes would keep its last small files.
        """
        if spec is None or _is_part(report) or not _left_new_files(report):
            return
        self._jobs.enqueue(
            JobRequest(
                table_id=job.table_id,
                verb=job.verb,
                trigger="quiet_period",
                scope=job.scope,
                options=job.options,
                reasons=["files were written within quiet_period"],
                delay=spec.check_again_after,
                engine=job.engine,
                pool=job.pool,
            )
        )

    def _end_with_error(
        self,
        job: Job,
        error: Mapping[str, Any],
        spent: Mapping[str, float],
        *,
        policy: str,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        if error.get("code") == "CANCELLED":
            end = AttemptEnd(outcome="cancelled", error=error, spent=spent)
            self._jobs.finish(job.id, job.fence, end, state="cancelled")
            return
        end = AttemptEnd(outcome="failed", error=error, report=report, spent=spent)
        rule = retry_rule(error)
        delay = None if rule is None else rule.delay_after(job.attempt, self._chance)
        if delay is not None and job.attempt < job.max_attempts:
            self._jobs.requeue(job.id, job.fence, end, waits_for="retry", delay=delay)
            return
        if rule is None:
            # Before the job ends: nothing may queue the verb again in between.
            self._tables.hold(
                job.table_id,
                job.verb,
                error,
                job_id=job.id,
                lakehand=__version__,
                policy=policy,
            )
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
            # Its lease runs out, and a scheduler puts it back.
            log_event(_logger, logging.WARNING, "not_given_back", "%s", failed.message, job=job.id)


def describe_end(report: Mapping[str, Any]) -> str:
    """Say in a few words what a job did.

    >>> describe_end({"outcome": "committed", "files_before": 9, "files_after": 1})
    'committed, 9 files became 1'
    """
    parts = [str(report.get("outcome", "done"))]
    done = [step["step"] for step in report.get("steps") or () if step["outcome"] == "committed"]
    if done:
        parts = [" and ".join(done)]
    parts += [
        f"{part['files_before']:,} files became {part['files_after']:,}"
        for part in _reports(report)
        if part.get("files_before") and part.get("files_before") != part.get("files_after")
    ]
    if _is_part(report):
        parts.append("stopped early, the rest is queued")
    elif _left_new_files(report):
        parts.append("new files are left for later")
    return ", ".join(parts)


def _reports(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a report and those of its steps."""
    steps = report.get("steps") or ()
    return [report, *(step.get("report") or {} for step in steps)]


def _failed_step(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return why a step of `maintain` has failed, if one has; the others were taken."""
    failed = [step for step in report.get("steps") or () if step["outcome"] == "failed"]
    errors = [error for step in failed for error in (step["error"], *report["errors"]) if error]
    return next(iter(errors), None)


def _is_part(report: Mapping[str, Any]) -> bool:
    """Say whether an operation was wound down, and something of it is left."""
    return bool(report.get("stopped_early"))


def _left_new_files(report: Mapping[str, Any]) -> bool:
    """Say whether files were left because they had been written lately."""
    parts = _reports(report)
    return any((part.get("files_left") or {}).get("recently_written") for part in parts)
