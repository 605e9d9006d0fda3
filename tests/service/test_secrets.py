"""The secrets of storage options stay in the memory of the processes that need them."""

from __future__ import annotations

import http.client
import json
import logging
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.service.config import parse_config
from lakehand.service.job_specs import JobSpecs
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobWorker, WorkerOptions
from lakehand.web.app import ENDPOINTS
from lakehand.web.server import WebServer
from support.job_stores import add_pool, request
from support.s3_server import SECRET_KEY, run_s3_server

pytestmark = pytest.mark.server
SCHEMA = pa.schema({"id": pa.int64()})
WRONG_KEY = "another-secret-that-no-message-may-show"


@pytest.fixture
def clock():
    return None  # The machine's.


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/store/jobs.db"


@pytest.fixture
def s3(tmp_path):
    with run_s3_server(tmp_path / "s3") as server:
        yield server


class Service:
    """All parts of a service over a bucket."""

    def __init__(self, database, s3):
        add_pool(database)
        options = {k: v for k, v in s3.options.items() if k != "secret_access_key"}
        self.config = parse_config(
            {
                "source": [{"name": "lake", "include": ["s3://lake/*"]}],
                "storage": {"lake": {**options, "secret_access_key": "env:LAKE_SECRET"}},
                "policy": {"default": {"engine": "local", "max_retries": 0}},
            }
        )
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.workers = WorkerRegistry(database)
        parts = {"jobs": self.jobs, "tables": self.tables}
        self.scheduler = Scheduler(self.config, database, workers=self.workers, **parts)
        self.worker = JobWorker(
            self.jobs,
            self.tables,
            self.workers,
            spec_of=JobSpecs(self.config, self.jobs, self.tables).of,
            options=WorkerOptions(slots=1),
        )
        self.server = WebServer(self.config, database, **parts)
        self.answers = []

    def run(self, table, verb="maintain"):
        job_id = self.jobs.enqueue(request(table.id, verb)).job_id
        for _ in range(1200):
            job = self.jobs.get(job_id)
            if job.ended_at is not None or job.error is not None:
                return job
            time.sleep(0.05)
        raise AssertionError(job)

    def post(self, document):
        self.ask("POST", "/notify", json.dumps(document))

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.server.url.removeprefix("http://"))
        connection.request(method, path, body)
        self.answers.append(connection.getresponse().read().decode())
        connection.close()


#: Every page and resource of the two tables and of their jobs.
PAGES = [
    prefix + (endpoint.page or endpoint.path).format(table=number, job=number)
    for endpoint in ENDPOINTS
    for prefix in ("/api/v1", "")
    for number in (1, 2)
    if endpoint.method == "GET"
]
#: Every row of the service, as the page of SQL shows it.
STATEMENTS = [
    f"/sql?statement=SELECT+*+FROM+system.{name}"
    for name in ("jobs", "attempts", "tables", "events", "workers", "settings", "policies")
]


@pytest.fixture
def service(database, s3, monkeypatch):
    monkeypatch.setenv("LAKE_SECRET", SECRET_KEY)
    opened = Service(database, s3)
    opened.server.start("127.0.0.1:0")
    yield opened
    opened.worker.stop()
    assert opened.worker.join(30)
    opened.server.stop()


def test_a_secret_is_in_no_row_no_log_no_event_and_no_answer(
    service, s3, tmp_path, monkeypatch, caplog, capfd
):
    caplog.set_level(logging.DEBUG)
    for name in ("good", "broken"):
        table = lakehand.create_table(f"s3://lake/{name}", SCHEMA, storage_options=s3.options)
        for _ in range(3):
            table.append(pa.table({"id": [1]}))
    assert service.scheduler.tick().found == 2
    broken, good = service.tables.listed()
    for job in service.jobs.listed(states=["queued"]):
        service.jobs.cancel(job.id)
    service.worker.start()
    assert service.run(good).state == "succeeded"
    (s3.directory / "broken" / "_delta_log" / f"{2:020}.json").write_bytes(b"nonsense")
    assert service.run(broken).error["code"] == "CORRUPT_LOG"
    monkeypatch.setenv("LAKE_SECRET", WRONG_KEY)
    assert service.run(good, "verify").error is not None
    service.scheduler._listed_at.clear()
    assert service.scheduler.tick().errors
    for url in (good.url, "s3://lake/new", "s3://lake/../x"):
        service.post({"table": url, "version": 9})
    for path in ("/metrics", *PAGES, *STATEMENTS):
        service.ask("GET", path)
    shown = capfd.readouterr()
    rows = [file.read_bytes().decode("latin-1") for file in Path(tmp_path, "store").iterdir()]
    everything = "\n".join(["".join(rows), caplog.text, *service.answers, *shown])
    assert "CORRUPT_LOG" in everything
    assert len(service.answers) == 4 + len(PAGES) + len(STATEMENTS)
    assert 'lakehand_table_held{table="s3://lake/broken"} 1.0' in service.answers[3]
    assert SECRET_KEY not in everything
    assert WRONG_KEY not in everything
