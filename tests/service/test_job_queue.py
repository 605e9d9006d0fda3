"""The queue of jobs, on both kinds of store."""

from __future__ import annotations

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from lakehand.errors import JobNotFoundError, JobStateError, LeaseLostError, ValidationError
from lakehand.service.job_states import URGENT_RANK
from lakehand.service.scores import MOST_HEAD_START
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database_schema import JOBS
from lakehand.service.store.events import EventLog
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from support.job_stores import add_pool, add_tables, claim_by, request, rows_of

DONE = AttemptEnd(outcome="committed")


@pytest.fixture
def queue(database):
    add_pool(database)
    return JobQueue(database)


@pytest.fixture
def tables(database):
    return add_tables(database, 3)


def test_a_request_is_queued_once_and_becomes_more_urgent(queue, tables, clock):
    first = queue.enqueue(request(tables[0], urgency=2, score=1.0))
    clock.advance(10)
    again = queue.enqueue(request(tables[0], urgency=1, score=0.5, head_start=3600))
    job = queue.get(first.job_id)
    assert (first.is_new, again.is_new, again.job_id) == (True, False, first.job_id)
    assert (job.requests, job.urgency, job.score) == (2, 1, 1.0)
    assert job.rank_at == pytest.approx(job.queued_at + 10 - 3600)


def test_jobs_are_claimed_by_rank_and_one_per_table_and_lane(queue, tables):
    late = queue.enqueue(request(tables[0])).job_id
    other_verb = queue.enqueue(request(tables[0], "cluster")).job_id
    log = queue.enqueue(request(tables[0], "checkpoint")).job_id
    early = queue.enqueue(request(tables[1], head_start=60)).job_id
    claimed = [queue.claim(claim_by()) for _ in range(4)]
    assert [job and job.id for job in claimed] == [early, late, log, None]
    queue.finish(late, 1, DONE, state="succeeded")
    assert queue.claim(claim_by()).id == other_verb


def test_a_pool_runs_no_more_than_its_slots(database, queue, tables):
    add_pool(database, "spark", max_running=1)
    for table in tables:
        queue.enqueue(request(table, pool="spark"))
    assert queue.claim(claim_by()) is not None
    assert queue.claim(claim_by()) is None


def test_a_worker_gets_only_what_it_can_run(queue, tables):
    queue.enqueue(request(tables[0], engine="spark"))
    queue.enqueue(request(tables[1], memory_bytes=2**40))
    assert queue.claim(claim_by(memory_bytes=2**30)) is None
    assert queue.claim(claim_by(engines=("local", "spark"), memory_bytes=2**30)) is not None


def test_a_lost_lease_ends_what_a_worker_may_say(queue, tables, clock):
    queue.enqueue(request(tables[0]))
    job = queue.claim(claim_by("first", lease_seconds=60))
    clock.advance(61)
    (freed,) = queue.free_dead()
    clock.advance(3600)
    again = queue.claim(claim_by("second"))
    assert (freed.state, again.id, again.fence) == ("queued", job.id, 2)
    with pytest.raises(LeaseLostError):
        queue.beat(job.id, job.fence, lease_seconds=60, progress=None)
    with pytest.raises(LeaseLostError):
        queue.finish(job.id, job.fence, DONE, state="succeeded")
    with pytest.raises(LeaseLostError):
        queue.requeue(job.id, job.fence, DONE, waits_for="retry")
    assert queue.get(job.id).worker_id == "second"


def test_a_beat_extends_the_lease_and_tells_the_wish(queue, tables, clock):
    queue.enqueue(request(tables[0]))
    job = queue.claim(claim_by(lease_seconds=60))
    clock.advance(50)
    assert queue.beat(job.id, 1, lease_seconds=60, progress={"done": 1}) is None
    queue.cancel(job.id, by="someone")
    clock.advance(50)
    assert queue.beat(job.id, 1, lease_seconds=60, progress={"done": 2}) == "cancel"
    assert queue.free_dead() == []


def test_two_dead_jobs_of_one_kind_are_freed(database, queue, tables, clock):
    # The second was queued while the first ran, and the first was put back by nobody.
    first = queue.enqueue(request(tables[0])).job_id
    queue.claim(claim_by())
    second = queue.enqueue(request(tables[0])).job_id
    clock.advance(3600)
    assert [(f.job_id, f.state, f.outcome) for f in queue.free_dead()] == [
        (first, "cancelled", "superseded")
    ]
    assert queue.get(second).rank_at <= queue.get(first).rank_at
    assert queue.claim(claim_by()).id == second


