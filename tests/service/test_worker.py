"""A worker runs jobs on real tables, each in its own process."""

from __future__ import annotations

import os
import signal
import time

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ConfigError, JobStoreError
from lakehand.service import job_main, job_process
from lakehand.service.job_main import JobSpec
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
    from pathlib import Path

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
