"""Metrics are read from the store: exact after crashes, the same in every process."""

from __future__ import annotations

import contextlib
import http.client
import math
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import func, insert, select, update

from lakehand._version import __version__
from lakehand.errors import LeaseLostError
from lakehand.service.config import parse_config
from lakehand.service.job_specs import table_policy
from lakehand.service.notifications import Notification, Notifications
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database_schema import METRIC_INCREMENTS, TABLES
from lakehand.service.store.events import EventLog
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.service_metrics import FAMILIES, Increment, MetricTotals
from lakehand.service.store.service_state import ServiceState
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import Leadership, Worker, WorkerRegistry
from lakehand.web.metrics import ServiceMetrics
from lakehand.web.server import WebServer
from support.job_stores import add_pool, add_tables, claim_by, request

TOKEN = "a-token-that-no-answer-may-show"
#: As `maintain` reports: four files of 400 bytes have become one of 350.
REWRITE = {
    "operation": "compact",
    "outcome": "committed",
    "files_removed": 4,
    "files_added": 1,
    "bytes_removed": 400,
    "bytes_added": 350,
    "duration_ms": 2000.0,
    "retries": 2,
    "groups": {"dropped": 1},
    "proof": {"rows": 70},
}
MAINTAINED = {
    "operation": "maintain",
    "outcome": "committed",
    "steps": [
        {"step": "compact", "outcome": "committed", "report": REWRITE},
        {
            "step": "vacuum",
            "outcome": "committed",
            "report": {"operation": "vacuum", "files_deleted": 3, "bytes_freed": 30},
        },
        {"step": "checkpoint", "outcome": "nothing_to_do", "report": None},
    ],
}