def test_a_job_whose_workers_keep_dying_fails(queue, tables, clock):
    job_id = queue.enqueue(request(tables[0], max_attempts=2)).job_id
    for _ in range(2):
        clock.advance(4 * 3600)
        assert queue.claim(claim_by()).id == job_id
        clock.advance(61)
        queue.free_dead()
    job = queue.get(job_id)
    assert (job.state, job.outcome, job.attempt) == ("failed", "lease_lost", 2)


def test_work_that_is_left_keeps_its_age(queue, tables, clock):
    job_id = queue.enqueue(request(tables[0])).job_id
    queued_at = queue.get(job_id).queued_at
    queue.claim(claim_by())
    clock.advance(500)
    end = AttemptEnd(outcome="stopped_early")
    assert queue.requeue(job_id, 1, end, waits_for="turn", counts=False) == "queued"
    job = queue.get(job_id)
    assert (job.queued_at, job.rank_at, job.attempt) == (queued_at, queued_at, 0)


def test_a_paused_job_waits_until_it_is_resumed(queue, tables):
    job_id = queue.enqueue(request(tables[0])).job_id
    queue.pause(job_id, by="someone")
    assert queue.claim(claim_by()) is None
    queue.resume(job_id)
    assert queue.claim(claim_by()).id == job_id
    assert queue.pause(job_id, by="someone") == "running"
    assert queue.beat(job_id, 1, lease_seconds=60, progress=None) == "wind_down"


def test_an_ended_job_can_be_retried_and_not_cancelled(queue, tables):
    job_id = queue.enqueue(request(tables[0], options={"where": "a > 1"})).job_id
    queue.claim(claim_by())
    queue.finish(job_id, 1, AttemptEnd(outcome="failed", error={"code": "X"}), state="failed")
    with pytest.raises(JobStateError, match="is failed and cannot be cancelled"):
        queue.cancel(job_id)
    again = queue.retry(job_id, by="someone")
    assert again.is_new
    assert queue.get(again.job_id).options == {"where": "a > 1"}


def test_unknown_jobs_and_verbs_are_typed_errors(queue, tables):
    with pytest.raises(JobNotFoundError, match="no job 99"):
        queue.get(99)
    with pytest.raises(ValidationError, match="cannot run 'drop'"):
        queue.enqueue(request(tables[0], "drop"))


def test_queued_jobs_of_a_table_that_is_gone_end_with_that_reason(queue, tables):
    kept = queue.enqueue(request(tables[1])).job_id
    gone = queue.enqueue(request(tables[0])).job_id
    assert queue.cancel_queued(tables[0], outcome="table_gone") == 1
    assert (queue.get(gone).outcome, queue.get(kept).state) == ("table_gone", "queued")


def test_what_a_dead_attempt_reserved_counts_as_spent(database, queue, tables, clock):
    budgets = BudgetStore(database)
    budgets.allow("service", "bytes", "2026-01-01", 100)
    for table in tables:
        queue.enqueue(request(table))
    jobs = [queue.claim(claim_by()) for _ in tables]
    taken = [_reserve(budgets, job) for job in jobs]
    assert taken[0] == 1
    assert taken[1] == pytest.approx(30 / 70)
    assert (taken[2].scope, taken[2].left) == ("service", 0)
    clock.advance(61)
    queue.free_dead()
    (budget,) = budgets.of_day("2026-01-01")
    assert (budget.reserved, budget.spent) == (0, pytest.approx(100)), "nobody knows better"


def test_an_attempt_that_has_ended_reserves_nothing(database, queue, tables, clock):
    budgets = BudgetStore(database)
    budgets.allow("service", "bytes", "2026-01-01", 100)
    queue.enqueue(request(tables[0]))
    job = queue.claim(claim_by())
    clock.advance(61)
    queue.free_dead()
    with pytest.raises(LeaseLostError):
        _reserve(budgets, job)
    assert budgets.of_day("2026-01-01")[0].reserved == 0


def _reserve(budgets, job):
    return budgets.reserve(
        job.id,
        job.fence,
        scopes=["service", "policy"],
        day="2026-01-01",
        wanted={"bytes": 70},
        least_share=0.1,
    )


def test_what_an_attempt_spent_is_counted(database, queue, tables):
    budgets = BudgetStore(database)
    budgets.allow("service", "bytes", "2026-01-01", 100)
    queue.enqueue(request(tables[0]))
    job = queue.claim(claim_by())
    _reserve(budgets, job)
    end = AttemptEnd(outcome="committed", spent={"bytes": 55.0})
    queue.finish(job.id, job.fence, end, state="succeeded")
    (budget,) = budgets.of_day("2026-01-01")
    assert (budget.reserved, budget.spent, budget.left) == (0, 55, 45)


