"""A worker: claims jobs, runs each in its own process, and keeps its lease while it runs."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import random
import threading
import traceback
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import JobStoreError, JobTimedOutError, LakehandError, LeaseLostError
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import SystemClock
from lakehand.observe.steps import Step, reached
from lakehand.service.config_sections import CostsSection
from lakehand.service.job_process import JobProcess, ProcessEndedError
from lakehand.service.job_reports import (
    describe_end,
    failed_step,
    is_part,
    is_slice_done,
    is_too_large,
    left_new_files,
)
from lakehand.service.job_states import (
    LEASE_LOST,
    backoff_seconds,
    describe_losses,
    is_lost_to_writers,
    retry_rule,
)
from lakehand.service.spending import NOTHING_SPENT, NoBudgetLeftError, spent_by
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
    #: A job without progress for so long is asked to wind down; 0: it never is.
    job_timeout_seconds: float = 0.0
    #: And if that brings no progress for so long, its process is killed.
    wind_down_seconds: float = 300.0
    id: str = field(default_factory=_new_worker_id)


class _Progress:
    """How far a running job is, and since when it has not got any further."""

    def __init__(self, options: WorkerOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._changed_at = clock.monotonic()
        self._cancelled_at: float | None = None
        #: What the job told last.
        self.latest: dict[str, Any] | None = None
        #: Whether it was asked to wind down because there was none for too long.
        self.has_stalled = False

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take note of what the process told: a run that began, or progress."""
        told = answer.get("progress", self.latest)
        if "run" in answer or told != self.latest:
            self._changed_at = self._clock.monotonic()
        self.latest = told

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was told to cancel."""
        return self._cancelled_at is not None

    def cancelled(self) -> None:
        """Note that the job was told to cancel: it has a short time for it."""
        self._cancelled_at = self._clock.monotonic()

    def check(self, job: Job) -> Wish | None:
        """Return what to ask of the job; JobTimedOutError if asking has not helped."""
        now, patience = self._clock.monotonic(), self._options.wind_down_seconds
        if self._cancelled_at is not None and now - self._cancelled_at >= patience:
            raise timed_out(job, now - self._cancelled_at)
        limit, idle = self._options.job_timeout_seconds, now - self._changed_at
        if not limit or (idle < limit and not self.has_stalled):
            return None
        if idle >= limit + patience:
            raise timed_out(job, idle)
        if not self.has_stalled:
            self.has_stalled = True
            message = "job %d has made no progress for %.0f s, and is asked to wind down"
            log_event(_logger, logging.WARNING, "job_stalled", message, job.id, idle)
        return "wind_down"


def timed_out(job: Job, seconds: float) -> JobTimedOutError:
    """Return the error of a job that made no progress for so long."""
    return JobTimedOutError(
        f"job {job.id} ({job.verb}) made no progress for {seconds:.0f} s",
        job=job.id,
        seconds=seconds,
        hint="check the store and the machine; [service] job_timeout is the limit",
    )


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
                pools=options.pools,
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
                process = self._run_next(claim, process)
        finally:
            if process is not None:
                process.close()

    def _run_next(self, claim: Claim, process: JobProcess | None) -> JobProcess | None:
        """Run the next job, or wait for one; return the process for the job after it."""
        job: Job | None = None
        try:
            job = self._claim(claim)
            if job is None:
                self._draining.wait(_IDLE_SECONDS * (0.5 + self._chance.random()))
                return self._keep_or_close(process)
            reached(Step.JOB_CLAIMED)
            return self._run(job, process)
        except Exception as error:  # noqa: BLE001  a slot that has ended would take no job again
            self._log_unforeseen(error, job)
            self._draining.wait(_IDLE_SECONDS)
            return None

    def _log_unforeseen(self, error: Exception, job: Job | None) -> None:
        """Log what the worker has no answer to; the lease of the job runs out."""
        # Without values: an error of the store quotes a statement with its parameters.
        first = (str(error).splitlines() or [""])[0]
        message = "the worker met an error that it does not know: %s: %s"
        values = (type(error).__name__, first)
        stack = "".join(traceback.format_tb(error.__traceback__))
        fields = {"job": None if job is None else job.id, "stack": stack}
        log_event(_logger, logging.ERROR, "worker_failed", message, *values, **fields)

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
        spec = self._begin(job)
        if spec is None:
            return process
        message = "%s of %s started (job %d)"
        log_event(_logger, logging.INFO, "job_started", message, job.verb, spec.url, job.id)
        progress = _Progress(self.options, self._clock)
        try:
            process = self._process_for(spec, process)
            end = self._run_in(process, job, spec, progress)
        except (LeaseLostError, ProcessEndedError, JobTimedOutError) as error:
            self._give_up(job, error, progress)
            return None
        if end is None:
            self._give_back(job, _crashed("the worker was stopped"))
            return None
        if progress.has_stalled and is_part(end.get("report") or {}):
            limit = self.options.job_timeout_seconds
            self._give_back(job, timed_out(job, limit).to_json(), end)
        else:
            self._end(job, spec, end)
        # What failed may have left its process, or its Spark session, in a bad state.
        if process.jobs >= _JOBS_PER_PROCESS or "error" in end:
            process.close()
            return None
        return process

    def _run_in(
        self, process: JobProcess, job: Job, spec: JobSpec, progress: _Progress
    ) -> dict[str, Any] | None:
        """Return how a job ended by itself. A process that it did not end in is killed."""
        end = None
        try:
            process.begin(spec)
            end = self._watch(job, process, progress)
        finally:
            if end is None:
                process.kill()
        return end

    def _process_for(self, spec: JobSpec, process: JobProcess | None) -> JobProcess:
        """Return the process of the last job if it has the priority of this one, else a new one."""
        if process is not None and process.priority == (spec.nice, spec.ionice):
            return process
        if process is not None:
            process.close()
        return JobProcess(nice=spec.nice, ionice=spec.ionice)

    def _begin(self, job: Job) -> JobSpec | None:
        """Return what the process of a job is told; None if it cannot start now."""
        try:
            return self._spec_of(job)
        except NoBudgetLeftError as error:
            self._wait_for_budget(job, error.describe(), error.seconds)
        except LeaseLostError:
            pass  # The job is another worker's.
        except LakehandError as error:
            self._end(job, None, {"error": error.to_json(), "spent": NOTHING_SPENT})
        return None

    def _give_up(
        self,
        job: Job,
        error: LeaseLostError | ProcessEndedError | JobTimedOutError,
        progress: _Progress,
    ) -> None:
        """Record the end of an attempt that did not end by itself; its process is dead."""
        if isinstance(error, LeaseLostError):
            return  # The job is another worker's.
        crashed = _crashed(f"the process of the job {error}")
        reason = error.to_json() if isinstance(error, JobTimedOutError) else crashed
        if not progress.is_cancelled:
            self._give_back(job, reason)
            return
        end = AttemptEnd(outcome="cancelled", error=reason)
        with contextlib.suppress(LeaseLostError, JobStoreError):  # A scheduler frees it.
            self._jobs.finish(job.id, job.fence, end, state="cancelled")

    def _watch(self, job: Job, process: JobProcess, progress: _Progress) -> dict[str, Any] | None:
        """Keep the lease of a job until it ends; None if the worker is to stop before that."""
        interval = self.options.lease_seconds / 3
        told_at = self._clock.monotonic()
        beat_at = told_at + interval
        told: Wish | None = None
        while not self._stopping.is_set():
            answer = process.answer(timeout=min(0.2, interval))
            if answer is not None and ("report" in answer or "error" in answer):
                return answer
            progress.take(answer or {})
            if answer is not None and "run" in answer:
                self._note_run(job, answer["run"])
            if answer is not None and "progress" in answer:
                # A user who watches the job sees it soon.
                beat_at = min(beat_at, told_at + _PROGRESS_SECONDS)
            wish = "wind_down" if self._draining.is_set() else progress.check(job)
            if self._clock.monotonic() >= beat_at:
                wish = self._beat(job, progress.latest) or wish
                told_at = self._clock.monotonic()
                beat_at = told_at + interval
            if wish is not None and told not in (wish, "cancel"):
                process.wish(wish)
                told = wish
                if wish == "cancel":
                    progress.cancelled()
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
        costs = CostsSection() if spec is None else CostsSection(**spec.costs)
        spent = spent_by(costs, end.get("spent", {}))
        self._log_end(job, spec, end)
        digest = "" if spec is None else spec.policy_digest
        try:
            if "error" in end:
                self._end_with_error(job, end["error"], spent, policy=digest)
            elif (failed := failed_step(end["report"])) is not None:
                self._end_with_error(job, failed, spent, policy=digest, report=end["report"])
            else:
                self._end_with_report(job, spec, end["report"], spent)
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

    def _wait_for_budget(self, job: Job, budget: str, seconds: float) -> None:
        """Put a job back that a budget has too little left for."""
        end = AttemptEnd(outcome="no_budget", spent=NOTHING_SPENT)
        with contextlib.suppress(LakehandError):  # It is freed when its lease has run out.
            self._jobs.requeue(
                job.id,
                job.fence,
                end,
                waits_for="budget",
                delay=seconds,
                counts=False,
                details={"details": budget},
            )

    def _end_with_report(
        self,
        job: Job,
        spec: JobSpec | None,
        report: Mapping[str, Any],
        spent: Mapping[str, float],
    ) -> None:
        outcome = str(report.get("outcome", "committed"))
        is_slice = spec is not None and spec.is_slice
        has_done_slice = is_slice and is_slice_done(report) and not is_part(report)
        if is_part(report) or has_done_slice:
            end = AttemptEnd(outcome="stopped_early", report=report, spent=spent)
            # A table that is written to faster than in slices would keep its turn for ever.
            self._jobs.requeue(
                job.id,
                job.fence,
                end,
                waits_for="turn",
                counts=False,
                is_next_turn=has_done_slice,
            )
            return
        # Where its own limit was smaller, another budget would change nothing.
        if spec is not None and is_slice and spec.short_for is not None and is_too_large(report):
            end = AttemptEnd(outcome="no_budget", report=report, spent=spent)
            details = {
                "details": "too little is left today for its files",
                "granted_bytes": spec.granted_bytes,
            }
            self._jobs.requeue(
                job.id,
                job.fence,
                end,
                waits_for="budget",
                delay=spec.short_for,
                counts=False,
                details=details,
            )
            return
        end = AttemptEnd(outcome=outcome, report=report, spent=spent)
        self._jobs.finish(job.id, job.fence, end, state="succeeded")
        if job.verb == "health":
            numbers = {"health_score": report["score"], "file_count": report["file_count"]}
            self._tables.measured(job.table_id, report["version"], numbers)

    def _check_again(self, job: Job, spec: JobSpec | None, report: Mapping[str, Any]) -> None:
        """Queue the job once more for when the files that were too new for it are old enough.

        Without that, a table without further writes would keep its last small files.
        """
        is_over = spec is not None and not is_part(report) and not is_slice_done(report)
        if spec is None or not is_over or not left_new_files(report):
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
            self._retry(job, end, delay)
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

    def _retry(self, job: Job, end: AttemptEnd, delay: float) -> None:
        """Put a job back after a failure; one that lost to writers waits for longer each time."""
        if not is_lost_to_writers(end.error, end.report):
            self._jobs.requeue(job.id, job.fence, end, waits_for="retry", delay=delay)
            return
        losses = 1 + self._jobs.losses(job.table_id).count
        delay = backoff_seconds(losses, end.spent.get("core_seconds", 0.0))
        details = {"details": describe_losses(losses)}
        self._jobs.requeue(
            job.id, job.fence, end, waits_for="writers_busy", delay=delay, details=details
        )

    def _give_back(
        self, job: Job, error: Mapping[str, Any], done: Mapping[str, Any] | None = None
    ) -> None:
        """Put a job back that did not end by itself; after some attempts it has failed."""
        outcome = "timed_out" if error["code"] == JobTimedOutError.code else "crashed"
        report, spent = (done or {}).get("report"), (done or {}).get("spent", {})
        end = AttemptEnd(outcome=outcome, error=error, report=report, spent=spent)
        log_event(_logger, logging.WARNING, f"job_{outcome}", "%s", error["message"], job=job.id)
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


def _crashed(reason: str) -> dict[str, Any]:
    return {"code": "JOB_CRASHED", "message": reason, "retryable": True}
