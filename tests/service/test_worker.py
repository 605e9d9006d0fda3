"""A worker runs jobs on real tables, each in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select

import lakehand
from lakehand.errors import ConfigError, JobStoreError
from lakehand.service import job_main, job_process
from lakehand.service.job_main import JobSpec
from lakehand.service.store.database_schema import ATTEMPTS
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobProcess, JobWorker, ProcessEndedError, WorkerOptions
from support.job_stores import add_pool, request

SCHEMA = pa.schema({"part": pa.int64(), "id": pa.int64()})


class Service:
    """The parts of a service around one worker."""

    def __init__(self, database, tmp_path):
        add_pool(database)
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.workers = WorkerRegistry(database)
        self.tmp_path = tmp_path
        self.settings = {"min_files": 2, "engine": "local"}

    def add(self, name, *, parts=2, files=3):
        table = lakehand.create_table(
            self.tmp_path / name, SCHEMA, partition_by=["part"], engine="local"
        )
        for number in range(files):
            rows = {"part": list(range(parts)), "id": [number] * parts}
            table.append(pa.table(rows, schema=SCHEMA))
        return self.tables.add(FoundTable(url=table.url, format="delta", name=name))[0]

    def worker(self, **options):
        return JobWorker(
            self.jobs,
            self.tables,
            self.workers,
            spec_of=self.spec_of,
            options=WorkerOptions(**{"slots": 1, "lease_seconds": 6.0, **options}),
        )

    def spec_of(self, job):
        table = self.tables.get(job.table_id)
        return JobSpec(
            url=table.url,
            verb=job.verb,
            options={"automatic": False, **job.options} if job.verb == "compact" else job.options,
            settings=self.settings,
            known_dead=tuple(self.jobs.dead_runs(table.id)),
            labels={"job": str(job.id)},
        )

    def wait_for(self, job_id, *states, seconds=60):
        for _ in range(seconds * 20):
            job = self.jobs.get(job_id)
            if job.state in states:
                return job
            time.sleep(0.05)
        raise AssertionError(f"job {job_id} is {job}")


@pytest.fixture
def clock():
    return None  # The machine's.


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def service(database, tmp_path):
    return Service(database, tmp_path)


@pytest.fixture
def running(service):
    worker = service.worker()
    worker.start()
    yield worker
    worker.stop()
    assert worker.join(30)


def test_jobs_run_on_their_tables(service, running):
    table = service.add("a")
    job_id = service.jobs.enqueue(request(table.id)).job_id
    job = service.wait_for(job_id, "succeeded", "failed")
    assert (job.state, job.outcome) == ("succeeded", "committed")
    assert job.report["groups"]["committed"] == 2
    assert lakehand.open_table(table.url).snapshot().file_count == 2


def test_a_slot_outlives_an_error_that_nobody_foresaw(service, monkeypatch, caplog):
    first, second = service.add("a"), service.add("b")
    spec_of = service.spec_of

    def fail_for_first(job):
        if job.table_id == first.id:
            raise ZeroDivisionError("a defect\n[parameters: secret]")
        return spec_of(job)

    monkeypatch.setattr(service, "spec_of", fail_for_first)
    jobs = [service.jobs.enqueue(request(table.id)).job_id for table in (first, second)]
    worker = service.worker(slots=1)
    worker.start()
    assert service.wait_for(jobs[1], "succeeded")
    assert service.jobs.get(jobs[0]).state == "running"  # Until its lease has run out.
    worker.stop()
    assert worker.join(30)
    [record] = [r for r in caplog.records if getattr(r, "event", None) == "worker_failed"]
    assert record.getMessage().endswith("ZeroDivisionError: a defect")
    assert "spec_of" in record.fields["stack"]


def test_a_job_that_cannot_be_cured_holds_its_verb(service, running):
    table = service.add("a")
    broken = service.tmp_path / "a" / "_delta_log" / f"{2:020}.json"
    broken.write_bytes(b"nonsense")
    job = service.wait_for(service.jobs.enqueue(request(table.id)).job_id, "failed")
    assert job.error["code"] == "CORRUPT_LOG"
    held = service.tables.held_verbs(table.id, lakehand=lakehand.__version__)
    assert set(held) == {"compact"}


def test_a_job_is_cancelled_while_it_runs(service, running):
    table = service.add("a")
    service.settings["min_files"] = 2
    job_id = service.jobs.enqueue(request(table.id, "verify", options={"deep": True})).job_id
    service.wait_for(job_id, "running", "succeeded")
    try:
        service.jobs.cancel(job_id)
    except lakehand.LakehandError:
        return  # It was faster.
    assert service.wait_for(job_id, "cancelled", "succeeded").state in {"cancelled", "succeeded"}


def test_a_killed_process_is_one_attempt(service, running):
    table = service.add("a")
    before = lakehand.open_table(table.url).to_arrow().num_rows
    first = service.jobs.enqueue(request(table.id, "health")).job_id
    service.wait_for(first, "succeeded")
    for child in children_of(os.getpid()):
        os.kill(child, signal.SIGKILL)
    job_id = service.jobs.enqueue(request(table.id)).job_id
    for _ in range(400):
        job = service.jobs.get(job_id)
        if job.attempt and job.state != "running":
            break
        time.sleep(0.05)
    if job.state == "queued":
        assert job.error["code"] == "JOB_CRASHED"
        service.jobs.retry(job_id)
        job = service.wait_for(job_id, "succeeded")
    assert job.state == "succeeded"
    assert lakehand.open_table(table.url).to_arrow().num_rows == before


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [c for c in found if b"service.job_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def test_a_worker_that_drains_ends_its_jobs_first(service):
    table = service.add("a", parts=6)
    worker = service.worker()
    worker.start()
    job_id = service.jobs.enqueue(request(table.id)).job_id
    service.wait_for(job_id, "running", "succeeded")
    worker.drain()
    assert worker.join(60)
    job = service.jobs.get(job_id)
    assert job.state in {"queued", "succeeded"}
    assert job.attempt == (0 if job.state == "queued" else 1)
    assert lakehand.open_table(table.url).to_arrow().num_rows == 18


def test_a_part_of_a_line_and_nonsense_are_no_answers():
    process = JobProcess()
    process._process.stdin.write("nonsense\n")
    process.kill()
    with pytest.raises(ProcessEndedError, match="SIGKILL"):
        process.answer(10)


def test_a_job_whose_settings_cannot_be_had_fails_and_the_next_one_runs(service):
    table, other = service.add("a"), service.add("b")
    spec_of = service.spec_of

    def refuse(job):
        if job.table_id == table.id:
            raise ConfigError("a secret is not set")
        return spec_of(job)

    service.spec_of = refuse
    worker = service.worker()
    worker.start()
    try:
        first = service.jobs.enqueue(request(table.id)).job_id
        second = service.jobs.enqueue(request(other.id)).job_id
        assert service.wait_for(second, "succeeded").outcome == "committed"
        # Another worker may be able to read it, so the job waits for its next attempt.
        waiting = service.jobs.get(first)
        assert (waiting.state, waiting.waits_for) == ("queued", "retry")
        assert waiting.error["code"] == "CONFIG_ERROR"
    finally:
        worker.stop()
        assert worker.join(30)


def test_a_store_that_fails_while_a_job_runs_does_not_end_the_job(service, monkeypatch):
    def fail(*_, **__):
        raise JobStoreError("the job store is away")

    monkeypatch.setattr(service.jobs, "note_run", fail)
    table = service.add("a")
    worker = service.worker()
    worker.start()
    try:
        job_id = service.jobs.enqueue(request(table.id)).job_id
        assert service.wait_for(job_id, "succeeded", "failed").state == "succeeded"
    finally:
        worker.stop()
        assert worker.join(30)
    assert lakehand.open_table(table.url).snapshot().file_count == 2


def test_a_process_that_cannot_be_started_is_one_attempt(service, monkeypatch):
    monkeypatch.setattr(job_process, "COMMAND", ("/nowhere/at/all",))
    worker = service.worker()
    worker.start()
    try:
        job_id = service.jobs.enqueue(request(service.add("a").id)).job_id
        for _ in range(400):
            job = service.jobs.get(job_id)
            if job.error:
                break
            time.sleep(0.05)
        assert (job.state, job.error["code"]) == ("queued", "JOB_CRASHED")
        assert "could not be started" in job.error["message"]
        monkeypatch.undo()
        service.jobs.retry(job_id)
        assert service.wait_for(job_id, "succeeded").attempt == 2
    finally:
        worker.stop()
        assert worker.join(30)


def test_a_panic_of_a_library_ends_a_job_with_an_error(monkeypatch):
    class Panic(BaseException):
        pass

    def panic(*_):
        raise Panic("of a library")

    monkeypatch.setattr(job_main, "run_job", panic)
    end = job_main._Job(JobSpec(url="x", verb="compact"), lambda _: None).run()
    assert end["error"]["code"] == "JOB_CRASHED"


def test_the_processor_time_of_processes_that_live_on_is_counted():
    busy = (
        "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ntime.sleep(60)"
    )
    before = job_main._core_seconds()
    command = [sys.executable, "-S", "-c", busy]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        living = job_main._core_seconds() - before
        process.kill()
    assert living > 0.25
    assert job_main._core_seconds() - before >= living - 0.05


#: A process of a job that begins and then hangs; it winds down, if at all, when it is told to.
HANGING = """
import json, sys, time
print(json.dumps({"progress": {"phase": "rewrite", "done": 1}}), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    if OBEYS and told.get("wish") == OBEYS:
        report = {"outcome": "committed", "stopped_early": True, "errors": [], "steps": []}
        print(json.dumps({"report": report, "spent": {"core_seconds": 2.0}}), flush=True)
    if "job" in told and TALKS:
        for done in range(20):
            print(json.dumps({"progress": {"phase": "rewrite", "done": done}}), flush=True)
            time.sleep(0.1)
        report = {"outcome": "committed", "stopped_early": False, "errors": [], "steps": []}
        print(json.dumps({"report": report}), flush=True)
"""


class TestJobTimeout:
    """A job that makes no progress is asked to wind down, then killed, and retried."""

    @pytest.fixture
    def hang(self, service, monkeypatch):
        started = []

        def run(obeys=None, *, talks=False, timeout=1.0, patience=0.5):
            program = f"OBEYS, TALKS = {obeys!r}, {talks}\n{HANGING}"
            command = (sys.executable, "-c", program)
            monkeypatch.setattr(job_process, "COMMAND", command)
            limits = {"job_timeout_seconds": timeout, "wind_down_seconds": patience}
            worker = service.worker(lease_seconds=3.0, **limits)
            started.append(worker)
            job_id = service.jobs.enqueue(request(service.add("a").id, max_attempts=2)).job_id
            worker.start()
            return job_id

        yield run
        for worker in started:
            worker.stop()
            assert worker.join(30)

    def test_a_job_that_hangs_is_killed_and_retried(self, service, hang):
        job_id = hang()
        service.wait_for(job_id, "running")
        job = service.wait_for(job_id, "queued")
        assert (job.error["code"], job.waits_for, job.attempt) == ("JOB_TIMED_OUT", "retry", 1)
        assert "job_timeout" in job.error["hint"]
        service.jobs.retry(job_id)
        assert service.wait_for(job_id, "failed").error["code"] == "JOB_TIMED_OUT"
        assert not hanging_processes()

    def test_what_it_commits_when_it_winds_down_is_kept(self, service, hang):
        job_id = hang("wind_down", patience=20)
        service.wait_for(job_id, "running")
        job = service.wait_for(job_id, "queued")
        assert (job.error["code"], job.attempt) == ("JOB_TIMED_OUT", 1)
        (end,) = attempts_of(service, job_id)
        assert end.report["outcome"] == "committed"
        assert end.spent == {"core_seconds": 2.0}

    def test_progress_keeps_a_job_alive(self, service, hang):
        job_id = hang(talks=True)
        assert service.wait_for(job_id, "succeeded").attempt == 1

    def test_a_job_that_hangs_is_cancelled_all_the_same(self, service, hang):
        job_id = hang(timeout=1000)
        service.wait_for(job_id, "running")
        service.jobs.cancel(job_id)
        assert service.wait_for(job_id, "cancelled").outcome == "cancelled"

    def test_without_a_limit_it_goes_on(self, service, hang):
        job_id = hang(timeout=0)
        service.wait_for(job_id, "running")
        time.sleep(2.5)
        assert service.jobs.get(job_id).state == "running"


def attempts_of(service, job_id):
    wanted = select(ATTEMPTS).where(ATTEMPTS.c.job_id == job_id)
    with service.jobs._database.reading() as connection:
        return connection.execute(wanted).all()


def hanging_processes():
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = [child for task in tasks for child in task.read_text().split()]
    return [c for c in found if b"OBEYS" in Path(f"/proc/{c}/cmdline").read_bytes()]
