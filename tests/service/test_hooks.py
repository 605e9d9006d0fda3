"""Hooks hear of every event at least once, whatever fails, and show no secret."""

from __future__ import annotations

import http.server
import json
import logging
import re
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from lakehand.service.config import parse_config
from lakehand.service.hooks import HookDelivery
from lakehand.service.job_states import EVENT_KINDS
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database_schema import METADATA
from lakehand.service.store.events import Conditions, EventLog
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.outbox import Outbox
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from support.job_stores import add_pool, claim_by, request

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-that-no-row-may-hold"
SECRET_PATH = "T000-a-token-of-the-url"


class Receiver:
    """A webhook on this machine that keeps what it gets, and answers as it is told."""

    def __init__(self):
        self.got, self.answers = [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.got.append((handler.path, dict(handler.headers), body))
                status = self.answers.pop(0) if self.answers else 200
                if callable(status):
                    status = status(handler)
                handler.send_response(status)
                if status == 302:
                    handler.send_header("Location", "/elsewhere")
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/hook/{SECRET_PATH}"

    @property
    def kinds(self):
        return [json.loads(body)["kind"] for _, _, body in self.got]

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    opened = Receiver()
    yield opened
    opened.close()


class Service:
    """A store with one table, and hooks."""

    def __init__(self, database, monkeypatch):
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        add_pool(database)
        self.database = database
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.outbox, self.events = Outbox(database), EventLog(database)
        self.table, _ = self.tables.add(FoundTable(url="s3://lake/orders", name="orders"))

    def hook(self, events=("job.*",), **values):
        document = {"hook": [{"events": list(events), **values}]}
        self.delivery = HookDelivery(parse_config(document).hooks, self.database)
        self.delivery.subscribe()

    def fail_a_job(self):
        self.jobs.enqueue(request(self.table.id))
        job = self.jobs.claim(claim_by())
        end = AttemptEnd(outcome="failed", error={"code": "CORRUPT_LOG", "message": "it is"})
        self.jobs.finish(job.id, job.fence, end, state="failed")
        return job

    def deliver(self):
        done = self.delivery.deliver_due()
        return done.sent, done.failed, done.dropped


@pytest.fixture
def service(database, monkeypatch):
    return Service(database, monkeypatch)


def only_sqlite(test):
    return pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)(test)


def test_a_webhook_hears_of_the_events_that_it_wants(service, receiver, clock):
    service.hook(["job.failed", "job.queued"], url=receiver.url, secret="env:HOOK_SECRET")
    job = service.fail_a_job()
    assert service.deliver() == (2, 0, 0)
    assert receiver.kinds == ["job.queued", "job.failed"]
    path, headers, body = receiver.got[1]
    event = service.events.since(0)[-1]
    assert path.endswith(SECRET_PATH)
    assert headers["X-Lakehand-Event-Id"] == str(event["id"])
    assert json.loads(body) == {
        "id": event["id"],
        "kind": "job.failed",
        "at": clock.now().isoformat(),
        "table": {"id": service.table.id, "url": "s3://lake/orders", "name": "orders"},
        "job": {"id": job.id, "verb": "compact"},
        "by": None,
        "details": {"outcome": "failed", "code": "CORRUPT_LOG"},
    }
    assert service.deliver() == (0, 0, 0)
    assert service.outbox.waiting() == 0


def text_of(body):
    document = json.loads(body)
    assert document.keys() == {"text"}
    return document["text"]


@only_sqlite
def test_slack_gets_a_sentence(service, receiver, database):
    wanted = ["job.failed", "table.*", "worker.lost", "budget.used_up"]
    service.hook(wanted, url=receiver.url, format="slack", secret="env:HOOK_SECRET")
    job = service.fail_a_job()
    odd, _ = service.tables.add(FoundTable(url="s3://lake/<!channel>&co"))
    service.tables.measured(odd.id, 1, {"health_score": 12})
    BudgetStore(database).allow("service", "bytes", "2026-01-01", 0)
    Conditions(database).check(unhealthy_below=60, day="2026-01-01")
    assert service.deliver()[1:] == (0, 0)
    texts = sorted(text_of(body) for _, _, body in receiver.got)
    assert texts == [
        "lakehand: The bytes budget of service for 2026-01-01 is used up",
        f"lakehand: compact of orders failed with CORRUPT_LOG (job {job.id})",
        "lakehand: s3://lake/&lt;!channel&gt;&amp;co is unhealthy: score 12, limit 60",
        "lakehand: table.found, s3://lake/&lt;!channel&gt;&amp;co",
    ]
    assert all("X-Lakehand-Signature" in headers for _, headers, _ in receiver.got)


