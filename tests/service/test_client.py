"""The client of the service: the words of the commands, on both kinds of store."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import deltalake
import pyarrow as pa
import pytest
from sqlalchemy import update

import lakehand
from lakehand.errors import (
    ConfigError,
    JobNotFoundError,
    JobStateError,
    JobStoreError,
    NotATableError,
    ValidationError,
)
from lakehand.service.config import parse_config
from lakehand.service.job_specs import table_policy
from lakehand.service.job_states import LANE_OF
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import POOLS
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from support.job_stores import claim_by

WORKER = Worker(
    id="w1", host="h", pid=1, version="0", engines=["local"], slots=2, memory_bytes=2**62
)


def write(path, *, files=2):
    for number in range(files):
        deltalake.write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    return str(path)


@pytest.fixture
def lake(tmp_path):
    for name in ("sales/orders", "sales/users", "web/clicks"):
        write(tmp_path / "lake" / name)
    return tmp_path / "lake"


@pytest.fixture
def client(store_url, lake):
    document = {
        "service": {"store": store_url},
        "source": [{"name": "lake", "include": [str(lake)]}],
        "policy": {"sales": {"match": [f"{lake}/sales/**"], "min_files": 7}},
    }
    with lakehand.ServiceClient(parse_config(document), create=True, by="ann") as opened:
        yield opened


@pytest.fixture
def queue(store_url):
    database = open_database(store_url)
    WorkerRegistry(database).start(WORKER)
    yield JobQueue(database)
    database.close()


def end(queue, *, state="succeeded", **values):
    job = queue.claim(claim_by("w1"))
    queue.finish(job.id, job.fence, AttemptEnd(outcome="committed", **values), state=state)
    return job.id


def test_tables_are_discovered_shown_and_found_by_any_name(client, lake):
    (found,) = client.tables.discover()
    assert (found.found, found.new, found.gone, found.errors) == (3, 3, 0, ())
    orders = client.tables.show("orders")
    assert (orders.state, orders.policy, orders.table.format) == ("ok", "sales", "delta")
    for name in (orders.table.url, str(lake / "sales/orders"), str(orders.table.id)):
        assert client.tables.show(name) == orders
    assert [entry.table.name for entry in client.tables.list()] == ["orders", "users", "clicks"]
    assert orders.to_json()["found_at"].endswith("+00:00")


def test_an_unknown_table_is_an_error_with_the_nearest_name(client):
    client.tables.discover()
    with pytest.raises(JobNotFoundError) as raised:
        client.tables.show("ordes")
    assert "did you mean orders?" in raised.value.hint


def test_a_name_of_two_tables_is_refused(client, tmp_path):
    client.tables.discover()
    client.tables.add(write(tmp_path / "other" / "orders"))
    with pytest.raises(JobNotFoundError, match="2 tables are named 'orders'"):
        client.tables.remove("orders")


def test_only_a_table_can_be_added(client, tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NotATableError):
        client.tables.add(str(tmp_path / "nothing"))
    entry, is_new = client.tables.add(write(tmp_path / "t"), name="mine")
    assert (entry.table.name, entry.table.source, is_new) == ("mine", "manual", True)


def test_a_removed_table_keeps_its_data_and_is_not_brought_back(client, lake):
    client.tables.discover()
    removed = client.tables.remove("orders")
    assert removed.state == "gone"
    assert client.tables.discover()[0].new == 0
    assert [entry.table.name for entry in client.tables.list()] == ["users", "clicks"]
    assert lakehand.open_table(lake / "sales/orders").to_arrow().num_rows == 2
    entry, _ = client.tables.add(str(lake / "sales/orders"))
    assert (entry.state, entry.table.source) == ("ok", "manual")


def test_a_paused_table_starts_no_job_until_it_is_resumed(client, queue):
    client.tables.discover()
    paused = client.tables.pause("orders", duration=timedelta(hours=1), why="loading")
    assert (paused.state, paused.table.paused_by) == ("paused", "ann")
    job = client.jobs.submit("orders")
    assert job.waits_for == "paused"
    assert queue.claim(claim_by("w1")) is None
    assert client.tables.resume("orders").state == "ok"
    assert client.jobs.show(job.job.id).waits_for == "turn"
    assert queue.claim(claim_by("w1")).id == job.job.id


def test_settings_of_a_table_are_checked_merged_and_removed(client):
    client.tables.discover()
    client.tables.set("orders", target_file_bytes="64MiB")
    entry = client.tables.set("orders", **{"min-files": 3})
    assert entry.table.overrides == {"target_file_bytes": "64MiB", "min_files": 3}
    with pytest.raises(ValidationError):
        client.tables.set("orders", min_files="nonsense")
    assert client.tables.reset("orders", "min-files").table.overrides == {
        "target_file_bytes": "64MiB"
    }
    assert client.tables.reset("orders").table.overrides == {}


def test_a_policy_says_where_each_setting_came_from(client, lake):
    table = deltalake.DeltaTable(str(lake / "sales/orders"))
    table.alter.set_table_properties({"delta.targetFileSize": "32mb"})
    client.tables.discover()
    client.tables.set("orders", quiet_period="5m")
    found = client.policies.show("orders")
    origins = {one.name: (one.value, one.source) for one in found.settings}
    assert origins["min_files"] == (7, "policy sales")
    assert origins["quiet_period"] == (timedelta(minutes=5), "table")
    assert origins["target_file_bytes"][1] == "table property delta.targetFileSize"
    assert origins["grace"][1] == "default"
    assert client.policies.check().tables == {"sales": 2, "default": 1}


def test_jobs_are_submitted_once_watched_and_retried(client, queue):
    client.tables.discover()
    entry = client.jobs.submit("orders", "compact", min_files=2)
    assert client.jobs.submit("orders", "compact").job.id == entry.job.id
    assert (entry.job.state, entry.job.table_name, entry.waits_for) == ("queued", "orders", "turn")
    watched = client.jobs.watch(entry.job.id, sleep=lambda _: end(queue))
    assert [seen.job.state for seen in watched] == ["queued", "succeeded"]
    with pytest.raises(JobStateError) as raised:
        client.jobs.cancel(entry.job.id)
    assert "jobs retry" in raised.value.hint
    again = client.jobs.retry(entry.job.id)
    assert (again.job.state, again.job.trigger, again.job.asked_by) == ("queued", "retry", "ann")
    assert client.jobs.cancel(again.job.id).job.state == "cancelled"
    assert [one["kind"] for one in client.jobs.events(entry.job.id)][:2] == [
        "job.queued",
        "job.started",
    ]


def test_an_urgent_job_goes_first_and_a_paused_one_waits(client, queue):
    client.tables.discover()
    first = client.jobs.submit("orders")
    urgent = client.jobs.submit("users", urgent=True)
    assert client.jobs.pause(first.job.id).waits_for == "paused"
    assert queue.claim(claim_by("w1")).id == urgent.job.id
    assert queue.claim(claim_by("w1")) is None
    client.jobs.resume(first.job.id)
    assert queue.claim(claim_by("w1")).id == first.job.id


@pytest.mark.parametrize(
    ("verb", "options", "message"),
    [
        ("fly", {}, "cannot run 'fly'"),
        ("compact", {"nonsense": 1}, "compact has no option 'nonsense'"),
        ("compact", {"min_files": "x"}, "min_files cannot be set"),
    ],
)
def test_a_job_that_could_not_run_is_not_queued(client, verb, options, message):
    client.tables.discover()
    with pytest.raises(ValidationError, match=message):
        client.jobs.submit("orders", verb, **options)
    assert client.jobs.list() == []


def test_every_verb_of_a_job_can_be_submitted(client):
    client.tables.discover()
    for verb in LANE_OF:
        client.jobs.submit("clicks", verb.replace("_", "-"))
    assert {entry.job.verb for entry in client.jobs.list()} == set(LANE_OF)


def test_a_paused_service_starts_nothing_and_says_so(client, queue):
    client.tables.discover()
    job = client.jobs.submit("orders")
    client.service.pause(why="migration")
    status = client.service.status()
    assert (status.pause.paused_by, status.pause.paused_why) == ("ann", "migration")
    assert status.to_json()["pause"]["paused_until"] is None
    assert client.jobs.show(job.job.id).waits_for == "paused"
    assert queue.claim(claim_by("w1")) is None
    assert (client.service.resume(), client.service.resume()) == (True, False)
    assert queue.claim(claim_by("w1")).id == job.job.id
    status = client.service.status()
    assert (status.jobs["running"], status.tables["total"], status.slots) == (1, 3, 2)


def test_a_held_verb_is_shown_until_it_is_resumed(client, queue):
    client.tables.discover()
    orders = client.tables.show("orders")
    digest = table_policy(client.config, orders.table).digest
    error = {"code": "CORRUPT_LOG", "message": "cannot be read"}
    client._stores.tables.hold(
        orders.table.id, "compact", error, job_id=1, lakehand=lakehand.__version__, policy=digest
    )
    held = client.tables.show("orders")
    assert (held.state, held.held) == ("held", {"compact": error})
    assert client.service.status().tables["held"] == 1
    client.tables.set("orders", min_files=3)  # another policy lifts the hold
    assert (client.tables.show("orders").state, client.service.status().tables["held"]) == ("ok", 0)
    client.tables.reset("orders")
    assert client.tables.resume("orders").state == "ok"


def test_workers_are_asked_to_end(client, queue, store_url):
    assert [worker.id for worker in client.workers.list()] == ["w1"]
    assert [worker.id for worker in client.service.drain()] == ["w1"]
    assert client.workers.list()[0].wish == "drain"
    client.workers.stop("w1")
    assert client.workers.list()[0].wish == "stop"
    with pytest.raises(JobNotFoundError):
        client.workers.drain("nobody")


def test_a_job_without_a_worker_says_so(client):
    client.tables.discover()
    assert client.jobs.submit("orders").waits_for == "no_worker"


def test_budgets_of_a_day(client):
    client._stores.budgets.allow("service", "bytes", "2026-01-31", 10.0)
    (budget,) = client.budgets("2026-01-31")
    assert budget.to_json()["left"] == 10.0
    assert client.budgets() == []


def test_a_store_that_does_not_exist_is_not_created_by_reading(tmp_path):
    file = tmp_path / "jobs.db"
    with pytest.raises(JobStoreError, match="there is no job store"):
        lakehand.ServiceClient(store=f"sqlite:///{file}")
    assert not file.exists()


def test_the_configuration_is_found_by_the_variable_and_in_the_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHAND_CONFIG", raising=False)
    with pytest.raises(ConfigError, match=r"no lakehand\.toml in this directory"):
        lakehand.ServiceClient()
    text = '[service]\nstore = "sqlite:///{}"\n'
    (tmp_path / "lakehand.toml").write_text(text.format(tmp_path / "a.db"))
    (tmp_path / "other.toml").write_text(text.format(tmp_path / "b.db"))
    with lakehand.ServiceClient(create=True) as here:
        assert here.service.status().store.endswith("a.db")
    monkeypatch.setenv("LAKEHAND_CONFIG", str(tmp_path / "other.toml"))
    with lakehand.ServiceClient(create=True) as named:
        assert named.service.status().store.endswith("b.db")


def test_without_sqlalchemy_the_client_says_what_to_install():
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import lakehand\n"
        "try:\n    lakehand.ServiceClient(store='sqlite://', create=True)\n"
        "except lakehand.LakehandError as error:\n    print(error.code, error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == 'NOT_INSTALLED pip install "lakehand[service]"'


def test_a_queued_job_says_what_it_waits_for(client, queue):
    client.tables.discover()
    client.jobs.submit("orders", "compact")
    running = queue.claim(claim_by("w1"))
    same_lane = client.jobs.submit("orders", "cluster")
    other_lane = client.jobs.submit("orders", "checkpoint")
    assert (same_lane.waits_for, other_lane.waits_for) == ("table_busy", "turn")
    with client._stores.database.transaction() as connection:
        connection.execute(update(POOLS).values(max_running=1))
    assert client.jobs.show(other_lane.job.id).waits_for == "pool_full"
    end = AttemptEnd(outcome="failed", error={"code": "CONFLICT", "message": "lost"})
    queue.requeue(running.id, running.fence, end, waits_for="retry", delay=600)
    assert client.jobs.show(running.id).waits_for == "retry"
    assert client.jobs.show(other_lane.job.id).waits_for == "turn"
