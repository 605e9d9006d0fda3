"""SQL with a service: statements become jobs, system tables show the job store."""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
from contextlib import suppress

import deltalake
import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.errors import (
    CancelledError,
    CommitConflictError,
    JobNotFoundError,
    JobStoreError,
    SqlError,
    ValidationError,
)
from lakehand.service.config import parse_config
from lakehand.service.store.database import open_database
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.system_tables import COMPACTION_STATUS, STORED_TABLES
from lakehand.service.store.table_registry import TableRegistry
from lakehand.sql.sql_session import SqlSession
from lakehand.sql.system_queries import QueryLimits
from lakehand.sql.system_rows import STORED
from lakehand.web.server import WebServer
from support.job_stores import claim_by
from support.postgresql import find_programs
from support.serving import Lake


@pytest.fixture
def client(store_url, tmp_path):
    path = tmp_path / "orders"
    for number in range(2):
        deltalake.write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    document = {"service": {"store": store_url}, "policy": {"sales": {"match": ["orders"]}}}
    with lakehand.ServiceClient(parse_config(document), create=True, by="ann") as opened:
        opened.tables.add(str(path))
        yield opened


@pytest.fixture
def queue(client):
    database = open_database(client.config.service.store)
    yield JobQueue(database)
    database.close()


def sql(client, statement, *parameters):
    return lakehand.run_sql(statement, *parameters, service=client)


def end_next(queue, state="succeeded", **values):
    """Take the next job as a worker would, as soon as there is one, and end it."""
    waiting = threading.Event()
    while (job := queue.claim(claim_by("w1"))) is None:
        waiting.wait(0.05)
    queue.finish(job.id, job.fence, AttemptEnd(outcome="committed", **values), state=state)
    return job


def run_while(queue, **values):
    worker = threading.Thread(target=end_next, args=(queue,), kwargs=values)
    worker.start()
    return worker


def test_a_statement_waits_for_its_job_and_returns_the_report(client, queue):
    worker = run_while(queue, report={"outcome": "committed", "files_removed": 2})
    result = sql(client, "OPTIMIZE orders WHERE id > ?", [0]).to_json()
    worker.join()
    assert result["report"] == {"outcome": "committed", "files_removed": 2}
    assert (result["job"]["verb"], result["job"]["state"]) == ("compact", "succeeded")
    assert result["job"]["options"] == {"where": "id > (0)", "min_files": 2, "automatic": False}


def test_async_returns_the_job_and_other_options_are_another_job(client, queue):
    one = sql(client, "COMPACT TABLE orders ASYNC")
    assert (one.report, one.job["state"], one.job["asked_by"]) == (None, "queued", "ann")
    same = sql(client, "COMPACT TABLE orders ASYNC")
    other = sql(client, "COMPACT TABLE orders WHERE id = 1 ASYNC")
    assert same.job["id"] == one.job["id"] != other.job["id"]
    assert other.job["options"]["where"] == "id = 1"


def test_a_statement_waits_for_a_job_that_no_worker_takes_as_long_as_it_is_told(client, queue):
    result = SqlSession(client=client, wait_seconds=0.1).run("VACUUM orders")
    assert (result.report, result.job["state"]) == (None, "queued")


def test_errors_of_a_job_are_raised_as_they_were(client, queue):
    error = CommitConflictError("another writer was faster").to_json()
    worker = run_while(queue, state="failed", error=error)
    with pytest.raises(CommitConflictError, match="another writer was faster"):
        sql(client, "VACUUM orders")
    worker.join()
    job = sql(client, "VACUUM orders ASYNC").job["id"]
    assert sql(client, f"CANCEL JOB {job}").job["state"] == "cancelled"
    session = SqlSession(client=client)
    with pytest.raises(CancelledError):
        session._wait(client, client.jobs.show(job))
    retried = sql(client, f"RETRY JOB {job}")
    assert retried.job["state"] == "queued"


def test_a_table_of_the_service_is_paused_and_gets_settings(client):
    statement = "ALTER TABLE orders SET (auto_compact = false, compaction.min-files = 7)"
    report = sql(client, statement).to_json()["report"]
    assert report["overrides"] == {"auto_compact": False, "min_files": 7}
    report = sql(client, "ALTER TABLE orders RESET (auto_compact)").report
    assert report["overrides"] == {"min_files": 7}
    assert sql(client, "ALTER TABLE orders PAUSE UNTIL '2999-01-01'").report["state"] == "paused"
    assert sql(client, "ALTER TABLE orders RESUME").report["state"] == "ok"
    for wrong in ("PAUSE UNTIL '2001-01-01'", "PAUSE UNTIL 'soon'", "SET (min_files = true)"):
        with pytest.raises(ValidationError):
            sql(client, f"ALTER TABLE orders {wrong}")


