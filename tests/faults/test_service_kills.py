"""Workers, job processes and schedulers are killed or stopped at every step of a job.

Another process finishes the work each time, and other writers append meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import select

import lakehand
from lakehand.observe.steps import Step
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import ATTEMPTS, EVENTS
from lakehand.service.store.table_registry import FoundTable
from support.crash import kill_at
from support.job_stores import add_pool, claim_by, request
from support.service_processes import BUDGET, DAY, Parts, Plan, job_processes, started
from support.table_writers import is_by_lakehand, versions

WORKER_STEPS = (
    Step.JOB_CLAIMED,
    Step.BUDGET_RESERVED,
    Step.JOB_RUN_NOTED,
    Step.JOB_ENDING,
    Step.JOB_ENDED,
)
JOB_STEPS = (Step.JOB_WINDING_DOWN, Step.JOB_RETURNED, Step.JOB_REPORTED)
SCHEDULER_STEPS = (
    Step.JOBS_FREED,
    Step.TABLES_FOUND,
    Step.JOB_ENQUEUED,
    Step.TABLE_LOOKED_AT,
)
#: In a default run each step is reached in one of them, in the long version in all.
CASES = ["sqlite-kill", "sqlite-stop", "postgresql-kill", "postgresql-stop"]
#: Within this time after the end of its lease a job of a dead worker runs elsewhere.
RESTART_SECONDS = 15
SCHEMA = pa.schema({"part": pa.int64(), "id": pa.int64()})


class Lake:
    """Tables, a model of the rows that were acknowledged, and a service on them."""

    def __init__(self, plan):
        self.plan = plan
        self.database = open_database(plan.store)
        self.parts = Parts(self.database, plan)
        add_pool(self.database)
        self.parts.budgets.allow(BUDGET, "bytes", DAY, 1_000_000)
        self.acknowledged = {}

    def create(self, name, *, parts=2, files=3):
        place = Path(self.plan.lake, name)
        lakehand.create_table(place, SCHEMA, partition_by=["part"], engine="local")
        self.acknowledged[name] = []
        for _ in range(files):
            self.append(name, parts)
        return f"file://{place}"

    def append(self, name, parts=2):
        known = self.acknowledged[name]
        rows = [(part, len(known) + part) for part in range(parts)]
        data = pa.Table.from_pylist(
            [dict(zip(("part", "id"), r, strict=True)) for r in rows], SCHEMA
        )
        write_deltalake(str(Path(self.plan.lake, name)), data, mode="append")
        known.extend(rows)

    @contextmanager
    def being_written(self):
        """Let delta-rs append to every table while the block runs."""
        is_over = threading.Event()

        def write():
            while not is_over.wait(0.3):
                for name in self.acknowledged:
                    self.append(name)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def enqueue(self, url, verb="compact"):
        table, _ = self.parts.tables.add(FoundTable(url=url, format="delta"))
        return self.parts.jobs.enqueue(request(table.id, verb)).job_id

    @contextmanager
    def another_worker(self, **changes):
        plan = replace(self.plan, worker="second", lease_seconds=20, **changes)
        worker = Parts(self.database, plan).worker()
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()
            assert worker.join(60)

    def wait_for_end(self, *job_ids):
        """Free the jobs of dead workers, as a scheduler does, until all jobs have ended."""
        until(lambda: self.parts.jobs.free_dead() is None or all(map(self.has_ended, job_ids)))

    def has_ended(self, job_id):
        return self.parts.jobs.get(job_id).ended_at is not None

    def rows_of(self, query):
        with self.database.transaction() as connection:
            return connection.execute(query).all()

    def check(self, *job_ids):
        """No row is lost or doubled, each job has one result, and nothing is left over."""
        for name, rows in self.acknowledged.items():
            place = str(Path(self.plan.lake, name))
            for found in (
                lakehand.open_table(place).to_arrow(),
                DeltaTable(place).to_pyarrow_table(),
            ):
                ids = zip(found["part"].to_pylist(), found["id"].to_pylist(), strict=True)
                assert sorted(ids) == sorted(rows)
            log = Path(place, "_delta_log")
            assert any(is_by_lakehand(log, version) for version in versions(log)), "not compacted"
        for job_id in job_ids:
            assert self.parts.jobs.get(job_id).state == "succeeded"
            ended = select(EVENTS.c.kind).where(EVENTS.c.job_id == job_id)
            assert [row.kind for row in self.rows_of(ended)].count("job.succeeded") == 1
        assert self.parts.jobs.listed(states=["running"]) == []
        assert self.rows_of(select(ATTEMPTS).where(ATTEMPTS.c.ended_at.is_(None))) == []
        assert [budget.reserved for budget in self.parts.budgets.of_day(DAY)] == [0]


@pytest.fixture
def store(request, tmp_path):
    if "postgresql" in request.node.name:
        return request.getfixturevalue("emptied_postgresql")
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def lake_of(store, tmp_path):
    lakes = []

    def make(**values):
        plan = Plan(store=store, lake=f"{tmp_path}/lake", mark=f"{tmp_path}/mark", **values)
        lakes.append(Lake(plan))
        return lakes[-1]

    yield make
    for lake in lakes:
        lake.database.close()


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come to this in time"
        time.sleep(0.05)


def reach_the_mark(plan):
    until(lambda: Path(plan.mark).exists() and Path(plan.mark).read_text())
    return int(Path(plan.mark).read_text())


@pytest.mark.timeout(240)
@pytest.mark.in_turn("case")
@pytest.mark.parametrize("case", CASES)
@kill_at(*WORKER_STEPS, *JOB_STEPS)
def test_another_worker_finishes_the_job_of_one_that_fails(step, case, lake_of):
    way = case.rpartition("-")[2]
    role = "worker" if step in WORKER_STEPS else "job"
    lake = lake_of(step=step, way=way, role=role)
    job_id = lake.enqueue(lake.create("a"))
    with lake.being_written(), started("worker", lake.plan) as first:
        if step is Step.JOB_WINDING_DOWN:
            until(lambda: lake.parts.jobs.get(job_id).state == "running")
            first.terminate()
        failed = reach_the_mark(lake.plan)
        if role == "job" and way == "stop":
            time.sleep(lake.plan.lease_seconds + 0.5)
            os.kill(failed, signal.SIGCONT)
        with lake.another_worker():
            lake.wait_for_end(job_id)
        if role == "worker" and way == "stop":
            let_it_go_on(first)
    until(lambda: not job_processes(lake.plan.mark))
    lake.check(job_id)


def let_it_go_on(worker):
    """Continue a stopped worker, whose lease is lost; it finds that out and can be ended."""
    worker.send_signal(signal.SIGCONT)
    worker.terminate()
    assert worker.wait(60) == 0


@pytest.mark.timeout(240)
@pytest.mark.in_turn("case")
@pytest.mark.parametrize("case", CASES)
@kill_at(*SCHEDULER_STEPS)
def test_another_scheduler_goes_on_with_the_work_of_one_that_fails(step, case, lake_of):
    way = case.rpartition("-")[2]
    lake = lake_of(step=step, way=way, role="scheduler")
    freed = lake.enqueue(lake.create("a"))
    lake.parts.jobs.claim(claim_by("dead", lease_seconds=0.01))
    lake.create("b")
    with lake.being_written(), started("scheduler", lake.plan) as first:
        reach_the_mark(lake.plan)
        second = lake.parts.scheduler()
        second.tick()
        until(lambda: len(lake.parts.jobs.listed(verb="maintain")) == 2)
        jobs = [freed, *(job.id for job in lake.parts.jobs.listed(verb="maintain"))]
        with lake.another_worker():
            lake.wait_for_end(*jobs)
            first.send_signal(signal.SIGCONT)
            second.tick()
            until(lambda: not lake.parts.jobs.listed(states=["queued", "running"]))
    lake.check(*jobs)
