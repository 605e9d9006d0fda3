"""The queue of jobs: requested, claimed under a lease, ended, or freed from a dead worker.

Each method is one transaction. A worker names the fence that its claim gave it: after its lease is
lost and the job claimed again, nothing that it says of the job is taken any more.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from sqlalchemy import literal, select, update
from sqlalchemy.exc import IntegrityError

from lakehand.errors import JobNotFoundError, JobStateError, LeaseLostError, ValidationError
from lakehand.service.job_states import ENDED, LANE_OF, LEASE_LOST, is_lost_to_writers
from lakehand.service.store.budgets import release_reserved
from lakehand.service.store.database import is_over
from lakehand.service.store.database_schema import ATTEMPTS, JOBS, TABLES
from lakehand.service.store.events import record_event
from lakehand.service.store.job_claims import find_claimable, take
from lakehand.service.store.job_metrics import RUN, attempt_increments, ended_job
from lakehand.service.store.job_statements import (
    QUEUED,
    RESCORING,
    RUNNING,
    UNLEASED,
    beating,
    ending_attempt,
    enqueueing,
    finishing,
    larger,
    own_head_start,
    promoting,
    smaller,
    values_of,
)
from lakehand.service.store.records import AttemptEnd, Freed, Job, JobRequest, Losses, Queued
from lakehand.service.store.service_metrics import count
from lakehand.service.store.summary_store import learn_from_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from lakehand.service.job_states import JobState, Outcome, WaitsFor, Wish
    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Claim

#: How many races for a slot or a table a claim may lose before it gives up until the next time.
_CLAIM_TRIES = 10
#: Attempts that are looked at for a back-off, which is longest long before.
_LOSSES_COUNTED = 10


class JobQueue:
    """The jobs of a store."""

    def __init__(self, database: Database, *, chance: random.Random | None = None) -> None:
        self._database = database
        self._chance = chance or random.Random()  # noqa: S311  spreads retries, guards nothing

    # -- ask for work ---------------------------------------------------------------------------

    def enqueue(self, request: JobRequest) -> Queued:
        """Queue a job; where one of the kind is queued already, it becomes more urgent instead."""
        try:
            with self._database.transaction() as connection:
                return self.enqueue_in(connection, request)
        except IntegrityError as error:
            message = f"there is no table {request.table_id}, or no pool {request.pool!r}"
            raise JobNotFoundError(message, hint="lakehand tables list") from error

    def enqueue_in(self, connection: Connection, request: JobRequest) -> Queued:
        """Queue a job in a transaction that has begun, as `enqueue` does."""
        if request.verb not in LANE_OF:
            message = f"a job cannot run {request.verb!r}; it can run {', '.join(LANE_OF)}"
            raise ValidationError(message, field="verb", value=request.verb)
        now = self._database.now()
        statement = enqueueing(now, self._database.is_sqlite)
        job_id, requests = connection.execute(statement, values_of(request)).one()
        is_new = requests == 1
        if is_new:
            record_event(
                connection,
                now,
                "job.queued",
                job=job_id,
                table=request.table_id,
                by=request.asked_by,
                verb=request.verb,
                trigger=request.trigger,
            )
        return Queued(job_id=job_id, is_new=is_new)

    # -- what workers do ------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Job | None:
        """Return the job whose turn it is, now running under a lease; None if there is none."""
        for _ in range(_CLAIM_TRIES):
            try:
                with self._database.transaction() as connection:
                    return self._claim(connection, claim)
            except IntegrityError:
                continue  # Another worker took the slot, or a job of the table, at the same time.
        return None

    def _claim(self, connection: Connection, claim: Claim) -> Job | None:
        now = self._database.now()
        found = find_claimable(connection, claim, now)
        if found is None:
            return None
        row = take(connection, *found, claim, now)
        if row is None:
            return None
        job = Job.of(row)
        record_event(
            connection,
            now,
            "job.started",
            job=job.id,
            table=job.table_id,
            by=claim.worker_id,
            attempt=job.attempt,
        )
        return job

    def beat(
        self, job_id: int, fence: int, *, lease_seconds: float, progress: Mapping[str, Any] | None
    ) -> Wish | None:
        """Extend a lease and return what the job is asked to do; LeaseLostError if it is lost."""
        values = {**_key(job_id, fence), "lease": lease_seconds, "so_far": progress}
        with self._database.transaction() as connection:
            row = connection.execute(beating(self._database.now()), values).one_or_none()
        if row is None:
            raise _lost(job_id, fence)
        wish: Wish | None = row.wish
        return wish

    def note_run(self, job_id: int, fence: int, run_id: str) -> None:
        """Record the ledger that an attempt has begun, for the worker that comes after it."""
        where = (ATTEMPTS.c.job_id == job_id, ATTEMPTS.c.fence == fence)
        with self._database.transaction() as connection:
            known = connection.execute(
                select(ATTEMPTS.c.run_ids).where(*where).with_for_update()
            ).scalar_one()
            connection.execute(update(ATTEMPTS).where(*where).values(run_ids=[*known, run_id]))

    def finish(self, job_id: int, fence: int, end: AttemptEnd, *, state: JobState) -> None:
        """End a job; LeaseLostError if it is no longer this worker's."""
        now = self._database.now()
        result = {"as": state, "how": end.outcome, "doc": end.report, "failure": end.error}
        with self._database.transaction() as connection:
            job = connection.execute(
                finishing(now), {**_key(job_id, fence), **result}
            ).one_or_none()
            self._end_attempt(connection, job_id, fence, end)
            if job is not None:
                count(connection, ended_job(job.verb, end.outcome, end.error))
                learn_from_job(connection, now, job_id, end, is_sqlite=self._database.is_sqlite)
                details = {} if end.error is None else {"code": end.error.get("code")}
                record_event(
                    connection,
                    now,
                    f"job.{state}",
                    job=job_id,
                    table=job.table_id,
                    outcome=end.outcome,
                    **details,
                )
        if job is None:
            raise _lost(job_id, fence)

    def rescore(self, scored: Sequence[Mapping[str, Any]]) -> None:
        """Raise the scores of queued jobs; the keys are the parameters of `RESCORING`."""
        if scored:
            with self._database.transaction() as connection:
                connection.execute(RESCORING, list(scored))

    def requeue(
        self,
        job_id: int,
        fence: int,
        end: AttemptEnd,
        *,
        waits_for: WaitsFor,
        delay: float = 0.0,
        counts: bool = True,
        is_next_turn: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> JobState:
        """Put a running job back, with its age; a job of the same kind in the queue replaces it.

        `counts` is False for an attempt that is not to be counted, as one that found no budget.
        With `is_next_turn` it begins to wait again, with the head start that it had.
        `details` says which budget that is.
        """
        now = self._database.now()
        with self._database.transaction() as connection:
            job = connection.execute(
                select(JOBS).where(*_held(job_id, fence)).with_for_update()
            ).one_or_none()
            self._end_attempt(connection, job_id, fence, end)
            state: JobState | None = None
            if job is not None and is_next_turn:
                job = self._take_next_turn(connection, job)
            if job is not None and self._give_age_to_twin(connection, job):
                state = self._end(connection, job, "cancelled", "superseded")
            elif job is not None:
                attempt = job.attempt if counts else job.attempt - 1
                state = self._put_back(
                    connection,
                    job,
                    waits_for,
                    delay,
                    attempt=attempt,
                    error=end.error,
                    details=details,
                )
            if job is not None:
                record_event(
                    connection,
                    now,
                    "job.requeued",
                    job=job_id,
                    table=job.table_id,
                    waits_for=waits_for,
                    outcome=end.outcome,
                    state=state,
                )
        if state is None:
            raise _lost(job_id, fence)
        return state

    # -- what the scheduler does ------------------------------------------------------------------

    def promote_overdue(self, seconds: float) -> int:
        """Let jobs that could have started for this long go before others; return how many.

        Those that could for twice as long go before these, and so on: no job is overtaken by one
        that could start so much later.
        """
        with self._database.transaction() as connection:
            statement = promoting(self._database.now())
            return connection.execute(statement, {"overdue": seconds}).rowcount

    def free_dead(self) -> list[Freed]:
        """Put back every job whose lease has run out, and give back what it had reserved."""
        now = self._database.now()
        overdue = (
            select(JOBS)
            .where(RUNNING, is_over(JOBS.c.leased_until, now))
            .order_by(JOBS.c.id)
            .with_for_update(skip_locked=True)
        )
        with self._database.transaction() as connection:
            # One by one: two dead jobs may be of one kind, and only one of them can be queued.
            return [self._free(connection, job) for job in connection.execute(overdue).all()]

    def _free(self, connection: Connection, job: Any) -> Freed:
        self._end_attempt(connection, job.id, job.fence, AttemptEnd(outcome="lease_lost"))
        state: JobState
        outcome: str | None
        if job.wish == "cancel":
            state, outcome = self._end(connection, job, "cancelled", "cancelled"), "cancelled"
        elif self._give_age_to_twin(connection, job):
            state, outcome = self._end(connection, job, "cancelled", "superseded"), "superseded"
        elif job.attempt >= job.max_attempts:
            state, outcome = self._end(connection, job, "failed", "lease_lost"), "lease_lost"
        else:
            delay = LEASE_LOST.delay_after(job.attempt, self._chance) or LEASE_LOST.longest_delay
            state, outcome = (
                self._put_back(connection, job, "retry", delay, attempt=job.attempt),
                None,
            )
        record_event(
            connection,
            self._database.now(),
            "job.lease_lost",
            job=job.id,
            table=job.table_id,
            by=job.worker_id,
            state=state,
        )
        return Freed(
            job_id=job.id, table_id=job.table_id, fence=job.fence, state=state, outcome=outcome
        )

    def cancel_queued(self, table_id: int, *, outcome: Outcome) -> int:
        """End the queued jobs of a table that were not requested by hand; return how many."""
        now = self._database.now()
        statement = (
            update(JOBS)
            .where(JOBS.c.table_id == table_id, QUEUED, JOBS.c.asked_by.is_(None))
            .values(state="cancelled", outcome=outcome, ended_at=now, waits_for=None)
            .returning(JOBS.c.id, JOBS.c.verb)
        )
        with self._database.transaction() as connection:
            ended = connection.execute(statement).all()
            for job_id, verb in ended:
                count(connection, ended_job(verb, outcome))
                record_event(
                    connection, now, "job.cancelled", job=job_id, table=table_id, outcome=outcome
                )
        return len(ended)

    def out_of_window(self, *, limit: int = 500) -> list[Job]:
        """Return queued jobs whose window has closed before they could start."""
        closed = select(JOBS).where(QUEUED, JOBS.c.runs_until <= self._database.now())
        with self._database.reading() as connection:
            return [Job.of(row) for row in connection.execute(closed.limit(limit))]

    def move_window(self, job: Job, *, opens_at: float, closes_at: float | None) -> None:
        """Let a queued job run in another window, and not before it may be retried."""
        is_too_new = job.trigger == "quiet_period" and job.waits_for is None
        is_delayed = is_too_new or job.waits_for in {"retry", "writers_busy", "budget"}
        later = larger(JOBS.c.not_before, literal(opens_at))
        statement = (
            update(JOBS)
            .where(JOBS.c.id == job.id, QUEUED)
            .values(
                not_before=later if is_delayed else opens_at,
                runs_until=closes_at,
                waits_for=job.waits_for if is_delayed else "window",
            )
        )
        with self._database.transaction() as connection:
            connection.execute(statement)

    def close_windows(self) -> None:
        """Have the windows of all automatic jobs looked up again: the policies have changed."""
        with self._database.transaction() as connection:
            connection.execute(
                update(JOBS)
                .where(QUEUED, JOBS.c.asked_by.is_(None))
                .values(runs_until=self._database.now())
            )

    # -- what people do -----------------------------------------------------------------------

    def cancel(self, job_id: int, *, by: str | None = None) -> JobState:
        """End a queued job at once; ask a running one to stop. What it has committed stays."""
        now = self._database.now()
        with self._database.transaction() as connection:
            job = self._locked(connection, job_id)
            state: JobState
            if job.state == "queued":
                state = self._end(connection, job, "cancelled", "cancelled")
            elif job.state == "running":
                self._wish(connection, job_id, "cancel")
                state = "running"
            else:
                raise _wrong_state(job, "cancelled")
            record_event(
                connection, now, "job.cancel_requested", job=job_id, table=job.table_id, by=by
            )
        return state

    def pause(self, job_id: int, *, by: str) -> JobState:
        """Keep a queued job from starting; a running one commits what is proved and waits."""
        with self._database.transaction() as connection:
            job = self._locked(connection, job_id)
            if job.state not in {"queued", "running"}:
                raise _wrong_state(job, "paused")
            if job.state == "running" and job.wish is None:
                self._wish(connection, job_id, "wind_down")
            connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(paused_by=by))
            record_event(
                connection,
                self._database.now(),
                "job.paused",
                job=job_id,
                table=job.table_id,
                by=by,
            )
            state: JobState = job.state
        return state

    def resume(self, job_id: int, *, by: str | None = None) -> None:
        """Let a paused job start again."""
        with self._database.transaction() as connection:
            job = self._locked(connection, job_id)
            if job.paused_by is None:
                raise _wrong_state(job, "resumed: it is not paused")
            connection.execute(
                update(JOBS).where(JOBS.c.id == job_id).values(paused_by=None, waits_for=None)
            )
            record_event(
                connection,
                self._database.now(),
                "job.resumed",
                job=job_id,
                table=job.table_id,
                by=by,
            )

    def retry(self, job_id: int, *, by: str | None = None) -> Queued:
        """Queue the work of an ended job again, or let a queued one start at once."""
        with self._database.transaction() as connection:
            job = self._locked(connection, job_id)
            if job.state == "running":
                raise _wrong_state(job, "retried")
            if job.state == "queued":
                now = self._database.now()
                connection.execute(
                    update(JOBS).where(JOBS.c.id == job_id).values(not_before=now, waits_for=None)
                )
                return Queued(job_id=job_id, is_new=False)
            return self.enqueue_in(connection, JobRequest.again(job, by))

    def get(self, job_id: int) -> Job:
        """Return a job; JobNotFoundError if there is none of this number."""
        with self._database.reading() as connection:
            row = connection.execute(_FOR_PEOPLE.where(JOBS.c.id == job_id)).one_or_none()
        if row is None:
            raise _not_found(job_id)
        return Job.of(row)

    def listed(
        self,
        *,
        states: Sequence[JobState] = (),
        table_id: int | None = None,
        verb: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, the newest first; `before` continues a listing below that number."""
        wanted = _FOR_PEOPLE.order_by(JOBS.c.id.desc()).limit(limit)
        if states:
            wanted = wanted.where(JOBS.c.state.in_(states))
        if table_id is not None:
            wanted = wanted.where(JOBS.c.table_id == table_id)
        if verb is not None:
            wanted = wanted.where(JOBS.c.verb == verb)
        if before is not None:
            wanted = wanted.where(JOBS.c.id < before)
        with self._database.reading() as connection:
            return [Job.of(row) for row in connection.execute(wanted)]

    def dead_runs(self, table_id: int) -> frozenset[str]:
        """Return the ledgers that ended attempts at a table have begun: none of them is alive."""
        ended = select(ATTEMPTS.c.run_ids).where(
            ATTEMPTS.c.table_id == table_id, ATTEMPTS.c.ended_at.is_not(None)
        )
        newest = ended.order_by(ATTEMPTS.c.started_at.desc()).limit(100)
        with self._database.reading() as connection:
            found = connection.execute(newest).scalars().all()
        return frozenset(run for runs in found for run in runs)

    def losses(self, table_id: int) -> Losses:
        """Return how often in a row the last rewrites of a table lost to its writers."""
        ended = (
            select(ATTEMPTS.c.ended_at, ATTEMPTS.c.report, ATTEMPTS.c.error, ATTEMPTS.c.spent)
            .join(JOBS, JOBS.c.id == ATTEMPTS.c.job_id)
            .where(
                ATTEMPTS.c.table_id == table_id,
                JOBS.c.lane == "rewrite",
                ATTEMPTS.c.outcome.in_(("committed", "failed", "stopped_early")),
            )
            .order_by(ATTEMPTS.c.started_at.desc())
            .limit(_LOSSES_COUNTED)
        )
        with self._database.reading() as connection:
            rows = connection.execute(ended).all()
        lost = list(
            itertools.takewhile(lambda row: is_lost_to_writers(row.error, row.report), rows)
        )
        if not lost:
            return Losses()
        last = max(lost, key=lambda row: row.ended_at)
        seconds = float((last.spent or {}).get("core_seconds") or 0.0)
        return Losses(count=len(lost), last_at=last.ended_at, core_seconds=seconds)

    # -- parts of the above -------------------------------------------------------------------

    def _locked(self, connection: Connection, job_id: int) -> Any:
        row = connection.execute(
            select(JOBS).where(JOBS.c.id == job_id).with_for_update()
        ).one_or_none()
        if row is None:
            raise _not_found(job_id)
        return row

    def _wish(self, connection: Connection, job_id: int, wish: Wish) -> None:
        connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(wish=wish))

    def _end(self, connection: Connection, job: Any, state: JobState, outcome: str) -> JobState:
        count(connection, ended_job(job.verb, outcome))
        connection.execute(
            update(JOBS)
            .where(JOBS.c.id == job.id)
            .values(
                state=state,
                outcome=outcome,
                ended_at=self._database.now(),
                waits_for=None,
                **UNLEASED,
            )
        )
        return state

    def _put_back(
        self,
        connection: Connection,
        job: Any,
        waits_for: WaitsFor,
        delay: float,
        *,
        attempt: int,
        error: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> JobState:
        connection.execute(
            update(JOBS)
            .where(JOBS.c.id == job.id)
            .values(
                state="queued",
                waits_for=waits_for,
                wait_details=details,
                not_before=self._database.now() + delay,
                attempt=attempt,
                error=error,
                **UNLEASED,
            )
        )
        return "queued"

    def _take_next_turn(self, connection: Connection, job: Any) -> Any:
        """Let a job wait from now on, as if it had just been queued; return its row."""
        now, head = self._database.now(), own_head_start(job.queued_at, job.rank_at)
        statement = (
            update(JOBS)
            .where(JOBS.c.id == job.id)
            .values(queued_at=now, rank_at=now - head)
            .returning(JOBS)
        )
        return connection.execute(statement).one()

    def _give_age_to_twin(self, connection: Connection, job: Any) -> bool:
        """Let a queued job of the same kind go on with the age of this one, if there is one."""
        statement = (
            update(JOBS)
            .where(
                JOBS.c.table_id == job.table_id,
                JOBS.c.verb == job.verb,
                JOBS.c.scope == job.scope,
                QUEUED,
            )
            .values(rank_at=smaller(JOBS.c.rank_at, literal(job.rank_at)))
        )
        return connection.execute(statement).rowcount > 0

    def _end_attempt(
        self, connection: Connection, job_id: int, fence: int, end: AttemptEnd
    ) -> None:
        result = {"how": end.outcome, "doc": end.report, "failure": end.error}
        values = {**_key(job_id, fence), **result, "used": dict(end.spent)}
        ended = connection.execute(ending_attempt(self._database.now()), values).one_or_none()
        if ended is None:
            return
        job = connection.execute(RUN, {"job": job_id}).one()
        count(connection, *attempt_increments(job, end, ended.started_at, ended.ended_at))
        if ended.reserved:
            release_reserved(connection, ended.reserved, end.spent)


#: Jobs with the names of their tables.
_FOR_PEOPLE = select(JOBS, TABLES.c.url.label("table_url"), TABLES.c.name.label("table_name")).join(
    TABLES
)


def _held(job_id: int, fence: int) -> tuple[Any, ...]:
    return JOBS.c.id == job_id, JOBS.c.fence == fence, RUNNING


def _key(job_id: int, fence: int) -> dict[str, Any]:
    return {"job": job_id, "with_fence": fence}


def _lost(job_id: int, fence: int) -> LeaseLostError:
    message = f"the lease of job {job_id} is lost: it ran out, and the job is another worker's"
    return LeaseLostError(message, job=job_id, fence=fence)


def _not_found(job_id: int) -> JobNotFoundError:
    return JobNotFoundError(f"there is no job {job_id}", hint="lakehand jobs list")


def _wrong_state(job: Any, wanted: str) -> JobStateError:
    message = f"job {job.id} is {job.state} and cannot be {wanted}"
    hint = f"lakehand jobs retry {job.id} queues its work again" if job.state in ENDED else None
    return JobStateError(message, job=job.id, state=job.state, hint=hint)