def test_system_tables_show_the_store(client, queue):
    sql(client, "COMPACT TABLE orders ASYNC")
    end_next(queue, report={"outcome": "committed"})
    sql(client, "CHECKPOINT TABLE orders ASYNC")
    query = (
        "SELECT j.table, compaction_status, c.ended_at >= c.queued_at AS is_later"
        " FROM system.compaction_jobs c JOIN system.jobs j ON j.id = c.id WHERE table = 'orders'"
    )
    assert sql(client, query.replace("WHERE table", "WHERE c.table")).to_pylist() == [
        {"table": "orders", "compaction_status": "completed", "is_later": True}
    ]
    assert [row["verb"] for row in sql(client, "SHOW JOBS").to_pylist()] == [
        "checkpoint", "compact",
    ]  # fmt: skip
    shown = sql(client, "SHOW JOBS WHERE state = 'queued' LIMIT 1").to_pylist()
    assert [row["verb"] for row in shown] == ["checkpoint"]
    (table,) = sql(client, "SHOW TABLES LIKE 'ord%'").to_pylist()
    assert table["format"] == "delta"
    policies = sql(client, "SHOW POLICIES").to_pylist()
    assert {row["name"]: row["tables"] for row in policies} == {"default": 0, "sales": 1}
    files = sql(client, "SELECT count(*) AS n FROM system.files('orders')").to_pylist()
    assert files == [{"n": 2}]


def test_maintenance_of_a_registered_table_is_explained_by_the_service(client):
    found = sql(client, "EXPLAIN MAINTENANCE OF orders").to_json()["report"]
    expected = json.loads(json.dumps(client.tables.explain("orders").to_json(), default=str))
    assert found.keys() == expected.keys()
    assert found["table"]["name"] == "orders"


@pytest.mark.parametrize("name", STORED)
def test_every_system_table_answers(client, name):
    assert sql(client, f"SELECT * FROM system.{name}").to_arrow().num_columns > 4


def test_a_system_table_with_too_many_rows_is_refused_and_not_cut(client):
    for _ in range(3):
        sql(client, "CHECKPOINT TABLE orders ASYNC")
        sql(client, "VACUUM orders ASYNC")
    session = SqlSession(client=client, limits=QueryLimits(scanned_rows=1))
    with pytest.raises(JobStoreError, match="more than 1 rows"):
        session.run("SELECT count(*) FROM system.jobs")


def test_a_table_that_is_not_registered_is_refused_and_runs_locally(client, tmp_path):
    path = tmp_path / "other"
    deltalake.write_deltalake(str(path), pa.table({"id": [1]}))
    with pytest.raises(JobNotFoundError) as caught:
        sql(client, f"OPTIMIZE '{path}'")
    assert "--local" in caught.value.hint
    assert sql(client, f"DESCRIBE DETAIL '{path}'").to_pylist()[0]["numFiles"] == 1
    restricted = SqlSession(client=client, is_restricted=True)
    for statement in (
        f"DESCRIBE DETAIL '{path}'",
        f"SELECT * FROM system.files('{path}')",
        f"DESCRIBE DETAIL delta.`{path}`",
        f"EXPLAIN OPTIMIZE {path}",
        f"RESTORE {path} TO VERSION AS OF 0",
        f"ALTER TABLE {path} SET TBLPROPERTIES (a = 1)",
    ):
        with pytest.raises(JobNotFoundError):
            restricted.run(statement)
    with pytest.raises(SqlError, match="storage options"):
        sql(client, "OPTIMIZE orders WITH (storage.region = 'x')")


def test_the_status_has_a_word_for_every_state():
    from lakehand.service.job_states import STATES

    assert set(COMPACTION_STATUS) == set(STATES)
    assert {*STORED_TABLES, "policies"} == set(STORED)


def test_psql_reads_the_views(postgresql, emptied_postgresql, tmp_path, capsys):
    path = tmp_path / "orders"
    deltalake.write_deltalake(str(path), pa.table({"id": [1]}))
    with lakehand.ServiceClient(store=emptied_postgresql, create=True) as client:
        client.tables.add(str(path))
        client.jobs.submit("orders", "compact")
    for _ in range(2):  # views are replaced
        assert run(["service", "views", "--store", emptied_postgresql, "--grant", "PUBLIC"]) == 1
        assert run(["service", "views", "--store", emptied_postgresql]) == 0
    assert capsys.readouterr().out.splitlines()[-len(STORED_TABLES) :] == [
        f"lakehand_system.{name}" for name in STORED_TABLES
    ]
    query = (
        "SELECT t.name, c.\"table\", c.compaction_status, c.queued_at > now() - interval '1 hour'"
        " FROM lakehand_system.compaction_jobs c JOIN lakehand_system.tables t ON t.id = c.table_id"
    )
    assert psql(postgresql, query) == "orders|orders|pending|t"
    for name in STORED_TABLES:
        assert psql(postgresql, f"SELECT count(*) >= 0 FROM lakehand_system.{name}") == "t"
    psql(postgresql, "DROP SCHEMA lakehand_system CASCADE")