def test_runs_of_ended_attempts_are_known_to_be_dead(queue, tables, clock):
    queue.enqueue(request(tables[0]))
    job = queue.claim(claim_by())
    queue.note_run(job.id, job.fence, "run-1")
    assert queue.dead_runs(tables[0]) == frozenset()
    clock.advance(61)
    queue.free_dead()
    assert queue.dead_runs(tables[0]) == {"run-1"}


@pytest.mark.parametrize(
    "values",
    [
        {"state": "running"},
        {"state": "running", "leased_until": 1.0, "slot": 0},
        {"state": "succeeded"},
        {"state": "sleeping"},
        {"lane": "fast"},
        {"urgency": 9},
    ],
    ids=str,
)
def test_the_database_itself_refuses_states_that_must_not_be(database, queue, tables, values):
    good = {
        "table_id": tables[0],
        "lane": "rewrite",
        "verb": "compact",
        "trigger": "test",
        "pool": "default",
        "queued_at": 0.0,
        "rank_at": 0.0,
        "not_before": 0.0,
    }
    with pytest.raises(IntegrityError), database.transaction() as connection:
        connection.execute(insert(JOBS).values(**{**good, **values}))
    assert rows_of(database) == {}


def test_every_change_is_an_event(database, queue, tables):
    job_id = queue.enqueue(request(tables[0])).job_id
    queue.claim(claim_by())
    queue.finish(job_id, 1, DONE, state="succeeded")
    kinds = [event["kind"] for event in EventLog(database).of_job(job_id)]
    assert kinds == ["job.queued", "job.started", "job.succeeded"]


def test_a_slice_takes_its_next_turn_behind_those_that_waited_and_keeps_its_head_start(
    queue, tables, clock
):
    first = queue.enqueue(request(tables[0], head_start=100.0)).job_id
    clock.advance(10)
    job = queue.claim(claim_by())
    second = queue.enqueue(request(tables[1], head_start=100.0)).job_id
    clock.advance(20)
    queue.requeue(job.id, job.fence, DONE, waits_for="turn", counts=False, is_next_turn=True)
    now = clock.now().timestamp()
    rest = queue.get(first)
    assert (rest.queued_at, rest.rank_at) == (pytest.approx(now), pytest.approx(now - 100))
    assert [queue.claim(claim_by()).id for _ in range(2)] == [second, first]


HOUR, OVERDUE = 3600.0, 10 * 3600.0


def test_a_job_that_waited_too_long_goes_before_those_with_a_higher_score(queue, tables, clock):
    old = queue.enqueue(request(tables[0])).job_id
    clock.advance(9 * HOUR)
    new = queue.enqueue(request(tables[1], head_start=MOST_HEAD_START)).job_id
    assert (queue.promote_overdue(OVERDUE), ids_in_turn(queue)) == (0, [new, old])
    clock.advance(HOUR)
    assert (queue.promote_overdue(OVERDUE), ids_in_turn(queue)) == (1, [old, new])
    assert queue.promote_overdue(OVERDUE) == 0, "once in that time"
    # Both are overdue: the one that is so for twice as long goes first, whatever the scores.
    clock.advance(11 * HOUR)
    assert (queue.promote_overdue(OVERDUE), ids_in_turn(queue)) == (2, [old, new])
    urgent = queue.enqueue(request(tables[2], head_start=URGENT_RANK)).job_id
    assert ids_in_turn(queue)[0] == urgent


def test_the_time_in_which_a_job_could_not_start_makes_it_not_overdue(queue, tables, clock):
    queue.enqueue(request(tables[0], delay=20 * HOUR))
    clock.advance(29 * HOUR)
    assert queue.promote_overdue(OVERDUE) == 0
    clock.advance(1.1 * HOUR)
    assert queue.promote_overdue(OVERDUE) == 1


def test_the_rest_of_an_overdue_job_is_not_overdue(queue, tables, clock):
    queue.enqueue(request(tables[0], head_start=HOUR))
    for _ in range(2):
        clock.advance(OVERDUE + HOUR)
        queue.promote_overdue(OVERDUE)
    job = queue.claim(claim_by())
    queue.requeue(job.id, job.fence, DONE, waits_for="turn", counts=False, is_next_turn=True)
    rest = queue.get(job.id)
    assert rest.queued_at - rest.rank_at == pytest.approx(HOUR)


def ids_in_turn(queue):
    return [job.id for job in sorted(queue.listed(states=["queued"]), key=lambda job: job.rank_at)]
