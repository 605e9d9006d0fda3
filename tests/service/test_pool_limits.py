"""Limits of pools: rate, priority of processes; and the back-off from busy writers."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest

from lakehand.errors import ConfigError
from lakehand.observe import Progress
from lakehand.service.config import parse_config
from lakehand.service.job_main import JobSpec, Throttle, _Job
from lakehand.service.job_process import COMMAND, JobProcess, command_with
from lakehand.service.job_specs import JobSpecs
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_waits import find_waits
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobWorker
from support.job_stores import add_pool, claim_by, request

LOST = {"code": "CONFLICT", "message": "lost to another writer", "retryable": True}


def test_a_throttle_waits_as_long_as_the_bytes_of_all_steps_take():
    throttle = Throttle(100.0, began=0.0)
    assert throttle.seconds_ahead(100, now=1.0) == 0.0
    assert throttle.seconds_ahead(300, now=1.0) == 2.0
    assert throttle.seconds_ahead(50, now=3.0) == 0.5, "a second step counts from the beginning"


def test_a_job_with_a_rate_pauses_between_groups_until_it_is_wound_down(monkeypatch):
    slept = []
    job = _Job(JobSpec(url="file:///t", verb="compact", rate=1000.0), lambda _document: None)

    def sleep(seconds):
        slept.append(seconds)
        job.control.cancel.wind_down()

    monkeypatch.setattr("time.sleep", sleep)
    job._progress(Progress(phase="rewrite", done=1, done_bytes=10_000))
    assert len(slept) == 1
    assert 0 < slept[0] <= 0.2, "the wish to end is heard soon"


def test_a_job_without_a_rate_does_not_pause(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _seconds: pytest.fail("paused"))
    job = _Job(JobSpec(url="file:///t", verb="compact"), lambda _document: None)
    job._progress(Progress(phase="rewrite", done=1, done_bytes=10**12))


def test_slots_share_the_rate_of_their_pool(database):
    config = parse_config(
        {"pool": [{"name": "default", "max_running": 4, "rate_bytes_per_second": "400MiB",
                   "nice": 10, "ionice": "idle"}]}
    )  # fmt: skip
    add_pool(database)
    jobs, tables = JobQueue(database), TableRegistry(database)
    table, _ = tables.add(FoundTable(url="file:///lake/a", name="a"))
    jobs.enqueue(request(table.id))
    spec = JobSpecs(config, jobs, tables).of(jobs.claim(claim_by()))
    assert (spec.rate, spec.nice, spec.ionice) == (100 * 2**20, 10, "idle")


@pytest.mark.parametrize("pool", [{"nice": 20}, {"nice": -1}, {"ionice": "realtime"}])
def test_a_priority_above_the_normal_one_is_refused(pool):
    with pytest.raises(ConfigError):
        parse_config({"pool": [{"name": "default", **pool}]})


@pytest.mark.skipif(shutil.which("nice") is None, reason="there is no command nice")
def test_the_process_of_a_job_has_the_niceness_of_its_pool():
    import os

    process = JobProcess(nice=7)
    try:
        wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
        deadline = time.monotonic() + 30  # `nice` sets it when it runs
        while os.getpriority(os.PRIO_PROCESS, process._process.pid) != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()


def test_a_machine_without_the_commands_runs_jobs_as_ever(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert command_with(10, "idle") == COMMAND


class Service:
    def __init__(self, database):
        add_pool(database)
        self.config = parse_config({"policy": {"default": {"check_after": {"commits": 1}}}})
        self.database = database
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.workers = WorkerRegistry(database)
        self.table, _ = self.tables.add(FoundTable(url="file:///lake/a", name="a", format="delta"))
        self.worker = JobWorker(
            self.jobs, self.tables, self.workers,
            spec_of=lambda _job: JobSpec(url="file:///lake/a", verb="compact"),
        )  # fmt: skip
        self.scheduler = Scheduler(
            self.config, database, jobs=self.jobs, tables=self.tables, workers=self.workers
        )

    def lose(self, **end):
        """Let the next attempt lose to a writer."""
        job = self.jobs.claim(claim_by())
        self.worker._end(job, None, end or {"error": LOST})
        return self.jobs.get(job.id)

    def wait_of(self, job):
        return find_waits(self.database, [job], silent_seconds=1e9)[job.id][0]


@pytest.fixture
def service(database):
    return Service(database)


def test_a_rewrite_that_keeps_losing_to_writers_waits_longer_each_time(service, clock):
    service.jobs.enqueue(request(service.table.id, max_attempts=9))
    delays = []
    for losses in range(1, 5):
        job = service.lose()
        wait = service.wait_of(job)
        assert wait.reason == "writers_busy"
        assert ("rewrite lost" if losses == 1 else f"last {losses} rewrites") in wait.details
        delays.append(job.not_before - clock.now().timestamp())
        clock.advance(delays[-1] + 1)
    assert delays == pytest.approx([30, 60, 90, 120], abs=0.01)


def test_a_loss_of_much_work_makes_a_table_wait_for_longer(service, clock):
    service.jobs.enqueue(request(service.table.id, max_attempts=9))
    job = service.lose(error=LOST, spent={"core_seconds": 500.0})
    assert job.not_before - clock.now().timestamp() == pytest.approx(500, abs=0.01)
    clock.advance(501)
    job = service.lose(error=LOST, spent={"core_seconds": 500.0})
    assert job.not_before - clock.now().timestamp() == pytest.approx(1000, abs=0.01)
    losses = service.jobs.losses(service.table.id)
    assert (losses.count, losses.core_seconds) == (2, 500.0)
    service.jobs.cancel(job.id)
    later = service.scheduler._back_off(request(service.table.id), clock.now().timestamp())
    assert later.delay == pytest.approx(1000, abs=0.01)


def test_new_commits_do_not_end_a_back_off_but_a_request_by_hand_does(service):
    service.jobs.enqueue(request(service.table.id))
    job = service.lose()
    service.jobs.enqueue(request(service.table.id))
    assert service.jobs.get(job.id).not_before == job.not_before
    service.jobs.enqueue(request(service.table.id, asked_by="ann"))
    assert service.jobs.get(job.id).not_before < job.not_before


def test_the_next_job_of_a_table_that_lost_its_rewrites_starts_later_and_says_why(service, clock):
    service.jobs.enqueue(request(service.table.id))
    job = service.jobs.claim(claim_by())
    report = {"outcome": "committed", "groups": {"committed": 1, "dropped": 5}}
    end = AttemptEnd(outcome="committed", report=report)
    service.jobs.finish(job.id, job.fence, end, state="succeeded")
    now = clock.now().timestamp()
    delayed = service.scheduler._back_off(request(service.table.id), now)
    assert (delayed.waits_for, delayed.delay) == ("writers_busy", 30.0)
    queued = service.jobs.get(service.jobs.enqueue(delayed).job_id)
    assert service.wait_of(queued).reason == "writers_busy"
    vacuum = request(service.table.id, "vacuum")
    assert service.scheduler._back_off(vacuum, now) == vacuum
    later = service.scheduler._back_off(replace(delayed, delay=0.0), now + 31)
    assert later.delay == 0.0


def test_a_rewrite_that_succeeds_ends_the_back_off(service, clock):
    service.jobs.enqueue(request(service.table.id))
    job = service.lose()
    clock.advance(job.not_before - clock.now().timestamp() + 1)
    again = service.jobs.claim(claim_by())
    assert service.jobs.losses(service.table.id).count == 1
    end = AttemptEnd(outcome="committed", report={"groups": {"committed": 2, "dropped": 0}})
    service.jobs.finish(again.id, again.fence, end, state="succeeded")
    assert service.jobs.losses(service.table.id).count == 0
