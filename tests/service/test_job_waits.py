"""What jobs wait for, against a model that looks at every row, and against real claims."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, update

from lakehand.observe.clock import ManualClock
from lakehand.service.job_states import LANE_OF
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import JOBS, METADATA, SCHEMA, SERVICE, TABLES
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_waits import find_waits
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from support.job_stores import add_pool, add_tables, claim_by, request, rows_of

POOLS = {"default": 2, "spark": 1}
SILENT = 180.0
#: Seconds from now: before, now and after.
TIMES = st.sampled_from([None, -50.0, 50.0])
DONE = AttemptEnd(outcome="committed")


@dataclass(frozen=True)
class Situation:
    """A random state of a store, in seconds from now."""

    jobs: list
    pauses: list
    gone: list
    service: float | None
    workers: list


jobs = st.fixed_dictionaries(
    {
        "table": st.integers(0, 3),
        "verb": st.sampled_from(["compact", "cluster", "checkpoint", "verify"]),
        "pool": st.sampled_from(sorted(POOLS)),
        "engine": st.sampled_from(["local", "local", "spark"]),
        "memory_bytes": st.sampled_from([0, 10]),
        "head_start": st.sampled_from([0.0, 60.0, 3600.0]),
        "not_before": TIMES,
        "runs_until": TIMES,
        "is_paused": st.sampled_from([False, False, False, True]),
        "waits_for": st.sampled_from([None, "retry", "budget", "writers_busy", "window"]),
        "trigger": st.sampled_from(["commits", "quiet_period"]),
        "is_running": st.sampled_from([False, False, True]),
    }
)
workers = st.fixed_dictionaries(
    {
        "engines": st.sampled_from([["local"], ["local", "spark"], ["spark"]]),
        "memory": st.sampled_from([5, 100]),
        "pools": st.sampled_from([[], [], ["spark"]]),
        "is_silent": st.booleans(),
        "wish": st.sampled_from([None, None, "drain"]),
    }
)
situations = st.builds(
    Situation,
    jobs=st.lists(jobs, min_size=1, max_size=10),
    pauses=st.lists(TIMES, min_size=4, max_size=4),
    gone=st.lists(st.sampled_from([False, False, False, True]), min_size=4, max_size=4),
    service=st.sampled_from([None, None, -50.0, 50.0]),
    workers=st.lists(workers, max_size=2),
)


def build(database, clock, situation):
    """Put a situation into a store."""
    for name, max_running in POOLS.items():
        add_pool(database, name, max_running)
    tables = add_tables(database, 4)
    now = clock.now().timestamp()
    registry = WorkerRegistry(database)
    for number, worker in enumerate(situation.workers):
        clock.advance(-1000.0 if worker["is_silent"] else 0.0)
        registry.start(
            Worker(
                id=f"w{number}", host="h", pid=1, version="0", engines=worker["engines"],
                slots=1, memory_bytes=worker["memory"], pools=worker["pools"],
            )
        )  # fmt: skip
        clock.advance(1000.0 if worker["is_silent"] else 0.0)
        if worker["wish"]:
            registry.ask(f"w{number}", worker["wish"])
    queue = JobQueue(database)
    for job in situation.jobs:
        build_job(database, queue, tables, job, now)
        clock.advance(1.0)
    now = clock.now().timestamp()
    with database.transaction() as connection:
        for table, pause, is_gone in zip(tables, situation.pauses, situation.gone, strict=True):
            until = None if pause is None else now + pause
            values = {"paused_until": until, "paused_by": "someone"}
            values["gone_at"] = now if is_gone else None
            connection.execute(update(TABLES).where(TABLES.c.id == table).values(values))
        if situation.service is not None:
            until = now + situation.service
            row = {"id": 1, "paused_until": until, "paused_by": "ops"}
            connection.execute(insert(SERVICE).values(row))
    return queue


def build_job(database, queue, tables, job, now):
    options = {name: job[name] for name in ("pool", "engine", "memory_bytes", "head_start")}
    made = queue.enqueue(request(tables[job["table"]], job["verb"], **options))
    if not made.is_new:
        return
    if job["is_running"]:
        limits = {"engines": ("local", "spark"), "pools": [job["pool"]]}
        queue.claim(claim_by("w", lease_seconds=1e6, **limits))
        return
    later = {
        name: now + job[name] for name in ("not_before", "runs_until") if job[name] is not None
    }
    given = {"waits_for": job["waits_for"], "trigger": job["trigger"], **later}
    given["paused_by"] = "someone" if job["is_paused"] else None
    with database.transaction() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == made.job_id).values(given))


def expected_reasons(row, rows, situation, now):
    """Return every reason for which a job waits, in order, by looking at everything."""
    index = row.table_id - 1
    running = [one for one in rows.values() if one.state == "running"]
    conditions = [
        ("paused", row.paused_by is not None),
        ("table_gone", situation.gone[index]),
        ("paused", (situation.pauses[index] or 0) > 0),
        ("paused", (situation.service or 0) > 0),
        (reason_for_later(row), row.not_before > now),
        ("window", row.not_before <= now and (row.runs_until or now + 1) <= now),
        ("no_worker", not any(can_run(worker, row) for worker in situation.workers)),
        (
            "table_busy",
            any((one.table_id, LANE_OF[one.verb]) == (row.table_id, row.lane) for one in running),
        ),
    ]
    is_full = sum(one.pool == row.pool for one in running) >= POOLS[row.pool]
    reasons = [reason for reason, holds in conditions if holds]
    return reasons or ["pool_full" if is_full else "turn"]


def reason_for_later(row):
    if row.waits_for in {"retry", "budget", "writers_busy"}:
        return row.waits_for
    is_new = row.trigger == "quiet_period" and row.waits_for is None
    return "quiet_period" if is_new else "window"


def can_run(worker, row):
    is_alive = not worker["is_silent"] and worker["wish"] is None
    has_pool = not worker["pools"] or row.pool in worker["pools"]
    return (
        is_alive
        and has_pool
        and row.engine in worker["engines"]
        and row.memory_bytes <= worker["memory"]
    )


@settings(max_examples=40, deadline=None)
@given(situations)
def test_every_reason_is_the_one_that_a_look_at_all_rows_gives(situation):
    clock = ManualClock()
    database = open_database("sqlite://", clock=clock)
    try:
        check(database, clock, situation)
    finally:
        database.close()


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_holds_on_postgresql(emptied_postgresql, data):
    clock = ManualClock()
    database = open_database(emptied_postgresql, clock=clock)
    try:
        names = ", ".join(name for name in METADATA.tables if name != SCHEMA.name)
        with database.transaction() as connection:
            connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
        check(database, clock, data.draw(situations))
    finally:
        database.close()


def check(database, clock, situation):
    queue = build(database, clock, situation)
    now = clock.now().timestamp()
    waits = find_waits(database, queue.listed(limit=100), silent_seconds=SILENT)
    rows = rows_of(database)
    assert set(waits) == {row.id for row in rows.values() if row.state == "queued"}
    for number, found in waits.items():
        expected = expected_reasons(rows[number], rows, situation, now)
        assert [wait.reason for wait in found] == expected
    check_order(queue, rows, waits)


def check_order(queue, rows, waits):
    """Claim what may start: in the order that `ahead` says, and nothing else."""
    for pool, max_running in POOLS.items():
        running = sum(row.pool == pool and row.state == "running" for row in rows.values())
        if running >= max_running:
            continue
        claimed = []
        can_all = {"engines": ("local", "spark"), "pools": [pool]}
        while (job := queue.claim(claim_by("all", lease_seconds=1e6, **can_all))) is not None:
            claimed.append(job.id)
            queue.finish(job.id, job.fence, DONE, state="succeeded")
        started = {
            number: found[0]
            for number, found in waits.items()
            if rows[number].pool == pool and {one.reason for one in found} <= {"turn", "no_worker"}
        }
        assert set(claimed) == set(started)
        for number, wait in started.items():
            assert wait.ahead is None or wait.ahead == claimed.index(number)


def test_a_wait_says_until_when_who_and_what(database, clock):
    add_pool(database)
    first, second = add_tables(database, 2)
    queue = JobQueue(database)
    queue.enqueue(request(first))
    running = queue.claim(claim_by())
    other = queue.enqueue(request(first, "cluster")).job_id
    delayed = queue.enqueue(request(second)).job_id
    job = queue.claim(claim_by())
    end = AttemptEnd(outcome="no_budget")
    queue.requeue(
        job.id,
        job.fence,
        end,
        waits_for="budget",
        delay=600,
        counts=False,
        details={"details": "nightly"},
    )
    waits = find_waits(database, queue.listed(), silent_seconds=SILENT)
    busy = next(wait for wait in waits[other] if wait.reason == "table_busy")
    assert busy.job == running.id
    (budget, *_) = waits[delayed]
    assert (budget.reason, budget.details) == ("budget", "nightly")
    assert budget.until == pytest.approx(clock.now().timestamp() + 600)
    assert budget.to_json().keys() == {"reason", "until", "details"}