class TestConditions:
    """Unhealthy tables and used-up budgets are told once, and once that they have ended."""

    def check(self, service, day="2026-01-01"):
        before = [event["id"] for event in service.events.since(0)][-1]
        Conditions(service.database).check(unhealthy_below=60, day=day)
        return [event["kind"] for event in service.events.since(before)]

    def score(self, service, score):
        service.tables.measured(service.table.id, None, {"health_score": score})

    def test_a_table_is_unhealthy_until_it_is_clearly_healthy(self, service):
        assert self.check(service) == []
        self.score(service, 59)
        assert self.check(service) == ["table.unhealthy"]
        self.score(service, 10)
        assert self.check(service) == []
        self.score(service, 64)
        assert self.check(service) == []
        self.score(service, 65)
        assert self.check(service) == ["table.healthy"]
        self.score(service, 59)
        assert self.check(service) == ["table.unhealthy"]

    def test_a_table_that_is_gone_is_not_unhealthy(self, service):
        self.score(service, 1)
        assert self.check(service) == ["table.unhealthy"]
        service.tables.remove(service.table.id)
        assert self.check(service) == []

    def test_a_budget_is_used_up_once_a_day(self, service):
        budgets = BudgetStore(service.database)
        job = self.running(service)
        for day in ("2026-01-01", "2026-01-02"):
            budgets.allow("all", "bytes", day, 100)
        reserve = {"scopes": ["all"], "day": "2026-01-01", "least_share": 0.01}
        assert budgets.reserve(job.id, job.fence, wanted={"bytes": 94}, **reserve) == 1
        assert self.check(service) == []
        assert budgets.reserve(job.id, job.fence, wanted={"bytes": 1}, **reserve) == 1
        assert self.check(service) == ["budget.used_up"]
        assert self.check(service) == []
        assert self.check(service, day="2026-01-02") == []

    def running(self, service):
        service.jobs.enqueue(request(service.table.id))
        return service.jobs.claim(claim_by())


def test_what_is_not_committed_is_not_told(service, receiver):
    service.hook(["*"], url=receiver.url)
    with service.database.engine.connect() as connection:
        service.jobs.enqueue_in(connection, request(service.table.id))
        connection.rollback()
    assert service.outbox.waiting() == 0


@only_sqlite
def test_the_documented_check_of_a_signature_works(service, receiver):
    page = (ROOT / "docs/guides/notifications.md").read_text()
    (snippet,) = re.findall(r"```python\n(import hashlib.*?)```", page, re.DOTALL)
    namespace = {}
    exec(snippet, namespace)
    service.hook(url=receiver.url, secret="env:HOOK_SECRET")
    service.fail_a_job()
    service.deliver()
    _, headers, body = receiver.got[0]
    is_genuine = namespace["is_genuine"]
    assert is_genuine(SECRET, headers, body)
    assert not is_genuine("another", headers, body)
    assert not is_genuine(SECRET, headers, body + b" ")
    old = {**headers, "X-Lakehand-Timestamp": str(int(time.time()) - 3600)}
    assert not is_genuine(SECRET, old, body)


def test_a_receiver_that_is_down_is_tried_ever_more_rarely_and_gets_everything(
    service, receiver, clock
):
    service.hook(url=receiver.url)
    service.fail_a_job()
    receiver.answers = [503, 503, 503]
    assert service.deliver() == (0, 1, 0)  # The other two are not even tried.
    assert service.deliver() == (0, 0, 0)
    clock.advance(7.6)
    assert service.deliver()[0] == 0
    clock.advance(3600)
    service.deliver()
    for _ in range(3):
        clock.advance(3600)
        service.deliver()
    assert service.outbox.waiting() == 0
    assert set(receiver.kinds) == {"job.queued", "job.started", "job.failed"}


def test_a_delivery_that_is_refused_does_not_hold_up_the_others(service, receiver):
    service.hook(url=receiver.url)
    service.fail_a_job()
    receiver.answers = [400]
    assert service.deliver() == (2, 1, 0)
    assert service.outbox.waiting() == 1


def test_after_a_day_a_delivery_is_dropped_with_an_event(service, clock):
    service.hook(["job.failed", "hook.dropped"], url="http://127.0.0.1:1/x")
    service.fail_a_job()
    for _ in range(60):
        service.deliver()
        clock.advance(1800)
    dropped = [event for event in service.events.since(0) if event["kind"] == "hook.dropped"]
    (event,) = dropped  # That this one was not told either is not told.
    assert event["details"]["event_kind"] == "job.failed"
    assert event["details"]["attempts"] > 10
    assert service.outbox.waiting() <= 1


def test_a_process_that_dies_while_it_delivers_loses_nothing(service, receiver, clock):
    service.hook(["job.failed"], url=receiver.url)
    service.fail_a_job()
    (taken,) = service.outbox.take_due(limit=10, hold_seconds=60)
    assert service.deliver() == (0, 0, 0)
    clock.advance(61)
    assert service.deliver() == (1, 0, 0)
    assert json.loads(receiver.got[0][2])["id"] == taken.event_id


