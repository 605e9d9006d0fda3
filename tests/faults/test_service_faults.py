"""What a service survives: dead machines, a lost store, a full disk, and clocks that jump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from lakehand.errors import JobStoreError
from lakehand.observe.clock import ManualClock
from lakehand.observe.steps import Step
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import ATTEMPTS
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.worker_registry import Leadership
from support.job_stores import add_pool, add_tables, claim_by, request
from support.service_lakes import Lake, until
from support.service_processes import Parts, Plan, job_processes, started
from support.small_disk import grow, small_disk

#: Within this time after the end of its lease a job of a dead worker runs elsewhere.
RESTART_SECONDS = 15
#: All groups are proved and recorded before the first commit.
RECORDED = {"min_files": 2, "engine": "local", "commit_every_groups": 100}


@pytest.fixture
def plan(tmp_path):
    return Plan(
        store=f"sqlite:///{tmp_path}/jobs.db", lake=f"{tmp_path}/lake", mark=f"{tmp_path}/mark"
    )


@pytest.fixture(autouse=True)
def closed_stores():
    yield
    while Lake.opened:
        Lake.opened.pop().close()


def reach_the_mark(plan):
    until(lambda: Path(plan.mark).exists() and Path(plan.mark).read_text())
    return Path(plan.mark).stat().st_mtime


def second_attempt(lake, job_id):
    rows = lake.rows_of(select(ATTEMPTS).where(ATTEMPTS.c.job_id == job_id))
    return rows[1] if len(rows) > 1 else None


def test_a_job_of_a_killed_worker_runs_elsewhere_in_time(plan):
    lake = Lake(replace(plan, step=Step.JOB_RUN_NOTED, is_prompt=False))
    job_id = lake.enqueue(lake.create("a"))
    with lake.being_written(), started("worker", lake.plan):
        killed_at = reach_the_mark(lake.plan)
        with lake.another_worker():
            until(lambda: lake.parts.jobs.free_dead() is None or second_attempt(lake, job_id))
            took = second_attempt(lake, job_id).started_at - killed_at
            lake.wait_for_end(job_id)
    assert took < lake.plan.lease_seconds + RESTART_SECONDS
    lake.check(job_id)


@pytest.mark.parametrize("knows", [True, False], ids=["known-dead", "not-known"])
def test_proved_groups_of_a_dead_machine_are_adopted_at_once(plan, knows):
    lake = Lake(replace(plan, way="machine", settings=RECORDED))
    job_id = lake.enqueue(lake.create("a", parts=3))
    with started("worker", lake.plan):
        reach_the_mark(lake.plan)
    with lake.another_worker(knows_dead_runs=knows):
        lake.wait_for_end(job_id)
    groups = lake.parts.jobs.get(job_id).report["groups"]
    assert (groups["adopted"], groups["committed"]) == (3 if knows else 0, 3)
    lake.check(job_id)


# -- processes without their worker ---------------------------------------------------------------

ENDLESS = """
import subprocess, time
from lakehand.service import job_main
def run_job(*_):
    subprocess.Popen(["sleep", "1000"])
    print("begun", flush=True)
    time.sleep(1000)
job_main.run_job, job_main._ORPHAN_SECONDS = run_job, 0.2
job_main.main()
"""


def test_a_job_that_does_not_wind_down_ends_with_all_that_it_started():
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    job = '{"job": {"url": "x", "verb": "compact", "known_dead": []}}\n'
    process.stdin.write(job)
    process.stdin.flush()
    assert process.stderr.readline() == "begun\n"
    process.stdin.close()
    assert process.wait(30) == -signal.SIGKILL
    assert process.stderr.read() == ""  # Closed by the last of the group.
    process.stderr.close()
    until(lambda: not group_lives(process.pid))


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_jvm_ends_with_the_job_process_of_a_killed_worker(plan):
    settings = {"min_files": 2, "engine": "spark", "master": "local[1]"}
    lake = Lake(replace(plan, settings=settings, lease_seconds=10))
    job_id = lake.enqueue(lake.create("a"))
    with started("worker", lake.plan) as worker:
        until(lambda: job_processes(lake.plan.mark))
        (group,) = job_processes(lake.plan.mark)
        until(lambda: "java" in programs_of(group), seconds=150)
        worker.kill()
        until(lambda: not group_lives(group), seconds=150)
    with lake.another_worker():
        lake.wait_for_end(job_id)
    lake.check(job_id)


def programs_of(group):
    """Return the names of the programs in a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[2]) == group:
            found.append(name)
    return found


# -- a store that is lost -------------------------------------------------------------------------


@pytest.mark.timeout(240)
def test_a_deleted_store_is_filled_again_and_no_table_is_harmed(plan, tmp_path):
    lake = Lake(replace(plan, way="stop", role="job", step=Step.RUN_COMMITTING))
    names = [lake.create(name) for name in ("a", "b")]
    with lake.being_written(), started("worker", lake.plan), started("scheduler", lake.plan):
        reach_the_mark(lake.plan)
        lake.database.close()
        for file in tmp_path.glob("jobs.db*"):
            file.unlink()
        os.kill(int(Path(lake.plan.mark).read_text()), signal.SIGCONT)
        until(lambda: Path(tmp_path, "jobs.db").exists())
        until(lambda: len(ended(lake)) == len(names))
    assert {job.state for job in ended(lake)} == {"succeeded"}
    lake.check_rows()