class Service:
    """A store with three tables, and the metrics of its service."""

    def __init__(self, database, config=None):
        add_pool(database)
        self.database = database
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.workers = WorkerRegistry(database)
        self.ids = add_tables(database, 3)
        self.config = parse_config(config or {})
        self.metrics = ServiceMetrics(database, lambda: self.config, fresh_seconds=0)

    def value(self, metric, **labels):
        found = [
            one.value for one in self.metrics.read().get(metric, ()) if dict(one.labels) == labels
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def series(self, metric):
        return {
            tuple(one.labels.values()): one.value
            for one in self.metrics.read().get(metric, ())
            if one.value
        }

    def work(self, verb="maintain", **end):
        self.jobs.enqueue(request(self.ids[0], verb))
        job = self.jobs.claim(claim_by())
        end = {"outcome": "committed", "report": MAINTAINED, **end}
        state = "failed" if "error" in end else "succeeded"
        self.jobs.finish(job.id, job.fence, AttemptEnd(**end), state=state)
        return job

    def start_worker(self, slots=3, **values):
        worker = Worker(
            id="w", host="h", pid=1, version="1", engines=["local"], slots=slots, memory_bytes=1
        )
        self.workers.start(worker)


@pytest.fixture
def service(database):
    return Service(database)


def test_the_end_of_a_job_counts_what_it_did(service, clock):
    service.work(spent={"core_seconds": 1.5})
    service.work(spent={"core_seconds": 2.0})
    assert service.value("files_removed", verb="compact") == 8
    assert service.value("files_added", verb="compact") == 2
    assert service.value("bytes_rewritten", verb="compact") == 800
    assert service.value("bytes_written", verb="compact") == 700
    assert service.value("rows_proved", verb="compact") == 140
    assert service.value("commit_conflicts", verb="compact") == 4
    assert service.value("groups_lost", verb="compact") == 2
    assert service.value("bytes_freed", verb="vacuum") == 60
    assert service.value("core_seconds", verb="maintain", engine="local") == 3.5
    assert service.value("operations", verb="checkpoint", outcome="nothing_to_do") == 2
    labels = {"verb": "maintain", "outcome": "committed"}
    assert service.value("jobs_ended", **labels, error_code="") == 2
    assert service.value("job_attempts", **labels) == 2


def test_a_failure_is_counted_with_its_code(service):
    error = {"code": "PROOF_FAILED", "message": "rows differ"}
    service.work("compact", outcome="failed", error=error, report=None)
    labels = {"verb": "compact", "outcome": "failed"}
    assert service.value("jobs_ended", **labels, error_code="PROOF_FAILED") == 1
    assert service.value("proof_failures", verb="compact") == 1


def test_an_end_that_is_not_taken_is_not_counted(service, clock):
    service.jobs.enqueue(request(service.ids[0]))
    job = service.jobs.claim(claim_by(lease_seconds=10))
    clock.advance(11)
    assert len(service.jobs.free_dead()) == 1
    with pytest.raises(LeaseLostError):
        service.jobs.finish(job.id, job.fence, AttemptEnd(outcome="committed"), state="succeeded")
    assert service.value("leases_lost") == 1
    assert service.series("job_attempts") == {("lease_lost", "compact"): 1}
    assert service.series("jobs_ended") == {}


def test_cancelled_and_lost_tables_end_their_jobs(service):
    for table in service.ids:
        service.jobs.enqueue(request(table))
    service.jobs.cancel(1)
    service.jobs.cancel_queued(service.ids[1], outcome="disabled")
    service.tables.remove(service.ids[2])
    ended = service.series("jobs_ended")
    assert ended == {
        ("", outcome, "compact"): 1 for outcome in ("cancelled", "disabled", "table_gone")
    }


def test_waiting_and_running_are_timed(service, clock):
    service.jobs.enqueue(request(service.ids[0], delay=100))
    clock.advance(107)
    job = service.jobs.claim(claim_by(lease_seconds=1000))
    clock.advance(20)
    service.jobs.finish(job.id, job.fence, AttemptEnd(outcome="committed"), state="succeeded")
    assert service.value("job_wait_seconds_sum", verb="compact") == pytest.approx(7)
    assert service.value("job_wait_seconds_bucket", verb="compact", le="15") == 1
    labels = {"verb": "compact", "engine": "local", "outcome": "committed"}
    assert service.value("job_duration_seconds_sum", **labels) == pytest.approx(20)
    assert service.value("job_duration_seconds_bucket", **labels, le="60") == 1


def test_counters_survive_merging_and_the_end_of_history(service, clock):
    for _ in range(60):
        service.work()
    before = {name: service.series(name) for name in service.metrics.read()}
    count = select(func.count()).select_from(METRIC_INCREMENTS)
    with service.database.reading() as connection:
        rows = connection.execute(count).scalar_one()
    totals = MetricTotals(service.database)
    assert totals.merge() > 400
    with service.database.reading() as connection:
        assert connection.execute(count).scalar_one() < rows / 10
    clock.advance(10)
    assert EventLog(service.database).prune(service.database.time()) > 0
    after = {name: service.series(name) for name in service.metrics.read()}
    assert {**after, "assessment_lag_seconds": 0} == {**before, "assessment_lag_seconds": 0}
    assert totals.merge() == 0


def test_counters_are_exact_while_they_are_merged(service):
    totals = MetricTotals(service.database)
    done = threading.Event()
    seen = [], []

    def merge(values):
        while not done.is_set():
            totals.merge()
            values.append(service.value("notifications", effect="noted") or 0)

    threads = [threading.Thread(target=merge, args=(values,)) for values in seen]
    for thread in threads:
        thread.start()
    for _ in range(40):
        totals.add(*[Increment("notifications", {"effect": "noted"})] * 40)
    done.set()
    for thread in threads:
        thread.join()
    assert service.value("notifications", effect="noted") == 1600
    assert all(values == sorted(values) for values in seen)


def test_queued_jobs_are_counted_by_what_they_wait_for(service, clock):
    jobs, first, second = service.jobs, service.ids[0], service.ids[1]
    service.start_worker()
    running = jobs.enqueue(request(first)).job_id
    assert jobs.claim(claim_by("w", lease_seconds=1000)).id == running
    jobs.enqueue(request(first, "cluster"))
    jobs.enqueue(request(first, "vacuum", delay=60, runs_until=clock.now().timestamp() + 99))
    jobs.enqueue(request(second, "compact", engine="spark"))
    jobs.enqueue(request(second, "vacuum"))
    paused = jobs.enqueue(request(second, "cluster")).job_id
    jobs.pause(paused, by="me")
    waiting = service.series("jobs_waiting")
    assert waiting == {
        ("table_busy",): 1,
        ("window",): 1,
        ("no_worker",): 1,
        ("turn",): 1,
        ("paused",): 1,
    }
    assert service.value("jobs", state="running", verb="compact", pool="default") == 1
    clock.advance(30)
    assert service.value("oldest_queued_seconds") == pytest.approx(30)
    assert service.series("worker_slots") == {("busy",): 1, ("free",): 2}
    ServiceState(service.database).pause(by="me")
    assert service.series("jobs_waiting") == {("paused",): 5}
    assert service.value("service_paused") == 1


def test_a_full_pool_and_a_retry_are_waited_for(service):
    service.start_worker()
    with service.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE pools SET max_running = 1")
    for table in service.ids:
        service.jobs.enqueue(request(table))
    job = service.jobs.claim(claim_by())
    assert service.series("jobs_waiting") == {("pool_full",): 2}
    failed = AttemptEnd(outcome="failed", error={"code": "CONFLICT"})
    service.jobs.requeue(job.id, job.fence, failed, waits_for="retry", delay=60)
    assert service.series("jobs_waiting") == {("turn",): 2, ("retry",): 1}
    assert service.value("commit_conflicts", verb="compact") == 1


def test_tables_are_counted_by_state(service, clock):
    first, second, third = service.ids
    service.tables.failed_to_look(first, {"code": "NOT_A_TABLE"}, look_every=60)
    digest = table_policy(service.config, service.tables.get(second)).digest
    error = {"code": "PROOF_FAILED"}
    service.tables.hold(second, "compact", error, job_id=1, lakehand=__version__, policy=digest)
    service.tables.pause(third, by="me")
    assert service.series("tables") == {
        ("test", "unreadable"): 1,
        ("test", "held"): 1,
        ("test", "paused"): 1,
    }
    assert service.value("tables_held") == 1
    clock.advance(90)
    assert service.value("assessment_lag_seconds") == pytest.approx(90)
    with service.database.transaction() as connection:
        connection.execute(update(TABLES).values(version=7))
    assert service.value("tables_held") == 0  # A new version lifts the hold.


@pytest.mark.parametrize(("per_table", "shown"), [("none", 0), ("unhealthy", 1), ("all", 3)])
def test_single_tables_have_metrics_as_configured(database, per_table, shown):
    service = Service(database, {"metrics": {"per_table": per_table, "unhealthy_below": 50}})
    numbers = {"file_count": 9, "small_file_count": 8, "total_bytes": 7}
    for table, score in zip(service.ids, (49, 50, None), strict=True):
        service.tables.measured(table, 1, {**numbers, "health_score": score})
    assert service.value("tables_unhealthy") == 1
    assert len(service.series("table_files")) == shown
    if shown:
        url = service.tables.get(service.ids[0]).url
        assert service.value("table_health_score", table=url) == 49
        assert service.value("table_bytes", table=url) == 7


def test_the_state_of_the_service_is_told(service, clock):
    assert service.value("scheduler_is_leader") == 0
    assert service.value("workers", state="running") == 0
    Leadership(service.database, "scheduler", "me").hold(60)
    service.start_worker()
    day = clock.now().date().isoformat()
    BudgetStore(service.database).allow("service", "bytes", day, 100)
    assert service.value("scheduler_is_leader") == 1
    assert service.value("workers", state="running") == 1
    assert service.value("budget_allowed", scope="service", unit="bytes") == 100
    assert service.value("build_info", version=__version__) == 1
    clock.advance(1000)
    assert service.value("workers", state="running") == 0  # It was silent for three leases.
    assert service.value("scheduler_is_leader") == 0


def test_notifications_are_counted(service):
    notes = Notifications(
        service.config, service.database, jobs=service.jobs, tables=service.tables
    )
    assert notes.receive(Notification(url="file:///t0", version=3)) == "queued"
    assert service.series("notifications") == {("queued",): 1}


@pytest.fixture
def server(service, monkeypatch):
    monkeypatch.setenv("WEB_TOKEN", TOKEN)
    config = parse_config({"web": {"token": "env:WEB_TOKEN"}})
    opened = WebServer(config, service.database, jobs=service.jobs, tables=service.tables)
    opened.start("127.0.0.1:0")
    yield opened
    assert opened.stop()


def scrape(server, **headers):
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def test_prometheus_reads_them_over_http(service, server):
    service.work()
    status, headers, text = scrape(server, Authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert families.keys() == {f"lakehand_{family.name}" for family in FAMILIES}
    samples = [one for family in families.values() for one in family.samples]
    assert all(math.isfinite(one.value) for one in samples)
    removed = next(one for one in samples if one.name == "lakehand_files_removed_total")
    assert (removed.labels, removed.value) == ({"verb": "compact"}, 4)
    waits = [one for one in families["lakehand_job_wait_seconds"].samples if "le" in one.labels]
    assert [one.value for one in waits] == [1.0] * len(waits)
    assert TOKEN not in text


def test_metrics_need_the_token(server):
    assert scrape(server)[0] == 401


def test_every_stored_counter_has_a_family(service):
    service.work(outcome="failed", error={"code": "CONFLICT"})
    service.jobs.enqueue(request(service.ids[0]))
    names = {family.name for family in FAMILIES}
    for metric in service.metrics.read():
        assert metric.removesuffix("_bucket").removesuffix("_sum") in names


def test_every_one_of_many_tables_is_read(database):
    service = Service(database, {"metrics": {"per_table": "all"}})
    now = database.time()
    values = {"source": "test", "found_at": now, "seen_at": now, "look_at": now}
    rows = [{"url": f"file:///n{n}", **values} for n in range(10_000)]
    with database.transaction() as connection:
        connection.execute(insert(TABLES), rows)
    service.tables.add(FoundTable(url="s3://lake/new"))
    assert len(service.metrics.read()["table_commits_since_maintenance"]) == 10_004
