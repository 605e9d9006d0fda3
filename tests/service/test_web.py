"""The HTTP server takes notifications in, and refuses who may not send them."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time

import deltalake
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ConfigError
from lakehand.service.config import parse_config
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.web.access import AccessRules
from lakehand.web.server import WebServer
from support.job_stores import add_pool
from support.s3_server import run_s3_server

URL = "s3://lake/orders"
TOKEN = "a-token-that-no-answer-may-show"


class Client:
    """A running server over a store with one table at version 10."""

    def __init__(self, database, config):
        add_pool(database)
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.server = WebServer(parse_config(config), database, jobs=self.jobs, tables=self.tables)
        self.database = database
        self.register(URL, version=10)
        self.server.start("127.0.0.1:0")

    def register(self, url, version):
        table, _ = self.tables.add(FoundTable(url=url, format="delta"))
        values = {"version": version, "assessed_version": version}
        self.tables.looked(table.id, look_every=3600, assessed_at=self.database.time(), **values)

    def request(self, method, path, body=None, **headers):
        host = self.server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            text = answer.read()
            assert TOKEN.encode() not in text
            return answer.status, json.loads(text) if text else None, answer.headers
        finally:
            connection.close()

    def post(self, path, document, **headers):
        return self.request("POST", path, json.dumps(document).encode(), **headers)[:2]

    def queued(self):
        return [job.trigger for job in self.jobs.listed(states=["queued"])]


@pytest.fixture
def config():
    return {"policy": {"default": {"check_after": {"commits": 3}}}}


@pytest.fixture
def client(database, config):
    opened = Client(database, config)
    yield opened
    assert opened.server.stop()


def test_a_notification_queues_a_job(client):
    assert client.post("/api/v1/notify", {"table": URL, "version": 11}) == (
        202,
        {"table": URL, "effect": "noted"},
    )
    assert client.post("/notify", {"table": URL, "version": 13, "files": 2, "bytes": 9})[1] == {
        "table": URL,
        "effect": "queued",
    }
    assert client.queued() == ["commits"]


def test_object_events_queue_a_job(client):
    key = f"orders/_delta_log/{13:020}.json"
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "lake"}, "object": {"key": key}},
    }
    status, answer = client.post("/api/v1/events/objects", {"Records": [record]})
    assert (status, answer) == (200, {"tables": [{"table": URL, "effect": "queued"}]})
    assert client.queued() == ["commits"]
    assert client.post("/api/v1/events/objects", {"Event": "s3:TestEvent"}) == (200, {"tables": []})


def test_probes_say_whether_the_store_is_reached(client, monkeypatch):
    assert client.request("GET", "/healthz")[:2] == (200, {"status": "ok"})
    assert client.request("GET", "/readyz")[:2] == (200, {"status": "ready"})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"nonsense", 400),
        (b"[" * 100_000, 400),
        (b"\xff", 400),
        (b"{}", 400),
        (b'{"table": "s3://lake/../x"}', 400),
        (b'{"table": "s3://lake/a", "version": 1e400}', 400),
        (b" " * (2**20 + 1), 413),
    ],
    ids=["words", "deep", "bytes", "empty", "unsafe", "infinite", "large"],
)
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_wrong_body_is_refused_with_an_error(client, body, status):
    found, answer, _ = client.request("POST", "/notify", body)
    assert found == status
    assert {"code", "message", "hint", "retryable"} <= answer["error"].keys()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_unknown_paths_and_methods_are_said(client):
    assert client.request("GET", "/nothing")[0] == 404
    assert client.request("GET", "/notify")[0] == 405


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_body_in_small_pieces_is_bounded_too(client):
    host, port = client.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST /notify HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        try:
            for _ in range(20):
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        except OSError:
            pass  # It does not read to the end.
        assert b"413" in connection.recv(100)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_store_that_is_away_is_said(client, database, monkeypatch):
    from sqlalchemy import exc

    def fail(*_, **__):
        raise exc.OperationalError("x", {}, Exception("is away"))

    monkeypatch.setattr(database.engine, "begin", fail)
    monkeypatch.setattr(database._reader, "connect", fail)
    for request in (("POST", "/notify", b'{"table": "s3://lake/a"}'), ("GET", "/readyz")):
        status, answer, headers = client.request(*request)
        assert (status, answer["error"]["code"], headers["Retry-After"]) == (503, "JOB_STORE", "5")
    assert client.request("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
class TestAccess:
    BODY = json.dumps({"table": URL, "version": 11}).encode()

    def status(self, client, **headers):
        return client.request("POST", "/notify", self.BODY, **headers)[0]

    def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(self, client):
        assert self.status(client, host="evil.example.com") == 403
        assert self.status(client, host="127.0.0.1.evil.example.com:8484") == 403
        assert self.status(client, host="[::1") == 403
        assert self.status(client, host="") == 403
        assert self.status(client, host="localhost:1") == 202
        assert self.status(client, host="[::1]:8484") == 202

    def test_a_page_of_another_site_is_refused(self, client):
        assert self.status(client, origin="https://evil.example.com") == 403
        assert self.status(client, origin="null") == 403
        assert self.status(client, host="localhost", origin="http://localhost") == 202

    def test_a_token_is_needed_where_there_is_one(self, database, config, monkeypatch, caplog):
        monkeypatch.setenv("WEB_TOKEN", TOKEN)
        caplog.set_level(logging.DEBUG)
        client = Client(database, config | {"web": {"token": "env:WEB_TOKEN"}})
        try:
            basic = "bGFrZWhhbmQ6YS10b2tlbi10aGF0LW5vLWFuc3dlci1tYXktc2hvdw=="
            assert self.status(client) == 401
            for wrong in ("Bearer x", TOKEN, "Basic x", f"Digest {TOKEN}", "Bearer é"):
                header = wrong.encode("latin-1").decode("latin-1")
                assert self.status(client, authorization=header) == 401
            assert self.status(client, authorization=f"Bearer {TOKEN}") == 202
            assert self.status(client, authorization=f"Basic {basic}") == 202
            assert client.request("GET", "/healthz")[0] == 200
        finally:
            client.server.stop()
        assert TOKEN not in caplog.text


def test_other_machines_need_a_token():
    for address in ("0.0.0.0:1", "[::]:1", "lake.example.com:1", "10.0.0.1:1"):
        with pytest.raises(ConfigError, match="without a token"):
            AccessRules.of(address, None)
        assert AccessRules.of(address, "x").hosts is None
    with pytest.raises(ConfigError, match="empty"):
        AccessRules.of("127.0.0.1:1", "")
    assert "secret" not in repr(AccessRules.of("127.0.0.1:1", "secret"))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_an_address_that_is_taken_is_said(client):
    other = WebServer(parse_config({}), None, jobs=None, tables=None)
    with pytest.raises(ConfigError, match="cannot listen on"):
        other.start(client.server.url.removeprefix("http://"))
    assert not other.is_alive


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_table_below_a_source_is_discovered(database, config, tmp_path):
    table = lakehand.create_table(tmp_path / "lake" / "a", pa.schema({"id": pa.int64()}))
    source = {"name": "lake", "include": [str(tmp_path / "lake")]}
    client = Client(database, config | {"source": [source]})
    try:
        answer = client.post("/notify", {"table": str(tmp_path / "lake" / "a"), "version": 0})
        assert answer == (202, {"table": table.url, "effect": "to_discover"})
        wait_until(lambda: table.url in {one.url for one in client.tables.listed()})
        assert client.post("/notify", {"table": "s3://other/x"})[1]["effect"] == "ignored"
    finally:
        client.server.stop()


@pytest.mark.server
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_an_append_to_a_table_on_s3_queues_a_job(client, tmp_path):
    events = f"{client.server.url}/api/v1/events/objects"
    client.register("s3://lake/a b", version=0)  # Before the event of that version can come.
    with run_s3_server(tmp_path / "s3", event_url=events) as s3:
        names = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}
        options = {names.get(name, f"AWS_{name.upper()}"): v for name, v in s3.options.items()}
        rows = pa.table({"id": [1]})
        deltalake.write_deltalake("s3://lake/a b", rows, storage_options=options)
        for _ in range(3):
            deltalake.write_deltalake("s3://lake/a b", rows, mode="append", storage_options=options)
        wait_until(lambda: client.queued() == ["commits"])
    (job,) = client.jobs.listed(states=["queued"])
    assert job.reasons == ["version 3"]


def wait_until(condition, seconds=30):
    for _ in range(seconds * 50):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true")