def ended(lake):
    try:
        return [job for job in lake.parts.jobs.listed(verb="maintain") if job.ended_at]
    except JobStoreError:
        return []  # It has no tables yet.


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(240)
def test_a_store_restored_from_an_older_dump_does_its_jobs_again(
    plan, postgresql, emptied_postgresql
):
    lake = Lake(replace(plan, store=emptied_postgresql, lease_seconds=4))
    names = [lake.create(name) for name in ("a", "b")]
    dump = postgresql.directory / "dump.sql"
    connect = ("-U", "lakehand", "-h", str(postgresql.directory))
    with lake.being_written(), started("worker", lake.plan), started("scheduler", lake.plan):
        until(lambda: lake.parts.jobs.listed(states=["running"]))
        postgresql.run("pg_dump", *connect, "--clean", "--if-exists", "-f", str(dump), "postgres")
        until(lambda: len(ended(lake)) >= len(names))
        lake.database.close()
        postgresql.run("psql", *connect, "-q", "-f", str(dump), "postgres")
        until(lambda: len(ended(lake)) >= len(names))
        until(lambda: not lake.parts.jobs.listed(states=["running"]))
    lake.check_rows()


# -- a disk without room --------------------------------------------------------------------------


def test_a_full_disk_is_said_and_the_service_goes_on_when_there_is_room(tmp_path):
    with small_disk(tmp_path / "disk", size_kib=768) as disk:
        database = open_database(f"sqlite:///{disk}/jobs.db")
        parts = Parts(database, Plan(store="", lake="", mark=""))
        add_pool(database)
        (table,) = add_tables(database, 1)
        parts.jobs.enqueue(request(table))
        job = parts.jobs.claim(claim_by("w"))
        with pytest.raises(JobStoreError, match="full"):
            enqueue_many(parts.jobs, table)
        queued = len(parts.jobs.listed(states=["queued"], limit=10_000))
        grow(disk, 4096)
        parts.jobs.beat(job.id, job.fence, lease_seconds=60, progress=None)
        parts.jobs.finish(job.id, job.fence, AttemptEnd(outcome="committed"), state="succeeded")
        assert len(parts.jobs.listed(states=["queued"], limit=10_000)) == queued
        database.close()


def enqueue_many(jobs, table):
    for number in range(10_000):
        jobs.enqueue(request(table, scope=str(number), reasons=["x" * 500]))


def test_a_worker_outlives_a_full_disk_of_its_store(plan, tmp_path):
    with small_disk(tmp_path / "disk", size_kib=768) as disk:
        lake = Lake(replace(plan, store=f"sqlite:///{disk}/jobs.db"))
        job_id = lake.enqueue(lake.create("a"))
        filler = Path(disk, "filler")
        with lake.another_worker():
            fill(filler)
            time.sleep(2)  # It claims and beats meanwhile, as far as there is room.
            filler.unlink()
            lake.wait_for_end(job_id)
        lake.check(job_id)
        lake.database.close()


def fill(path):
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


# -- clocks that jump -----------------------------------------------------------------------------

YEARS = 10 * 365 * 86_400.0


def test_a_clock_that_was_years_ahead_stops_nothing(plan):
    clock = ManualClock()
    lake = Lake(plan, clock=clock)
    url = lake.create("a")
    scheduler = lake.parts.scheduler()
    clock.advance(YEARS)
    assert scheduler.tick().queued == 1
    dead = lake.parts.jobs.claim(claim_by("dead", lease_seconds=60))
    clock.advance(-YEARS)
    lake.create("b")
    assert [table.url for table in lake.parts.tables.to_look_at()] == [url]
    tick = scheduler.tick()
    assert (tick.found, tick.looked_at, tick.freed) == (1, 2, 1)
    assert lake.parts.jobs.get(dead.id).state == "queued"
    assert Leadership(lake.database, "scheduler", "one").hold(60)
    clock.advance(86_400)
    tables = {lake.parts.jobs.claim(claim_by()).table_id for _ in range(2)}
    assert len(tables) == 2


def test_a_leader_that_died_while_the_clock_was_ahead_is_replaced(plan):
    clock = ManualClock()
    lake = Lake(plan, clock=clock)
    clock.advance(YEARS)
    assert Leadership(lake.database, "scheduler", "one").hold(60)
    clock.advance(-YEARS)
    assert Leadership(lake.database, "scheduler", "two").hold(60)


def test_a_clock_that_jumps_ahead_costs_a_lease_and_no_result(plan):
    clock = ManualClock()
    lake = Lake(plan, clock=clock)
    lake.enqueue(lake.create("a"))
    job = lake.parts.jobs.claim(claim_by("w", lease_seconds=60))
    clock.advance(3600)
    lake.parts.jobs.beat(job.id, job.fence, lease_seconds=60, progress=None)
    assert lake.parts.jobs.free_dead() == []
    clock.advance(-7200)
    lake.parts.jobs.beat(job.id, job.fence, lease_seconds=60, progress=None)
    clock.advance(61)
    (freed,) = lake.parts.jobs.free_dead()
    assert (freed.job_id, freed.state) == (job.id, "queued")
