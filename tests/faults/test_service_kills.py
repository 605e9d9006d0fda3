"""Workers, job processes and schedulers are killed or stopped at every step of a job.

Another process finishes the work each time, and other writers append meanwhile.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from lakehand.observe.steps import Step
from support.crash import kill_at
from support.job_stores import claim_by
from support.service_lakes import Lake, until
from support.service_processes import Plan, job_processes, started

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


@pytest.fixture
def store(request, tmp_path):
    if "postgresql" in request.node.name:
        return request.getfixturevalue("emptied_postgresql")
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def lake_of(store, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    lakes = []

    def make(**values):
        plan = Plan(store=store, lake=f"{tmp_path}/lake", mark=f"{tmp_path}/mark", **values)
        lakes.append(Lake(plan))
        return lakes[-1]

    yield make
    for lake in lakes:
        lake.database.close()


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
