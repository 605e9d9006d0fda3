"""The queue against a model: random requests, claims, deaths and wishes, on both stores."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select, text

from lakehand.errors import JobStateError, LeaseLostError
from lakehand.observe.clock import ManualClock
from lakehand.service.job_states import LANE_OF, TRANSITIONS
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import ATTEMPTS, METADATA, SCHEMA
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_waits import find_waits
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.service_state import ServiceState
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from support.job_stores import add_pool, add_tables, claim_by, request, rows_of

LEASE, SLOTS, TABLES, ALLOWED, DAY = 60, 2, 3, 100.0, "2026-01-01"
VERBS = ("compact", "cluster", "checkpoint", "verify")


@dataclass
class Expected:
    """What the model says of a job."""

    table: int
    verb: str
    rank_at: float
    not_before: float
    state: str = "queued"
    fence: int = 0
    attempt: int = 0
    leased_until: float = 0.0
    wish: str | None = None
    is_paused: bool = False
    #: Fences of attempts that are over.
    old: list[int] = field(default_factory=list)
    reserved: float = 0.0

    @property
    def kind(self):
        return self.table, self.verb

    @property
    def lane(self):
        return self.table, LANE_OF[self.verb]


class QueueMachine(RuleBasedStateMachine):
    """The model knows every job; whatever the store says must be the same."""

    url = ""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.directory = tempfile.TemporaryDirectory()
        url = self.url or f"sqlite:///{self.directory.name}/jobs.db"
        self.database = open_database(url, clock=self.clock)
        if self.url:
            names = ", ".join(name for name in METADATA.tables if name != SCHEMA.name)
            with self.database.transaction() as connection:
                connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
        add_pool(self.database, max_running=SLOTS)
        self.tables = add_tables(self.database, TABLES)
        self.queue, self.budgets = JobQueue(self.database), BudgetStore(self.database)
        self.budgets.allow("service", "bytes", DAY, ALLOWED)
        self.jobs: dict[int, Expected] = {}
        self.spent = 0.0
        self.service = ServiceState(self.database)
        WorkerRegistry(self.database).start(
            Worker(id="w", host="h", pid=1, version="0", engines=["local"], slots=1, memory_bytes=1)
        )

    def teardown(self):
        self.database.close()
        self.directory.cleanup()

    @property
    def now(self):
        return self.clock.now().timestamp()

    def of_state(self, *states):
        return {number: job for number, job in self.jobs.items() if job.state in states}

    def some(self, data, *states):
        return data.draw(st.sampled_from(sorted(self.of_state(*states))))

    def twin_of(self, job):
        return next((j for j in self.of_state("queued").values() if j.kind == job.kind), None)

    def end(self, job, state):
        assert state in TRANSITIONS[job.state]
        if job.state == "running":
            job.old.append(job.fence)
        # Nobody has told what was spent.
        self.spent += job.reserved
        job.state, job.wish, job.reserved = state, None, 0.0

    def put_back(self, number, *, counts=True):
        """Expect a running job in the queue, or its twin with its age."""
        job = self.jobs[number]
        twin = self.twin_of(job)
        if twin is not None:
            twin.rank_at = min(twin.rank_at, job.rank_at)
            self.end(job, "cancelled")
            return
        self.end(job, "queued")
        job.attempt -= 0 if counts else 1
        job.not_before = rows_of(self.database)[number].not_before

    @rule(
        table=st.integers(0, TABLES - 1),
        verb=st.sampled_from(VERBS),
        head_start=st.sampled_from([0, 3600]),
        delay=st.sampled_from([0, 0, 120]),
    )
    def enqueue(self, table, verb, head_start, delay):
        made = self.queue.enqueue(
            request(self.tables[table], verb, head_start=head_start, delay=delay)
        )
        new = Expected(table, verb, self.now - head_start, self.now + delay)
        queued = self.twin_of(new)
        assert made.is_new == (queued is None)
        if queued is None:
            self.jobs[made.job_id] = new
        else:
            queued.rank_at = min(queued.rank_at, new.rank_at)
            queued.not_before = min(queued.not_before, new.not_before)

    @rule(offset=st.integers(0, 3))
    def claim(self, offset):
        running = self.of_state("running").values()
        busy = {job.lane for job in running}
        free = [
            (job.rank_at, number)
            for number, job in self.of_state("queued").items()
            if job.not_before <= self.now and not job.is_paused and job.lane not in busy
        ]
        wanted = min(free)[1] if free and len(running) < SLOTS else None
        assert ("turn" in self.waits().values()) == (wanted is not None)
        job = self.queue.claim(claim_by(lease_seconds=LEASE, offset=offset))
        assert (job and job.id) == wanted
        if job is not None:
            expected = self.jobs[job.id]
            expected.state, expected.leased_until = "running", self.now + LEASE
            expected.fence, expected.attempt = expected.fence + 1, expected.attempt + 1

    @precondition(lambda self: self.of_state("running"))
    @rule(data=st.data())
    def beat(self, data):
        number = self.some(data, "running")
        job = self.jobs[number]
        wish = self.queue.beat(number, job.fence, lease_seconds=LEASE, progress={"n": 1})
        job.leased_until = self.now + LEASE
        assert wish == job.wish

    @precondition(lambda self: self.of_state("running"))
    @rule(data=st.data(), wanted=st.integers(1, 80))
    def reserve(self, data, wanted):
        number = self.some(data, "running")
        job = self.jobs[number]
        left = ALLOWED - self.spent - sum(j.reserved for j in self.jobs.values())
        share = self.budgets.reserve(
            number,
            job.fence,
            scopes=["service"],
            day=DAY,
            wanted={"bytes": wanted},
            least_share=0.5,
        )
        if left <= 0 or left < min(wanted / 2, ALLOWED / 8):
            assert share.left == pytest.approx(max(left, 0.0))
            return
        assert share == pytest.approx(min(1.0, left / wanted))
        job.reserved += wanted * share

    @precondition(lambda self: self.of_state("running"))
    @rule(data=st.data(), state=st.sampled_from(["succeeded", "failed", "cancelled"]))
    def finish(self, data, state):
        number = self.some(data, "running")
        job = self.jobs[number]
        spent = {"bytes": job.reserved / 2}
        end = AttemptEnd(outcome="committed", spent=spent)
        self.queue.finish(number, job.fence, end, state=state)
        self.spent, job.reserved = self.spent + job.reserved / 2, 0.0
        self.end(job, state)

    @precondition(lambda self: self.of_state("running"))
    @rule(data=st.data(), counts=st.booleans(), delay=st.sampled_from([0, 300]))
    def requeue(self, data, counts, delay):
        number = self.some(data, "running")
        end = AttemptEnd(outcome="stopped_early")
        self.queue.requeue(
            number, self.jobs[number].fence, end, waits_for="retry", delay=delay, counts=counts
        )
        self.put_back(number, counts=counts)

    @precondition(lambda self: any(job.old for job in self.jobs.values()))
    @rule(data=st.data(), what=st.sampled_from(["beat", "finish", "requeue"]))
    def speak_after_losing_the_lease(self, data, what):
        number = data.draw(st.sampled_from([n for n, job in self.jobs.items() if job.old]))
        fence = data.draw(st.sampled_from(self.jobs[number].old))
        end = AttemptEnd(outcome="committed", spent={"bytes": 7.0})
        say = {
            "beat": lambda: self.queue.beat(number, fence, lease_seconds=LEASE, progress=None),
            "finish": lambda: self.queue.finish(number, fence, end, state="succeeded"),
            "requeue": lambda: self.queue.requeue(number, fence, end, waits_for="retry"),
        }
        with pytest.raises(LeaseLostError):
            say[what]()

    @rule()
    def free_dead(self):
        dead = [n for n, job in self.of_state("running").items() if job.leased_until < self.now]
        freed = self.queue.free_dead()
        assert [one.job_id for one in freed] == dead
        for number in dead:
            job = self.jobs[number]
            if job.wish == "cancel":
                self.end(job, "cancelled")
            elif self.twin_of(job) is None and job.attempt >= 5:
                self.end(job, "failed")
            else:
                self.put_back(number)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        number = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[number]
        if job.state == "queued":
            assert self.queue.cancel(number) == "cancelled"
            self.end(job, "cancelled")
        elif job.state == "running":
            assert self.queue.cancel(number) == "running"
            job.wish = "cancel"
        else:
            with pytest.raises(JobStateError):
                self.queue.cancel(number)

    @precondition(lambda self: self.of_state("queued", "running"))
    @rule(data=st.data())
    def pause_or_resume(self, data):
        number = self.some(data, "queued", "running")
        job = self.jobs[number]
        if job.is_paused:
            self.queue.resume(number)
        else:
            self.queue.pause(number, by="someone")
            if job.state == "running":
                job.wish = job.wish or "wind_down"
        job.is_paused = not job.is_paused

    @precondition(lambda self: self.of_state("succeeded", "failed", "cancelled"))
    @rule(data=st.data())
    def retry(self, data):
        number = self.some(data, "succeeded", "failed", "cancelled")
        job = self.jobs[number]
        made = self.queue.retry(number)
        twin = self.twin_of(job)
        assert made.is_new == (twin is None)
        if twin is None:
            self.jobs[made.job_id] = Expected(job.table, job.verb, self.now, self.now)
        else:
            twin.rank_at, twin.not_before = (
                min(twin.rank_at, self.now),
                min(twin.not_before, self.now),
            )

    @rule(is_timed=st.booleans())
    def pause_the_service(self, is_timed):
        """Nothing is claimed until the pause ends, by its time or by hand."""
        self.service.pause(by="someone", until=self.now + 45 if is_timed else None)
        assert self.queue.claim(claim_by(lease_seconds=LEASE)) is None
        assert set(self.waits().values()) <= {"paused"}
        if is_timed:
            self.clock.advance(45)
        assert self.service.resume(by="someone") != is_timed

    def waits(self):
        jobs = self.queue.listed(limit=1000)
        waits = find_waits(self.database, jobs, silent_seconds=1e9)
        assert set(waits) == set(self.of_state("queued"))
        return {number: found[0].reason for number, found in waits.items()}

    @rule(seconds=st.sampled_from([1, 30, 61, 400, 7200]))
    def advance(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def the_store_is_what_the_model_says(self):
        stored = {
            number: (row.state, row.fence, row.attempt, row.rank_at, row.wish)
            for number, row in rows_of(self.database).items()
        }
        assert stored == {
            number: (job.state, job.fence, job.attempt, job.rank_at, job.wish)
            for number, job in self.jobs.items()
        }

    @invariant()
    def budgets_hold_what_living_attempts_reserved(self):
        (budget,) = self.budgets.of_day(DAY)
        assert budget.reserved == pytest.approx(sum(job.reserved for job in self.jobs.values()))
        assert budget.spent == pytest.approx(self.spent)
        assert budget.reserved + budget.spent <= ALLOWED + 1e-6

    @invariant()
    def an_attempt_is_open_exactly_while_its_job_runs(self):
        with self.database.transaction() as connection:
            is_open = select(ATTEMPTS.c.job_id).where(ATTEMPTS.c.ended_at.is_(None))
            found = sorted(connection.execute(is_open).scalars())
        assert found == sorted(self.of_state("running"))


class SqliteMachine(QueueMachine):
    pass


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_postgresql(emptied_postgresql):
    class PostgresqlMachine(QueueMachine):
        url = emptied_postgresql

    case = PostgresqlMachine.TestCase
    case.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
    case().runTest()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_model_for_long(emptied_postgresql):
    for address, examples in (("", 2000), (emptied_postgresql, 500)):
        machine = type("LongMachine", (QueueMachine,), {"url": address})
        case = machine.TestCase
        case.settings = settings(max_examples=examples, stateful_step_count=80, deadline=None)
        case().runTest()
