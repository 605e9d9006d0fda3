"""A table that is written to all the time is maintained by jobs of the service."""

from __future__ import annotations

import json
import threading
import time

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitConflictError
from lakehand.service.job_main import JobSpec
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobWorker, WorkerOptions
from support.job_stores import add_pool, request

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture
def clock():
    return None  # The machine's.


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


class Writer:
    """Appends two rows and deletes one of them, again and again; four files are two hours old."""

    def __init__(self, place):
        self.table = lakehand.create_table(place, SCHEMA, engine="local")
        self.kept = [-1, -2, -3, -4]
        for number in self.kept:
            self.table.append(pa.table({"id": [number]}))
        for commit in (place / "_delta_log").glob("*.json"):
            commit.write_text("".join(map(written_earlier, commit.read_text().splitlines())))
        self._is_busy, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        assert self._is_busy.wait(60)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(60)

    def _run(self):
        number = 0
        while not self._stop.is_set():
            number += 2
            self.table.append(pa.table({"id": [number, number + 1]}))
            self.kept.append(number)
            try:
                self.table.delete(where=f"id = {number + 1}")
            except CommitConflictError:
                self.kept.append(number + 1)
            self._is_busy.set()
            self._stop.wait(0.05)


def written_earlier(line):
    """Return an action of a commit with a file that is two hours older."""
    action = json.loads(line)
    if "add" in action:
        action["add"]["modificationTime"] -= 7_200_000
    return json.dumps(action) + "\n"


@pytest.fixture
def run(database, tmp_path):
    """Return a function that runs a job on a table with settings, and returns the ended job."""
    add_pool(database)
    jobs, tables = JobQueue(database), TableRegistry(database)
    workers = []

    def run_job(url, **settings):
        def spec_of(job):
            return JobSpec(url=url, verb=job.verb, options=job.options, settings=settings)

        table, _ = tables.add(FoundTable(url=url, format="delta"))
        options = WorkerOptions(slots=1)
        worker = JobWorker(jobs, tables, WorkerRegistry(database), spec_of=spec_of, options=options)
        worker.start()
        workers.append(worker)
        skip = ["vacuum", "clean_logs", "cluster", "checkpoint"]
        job_id = jobs.enqueue(request(table.id, "maintain", options={"skip": skip})).job_id
        for _ in range(1200):
            job = jobs.get(job_id)
            if job.ended_at is not None or job.error:
                return job
            time.sleep(0.05)
        raise AssertionError(job)

    yield run_job
    for worker in workers:
        worker.stop()
        assert worker.join(30)


@pytest.mark.parametrize(("longest", "outcome"), [("1h", "committed"), ("3h", "nothing_to_do")])
def test_files_that_have_waited_for_long_are_compacted_between_writes(
    run, tmp_path, longest, outcome
):
    with Writer(tmp_path / "t") as writer:
        job = run(writer.table.url, engine="local", quiet_period_max=longest, automatic_min_files=2)
    assert (job.state, job.outcome) == ("succeeded", outcome), job.error
    assert sorted(writer.table.to_arrow()["id"].to_pylist()) == sorted(writer.kept)
    if outcome == "committed":
        (step,) = [step for step in job.report["steps"] if step["step"] == "compact"]
        removed = removed_by(writer.table, step["report"]["version"])
        # What was written within the quiet period was left alone: the writer is busy there.
        assert len(removed) == 4
        assert max(removed.values()).timestamp() < job.started_at - 3600


def removed_by(table, version):
    """Return the files that a version no longer has, with the times when they were written."""
    before, after = (table.snapshot(version=one).files for one in (version - 1, version))
    written = dict(zip(before["path"].to_pylist(), before["modified_at"].to_pylist(), strict=True))
    return {path: written[path] for path in written.keys() - set(after["path"].to_pylist())}
