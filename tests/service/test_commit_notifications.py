"""Writers tell a service of their commits; a service that cannot be told costs them nothing."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.service.config import parse_config
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.sink import AsyncTableSink, SinkCommitter, TableSink
from lakehand.sink.notify import Commit, flush_notifications
from lakehand.web.server import WebServer
from support.job_stores import add_pool

ROWS = pa.table({"id": [1, 2, 3]})
TOKEN = "a-token-that-no-log-may-show"


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


class Service:
    """A server over one registered table, which is maintained after every commit."""

    def __init__(self, database, place):
        add_pool(database)
        self.place = place
        self.table = lakehand.create_table(place, ROWS.schema)
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        document = {
            "web": {"token": "env:SERVICE_TOKEN"},
            "policy": {"default": {"check_after": {"commits": 1}}},
        }
        self.server = WebServer(
            parse_config(document), database, jobs=self.jobs, tables=self.tables
        )
        self.settings = {
            "notify_url": self.server.start("127.0.0.1:0"),
            "notify_token": "env:SERVICE_TOKEN",
        }
        row, _ = self.tables.add(FoundTable(url=self.table.url, format="delta"))
        now = database.time()
        self.tables.looked(row.id, look_every=3600, version=0, assessed_version=0, assessed_at=now)

    def reasons(self):
        flush_notifications(10)
        return [job.reasons for job in self.jobs.listed(states=["queued"])]


@pytest.fixture
def service(database, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", TOKEN)
    opened = Service(database, tmp_path / "t")
    yield opened
    opened.server.stop()


def test_a_sink_that_commits_queues_a_job(service):
    with TableSink(service.place, writer_id="w", **service.settings) as sink:
        sink.begin_epoch(1)
        sink.write(ROWS)
        sink.commit_epoch()
        assert service.reasons() == [["version 1"]]
    (table,) = service.tables.listed()
    assert (table.version, table.assessed_version) == (1, 1)


def test_a_sink_of_an_event_loop_does_so_too(service):
    async def write():
        async with AsyncTableSink(service.place, writer_id="w", **service.settings) as sink:
            await sink.begin_epoch(1)
            await sink.write(ROWS)
            await sink.commit_epoch()

    asyncio.run(write())
    assert service.reasons() == [["version 1"]]


def test_a_committer_tells_once_for_all_writers(service):
    with TableSink(service.place, writer_id="w", pipeline="p", **service.settings) as sink:
        sink.begin_epoch(1)
        sink.write(ROWS)
        descriptor = sink.pre_commit()
        assert service.reasons() == []
        with SinkCommitter(service.place, pipeline="p", **service.settings) as committer:
            committer.commit(1, [descriptor])
        sink.commit_epoch()
    assert service.reasons() == [["version 1"]]


def test_calls_of_a_table_tell_of_their_commits(service):
    table = lakehand.open_table(service.place, **service.settings)
    table.append(ROWS)
    table.upsert(ROWS, key=["id"])
    assert service.reasons() == [["version 2"]]


def test_a_write_of_spark_tells_before_its_process_ends(service):
    from lakehand.spark.source_options import SourceOptions
    from lakehand.spark.write_job import TaskReport, WriteJob
    from lakehand.storage import open_store

    options = SourceOptions.of({"path": str(service.place), **service.settings}, use="write")
    job = WriteJob.begin(open_store(service.place), options, ROWS.schema, overwrite=False)
    descriptor = job.write(ROWS.to_batches())
    report = TaskReport(token=job.token, descriptor=descriptor.to_json(), is_retry=False)
    job.finish([report], None)
    assert [job.reasons for job in service.jobs.listed(states=["queued"])] == [["version 1"]]


def test_a_program_that_ends_at_once_has_told(service):
    program = (
        "import lakehand, pyarrow as pa; "
        f"lakehand.open_table({str(service.place)!r}).append(pa.table({{'id': [1]}}))"
    )
    import os

    environment = {**os.environ, "LAKEHAND_NOTIFY_URL": service.settings["notify_url"]}
    environment["LAKEHAND_NOTIFY_TOKEN"] = "env:SERVICE_TOKEN"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    assert service.reasons() == [["version 1"]]


def test_a_service_that_cannot_be_told_is_logged_once_and_slows_nothing(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="lakehand")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It never answers.
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        table = lakehand.create_table(tmp_path / "t", ROWS.schema, notify_url=url)
        started = time.monotonic()
        for _ in range(10):
            table.append(ROWS)
        assert time.monotonic() - started < 10 * 1.5  # Waiting would take 20 s.
        flush_notifications(10)
    assert [one.event for one in caplog.records if one.event == "notify_failed"] == [
        "notify_failed"
    ]
    assert table.snapshot().version == 10


@pytest.mark.parametrize("token", ["env:NO_SUCH_TOKEN", "env:WRONG_TOKEN", None])
def test_a_token_that_is_wrong_is_logged_and_never_shown(
    service, token, monkeypatch, caplog, tmp_path
):
    monkeypatch.setenv("WRONG_TOKEN", "wrong-and-secret")
    table = lakehand.open_table(service.place, **{**service.settings, "notify_token": token})
    table.append(ROWS)
    assert service.reasons() == []
    (failed,) = [one for one in caplog.records if getattr(one, "event", "") == "notify_failed"]
    is_refused = re.search(r"\b401\b", failed.getMessage()) is not None
    assert is_refused == (token != "env:NO_SUCH_TOKEN")
    assert TOKEN not in caplog.text
    assert "wrong-and-secret" not in caplog.text


def test_a_token_that_is_given_as_it_is_is_refused_and_not_shown():
    with pytest.raises(ValidationError, match="named as env:VARIABLE") as caught:
        lakehand.open_table("/nowhere", notify_token="hunter2")
    assert "hunter2" not in f"{caught.value} {caught.value.to_json()}"


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8484", "http://a:b@c", "http://x:y/"])
def test_a_wrong_url_is_refused(url):
    with pytest.raises(ValidationError):
        lakehand.open_table("/nowhere", notify_url=url)


def test_commits_of_a_table_become_one_message():
    first = Commit(table="t", version=7, files=1, bytes=10)
    second = Commit(table="t", version=6, files=2, bytes=5)
    assert second.with_earlier(first) == Commit(table="t", version=7, files=3, bytes=15)