@only_sqlite
def test_the_store_can_be_written_to_while_a_hook_is_slow(service, receiver):
    """SQLite has one writer: a transaction around the delivery would keep it out."""

    def write(_handler):
        service.jobs.enqueue(request(service.table.id, "vacuum"))
        return 200

    service.hook(["job.failed"], url=receiver.url)
    service.fail_a_job()
    receiver.answers = [write]
    assert service.deliver() == (1, 0, 0)
    assert [job.verb for job in service.jobs.listed(states=["queued"])] == ["vacuum"]


@only_sqlite
def test_redirects_are_not_followed(service, receiver):
    service.hook(["job.failed"], url=receiver.url)
    service.fail_a_job()
    receiver.answers = [302]
    assert service.deliver() == (0, 1, 0)
    assert len(receiver.got) == 1


@only_sqlite
def test_a_receiver_that_answers_byte_by_byte_is_not_waited_for(service, receiver):
    def drip(handler):
        try:
            for _ in range(100):
                handler.wfile.write(b"H")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass
        return 200

    service.hook(["job.failed"], url=receiver.url, timeout="300ms")
    service.fail_a_job()
    receiver.answers = [drip]
    started = time.monotonic()
    assert service.deliver() == (0, 1, 0)
    assert time.monotonic() - started < 4


@only_sqlite
class TestCommands:
    def test_a_command_reads_the_event_from_its_input(self, service, tmp_path):
        out = tmp_path / "out"
        service.hook(["job.failed"], command=["tee", str(out)])
        service.fail_a_job()
        assert service.deliver() == (1, 0, 0)
        assert json.loads(out.read_text())["kind"] == "job.failed"

    def test_no_shell_reads_the_command(self, service, tmp_path):
        service.hook(["job.failed"], command=["true", ";", "touch", str(tmp_path / "bad")])
        service.fail_a_job()
        assert service.deliver() == (1, 0, 0)
        assert not (tmp_path / "bad").exists()

    @pytest.mark.parametrize("command", [["false"], ["/no/such/program"]])
    def test_a_command_that_fails_is_tried_again(self, service, command):
        service.hook(["job.failed"], command=command)
        service.fail_a_job()
        assert service.deliver() == (0, 1, 0)
        assert service.outbox.waiting() == 1

    def test_nothing_is_left_of_a_command_that_takes_too_long(self, service, tmp_path):
        pids = tmp_path / "pids"
        script = f"sleep 60 & echo $! > {pids}; wait"
        service.hook(["job.failed"], command=["sh", "-c", script], timeout="500ms")
        service.fail_a_job()
        started = time.monotonic()
        assert service.deliver() == (0, 1, 0)
        assert time.monotonic() - started < 10
        assert is_gone(int(pids.read_text()))

    def test_nothing_is_left_of_a_command_that_ends_before_its_children(self, service, tmp_path):
        pids = tmp_path / "pids"
        service.hook(["job.failed"], command=["sh", "-c", f"sleep 60 & echo $! > {pids}"])
        service.fail_a_job()
        assert service.deliver() == (1, 0, 0)
        assert is_gone(int(pids.read_text()))


def is_gone(pid):
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_hook_that_is_taken_out_of_the_configuration_is_forgotten(service, receiver):
    service.hook(url=receiver.url)
    service.fail_a_job()
    service.hook(["worker.lost"], command=["true"])
    assert service.outbox.waiting() == 0
    service.fail_a_job()
    assert service.outbox.waiting() == 0


def test_secrets_are_in_no_row_no_log_and_no_event(service, receiver, caplog, monkeypatch, clock):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HOOK_URL", receiver.url)
    for url in (receiver.url, "env:HOOK_URL"):
        service.hook(["*"], url=url, secret="env:HOOK_SECRET")
        receiver.answers = [500]
        service.fail_a_job()
        service.deliver()
    clock.advance(25 * 3600)
    receiver.answers = [500] * 100
    for _ in range(5):
        service.deliver()
        clock.advance(7200)
    assert len(receiver.got) > 3
    with service.database.transaction() as connection:
        rows = [str(connection.execute(select(table)).all()) for table in METADATA.sorted_tables]
    kept = "\n".join([*rows, caplog.text])
    database = service.database.engine.url.database
    if service.database.is_sqlite:
        kept += "".join(
            file.read_bytes().decode("latin-1")
            for file in Path(database).parent.glob(f"{Path(database).name}*")
        )
    assert "hook.dropped" in kept
    assert SECRET not in kept
    assert SECRET_PATH not in kept


def test_every_event_of_the_service_may_be_named_by_a_hook():
    source = "".join(file.read_text() for file in (ROOT / "src/lakehand/service").rglob("*.py"))
    recorded = re.findall(r'record_event\([^"]*?f?"([a-z]+\.[a-z_{}]+)"', source) + re.findall(
        r'_change\([^"]*"([a-z]+\.[a-z_]+)"', source
    )
    fixed = {kind for kind in recorded if "{" not in kind}
    assert len(fixed) > 10
    assert fixed <= set(EVENT_KINDS)