def psql(postgresql, query):
    program = find_programs() / "psql"
    url = postgresql.url().replace("postgresql+psycopg", "postgresql")
    done = subprocess.run(
        [program, "-X", "-A", "-t", "-c", query, url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_views_need_postgresql(tmp_path, capsys):
    with lakehand.ServiceClient(store=f"sqlite:///{tmp_path}/s.db", create=True):
        pass
    assert run(["service", "views", "--store", f"sqlite:///{tmp_path}/s.db"]) == 2
    capsys.readouterr()


def test_a_server_ends_while_statements_wait_for_their_jobs(tmp_path):
    path = tmp_path / "orders"
    deltalake.write_deltalake(str(path), pa.table({"id": [1]}))
    config = parse_config({"service": {"store": f"sqlite:///{tmp_path}/jobs.db"}})
    with lakehand.ServiceClient(config, create=True) as client:
        client.tables.add(str(path))
        database = open_database(config.service.store)
        jobs, tables = JobQueue(database), TableRegistry(database)
        server = WebServer(config, database, jobs=jobs, tables=tables)
        url = server.start("127.0.0.1:0")
        status, body = post(url, statement="VACUUM orders", wait_seconds=0)
        assert (status, json.loads(body)["job"]["state"]) == (202, "queued")
        waiting = threading.Thread(target=_post_quietly, args=(url, "CHECKPOINT TABLE orders"))
        waiting.start()
        pause = threading.Event()
        while len(client.jobs.list()) < 2:
            pause.wait(0.05)
        assert server.stop()
        waiting.join(30)
        assert not waiting.is_alive()
        assert {entry.job.state for entry in client.jobs.list()} == {"queued"}
        for entry in client.jobs.list():  # ends the thread that waits
            client.jobs.cancel(entry.job.id)
        database.close()


def _post_quietly(url, statement):
    with suppress(OSError, http.client.HTTPException):
        post(url, statement=statement, wait_seconds=600)


@pytest.fixture
def lake(tmp_path):
    made = Lake(tmp_path)
    made.configure("[policy.default]\nenabled = false\n")
    yield made
    made.kill_all()


def post(url, **body):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    try:
        connection.request("POST", "/api/v1/sql", json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_http_python_and_the_command_give_the_same_document(lake, capsys, monkeypatch):
    lake.create("orders", files=3)
    lake.start()
    url = lake.wait_for(lambda: _address(lake.read_log()))
    lake.wait_for(lake.tables)
    status, body = post(url, statement="OPTIMIZE orders", wait_seconds=100)
    document = json.loads(body)
    assert (status, document["report"]["outcome"]) == (200, "committed")
    assert lake.file_counts() == {"orders": 1}
    statements = [
        "DESCRIBE HISTORY orders",
        "DESCRIBE DETAIL orders",
        "SHOW JOBS WHERE state = 'succeeded'",
        "SELECT compaction_status FROM system.compaction_jobs WHERE table = 'orders'",
        "OPTIMIZE orders ASYNC PLEASE",
    ]
    monkeypatch.chdir(lake.root)
    for statement in statements:
        status, body = post(url, statement=statement)
        code = run(["sql", "--json", statement])
        assert json.loads(body) == json.loads(capsys.readouterr().out)
        assert (status, code) in {(200, 0), (400, 2)}
    assert post(url, statement=statements[3], format="csv") == (
        200, b"compaction_status\ncompleted\n",
    )  # fmt: skip
    status, body = post(url, statement=statements[3], format="arrow")
    assert pa.ipc.open_stream(body).read_all().num_rows == 1
    assert post(url, statement="VACUUM orders ASYNC")[0] == 202
    assert post(url, statement="VACUUM '/etc'")[0] == 404
    assert post(url, statement="SELECT * FROM system.files('/etc')")[0] == 404
    wrong = [{}, {"statement": 1}, {"statement": "SHOW JOBS", "x": 1}]
    wrong += [{"statement": "SHOW JOBS", "wait_seconds": True}]
    wrong += [{"statement": "SHOW JOBS", "format": "xml"}, {"statement": "?", "parameters": 5}]
    for body in wrong:
        assert post(url, **body)[0] == 400
    assert lake.end() == 0


def _address(log):
    found = [line.split("Listening at ")[1] for line in log.splitlines() if "Listening at" in line]
    return found[0].strip() if found else None
