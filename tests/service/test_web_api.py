"""The API and the pages: one view for both, lists in pages, typed errors, live events."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakehand
import lakehand.web
from lakehand.service.client import ServiceClient
from lakehand.service.store.database import open_database
from lakehand.service.store.events import record_event
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.listings import TableFilter
from lakehand.service.store.records import AttemptEnd, Claim, JobRequest
from lakehand.service.store.table_registry import TableRegistry
from lakehand.web.app import ENDPOINTS
from lakehand.web.server import WebServer
from support.web_apps import WebApp, fill

HERE = {"sec_fetch_site": "same-origin"}


@pytest.fixture
def web(database):
    made = WebApp(database, {"source": [{"name": "lake", "include": ["/nowhere"]}]})
    fill(made)
    return made


only_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def test_every_resource_and_every_page_answers(web):
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET":
            continue
        path = endpoint.path.format(table="1", job="1")
        answer = web.ask("GET", f"/api/v1{path}")
        assert answer.status == 200, answer.text
        assert answer.json
        if endpoint.template is not None:
            page = web.ask("GET", endpoint.page or path, accept="text/html")
            assert page.status == 200
            assert "text/html" in page.headers["content-type"]
            assert "</html>" in page.text


def test_a_page_shows_what_the_resource_has(web):
    for job in web.ask("GET", "/api/v1/jobs").json["jobs"]:
        assert f"/jobs/{job['id']}" in web.ask("GET", "/jobs").text
    error = web.ask("GET", "/api/v1/jobs/2").json["error"]
    page = web.ask("GET", "/jobs/2").text
    assert error["message"] in page
    assert error["hint"] in page


@pytest.mark.parametrize("sort", ["id", "name", "health", "bytes"])
def test_a_list_in_pages_has_every_table_once_in_order(database, sort):
    web = WebApp(database)
    fill(web, tables=23)
    seen, after = [], ""
    while after is not None:
        answer = web.ask("GET", f"/api/v1/tables?sort={sort}&limit=5&after={after}").json
        assert answer["total"] == 23
        seen += answer["tables"]
        after = answer["next"]
    assert sorted(table["id"] for table in seen) == list(range(1, 24))
    keys = {
        "id": lambda table: table["id"],
        "name": lambda table: table["name"],
        "health": lambda table: 101 if table["health_score"] is None else table["health_score"],
        "bytes": lambda table: -table["summary"]["total_bytes"],
    }
    assert seen == sorted(seen, key=lambda table: (keys[sort](table), table["id"]))


def test_tables_are_filtered(web, database):
    web.tables.pause(2, by="ana")
    web.tables.remove(3)

    def names(query):
        return [one["name"] for one in web.ask("GET", f"/api/v1/tables?{query}").json["tables"]]

    assert names("") == ["t0", "t1"]
    assert names("q=LAKE/T1") == ["t1"]
    assert names("q=%25") == []
    assert names("state=paused") == ["t1"]
    assert names("state=gone") == ["t2"]
    assert names("health=unknown") == ["t0"]
    assert names("health=poor") == ["t1"]
    assert names("source=other") == []
    assert web.ask("GET", "/api/v1/tables?state=odd").status == 400


def test_jobs_are_changed_by_the_api_and_by_forms(web):
    new = web.ask("POST", "/api/v1/jobs", {"table": "t1", "verb": "compact", "urgent": True})
    assert new.status == 202
    number = new.json["id"]
    assert web.ask("POST", f"/api/v1/jobs/{number}/pause").json["paused_by"] == "web"
    answer = web.ask("POST", f"/jobs/{number}/resume", b"", **HERE)
    assert (answer.status, answer.headers["location"]) == (303, f"/jobs/{number}")
    assert web.jobs.get(number).paused_by is None
    answer = web.ask("POST", f"/jobs/{number}/cancel", b"", **HERE)
    assert web.jobs.get(number).state == "cancelled"
    retried = web.ask("POST", f"/jobs/{number}/retry", b"", **HERE).headers["location"]
    assert retried != f"/jobs/{number}"
    form = web.ask("POST", "/jobs", b"table=1&verb=verify", **HERE)
    assert web.jobs.get(int(form.headers["location"].rpartition("/")[2])).verb == "verify"


def test_tables_and_the_service_are_changed(web):
    assert web.ask("PATCH", "/api/v1/tables/1", {"set": {"min_files": 7}}).json["overrides"] == {
        "min_files": 7
    }
    assert web.ask("PATCH", "/api/v1/tables/1", {"reset": ["min_files"]}).json["overrides"] == {}
    paused = web.ask("POST", "/api/v1/tables/1/pause", {"duration": "2h", "why": "test"}).json
    assert (paused["state"], paused["paused_why"]) == ("paused", "test")
    assert web.ask("POST", "/api/v1/tables/1/resume").json["state"] == "ok"
    assert web.ask("DELETE", "/api/v1/tables/1").json["state"] == "gone"
    assert web.ask("POST", "/api/v1/service/pause", {}).json["pause"]["paused_by"] == "web"
    assert web.ask("POST", "/api/v1/service/resume").json["pause"] is None
    assert web.ask("POST", "/api/v1/workers/w-1/drain").status == 200
    created = web.ask("POST", "/api/v1/tokens", {"name": "ci", "role": "viewer"})
    assert created.status == 201
    assert created.json["secret"] not in web.ask("GET", "/api/v1/tokens").text
    assert web.ask("DELETE", "/api/v1/tokens/ci").json["revoked_at"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/v1/tables/none", None, 404, "JOB_NOT_FOUND"),
        ("GET", "/api/v1/jobs/99", None, 404, "JOB_NOT_FOUND"),
        ("GET", "/api/v1/jobs/x", None, 400, "VALIDATION_ERROR"),
        ("GET", "/api/v1/nothing", None, 404, "NOT_FOUND"),
        ("POST", "/api/v1/jobs/1/cancel", None, 409, "JOB_STATE"),
        ("POST", "/api/v1/jobs", {}, 400, "VALIDATION_ERROR"),
        ("POST", "/api/v1/jobs", {"table": "1", "verb": "fly"}, 400, "VALIDATION_ERROR"),
        ("POST", "/api/v1/jobs", {"table": "1", "options": {"verb": 1}}, 400, "VALIDATION_ERROR"),
        ("POST", "/api/v1/jobs", [1], 400, "VALIDATION_ERROR"),
        ("POST", "/api/v1/tables/1/pause", {"duration": "soon"}, 400, "VALIDATION_ERROR"),
        ("PATCH", "/api/v1/tables/1", {"set": {"nothing": 1}}, 400, "UNKNOWN_SETTING"),
        ("POST", "/api/v1/tables", {"url": "/no/such/table"}, 422, "NOT_A_TABLE"),
        ("POST", "/api/v1/sources/none/discover", None, 404, "JOB_NOT_FOUND"),
        ("GET", "/api/v1/events?kind=odd", None, 400, "VALIDATION_ERROR"),
        ("GET", "/api/v1/budgets?day=tomorrow", None, 400, "VALIDATION_ERROR"),
        ("GET", "/api/v1/tables?after=%F0%9F", None, 400, "VALIDATION_ERROR"),
        ("GET", "/api/v1/events/stream?since=x", None, 400, "VALIDATION_ERROR"),
    ],
)
@only_sqlite
def test_errors_are_typed(web, method, path, body, status, code):
    answer = web.ask(method, path, body)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    page = web.ask(method, path.removeprefix("/api/v1"), accept="text/html")
    assert "Traceback" not in page.text


@only_sqlite
def test_the_openapi_document_describes_what_is_answered(web):
    document = web.ask("GET", "/openapi.json").json
    schemas = document["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert schemas[name], name

    def properties(schema):
        found = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        parts = [properties(part) for part in found.get("allOf", ())]
        return set(found.get("properties", ())).union(*parts)

    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        content = operation["responses"][str(endpoint.status)]["content"]
        described = properties(content["application/json"]["schema"])
        if endpoint.method == "GET":
            answer = web.ask("GET", f"/api/v1{endpoint.path.format(table='1', job='1')}").json
            assert set(answer) <= described, endpoint.path
    assert "What it runs." in json.dumps(schemas["Job"])


@only_sqlite
def test_text_of_tables_and_users_is_escaped(web):
    web.tables.pause(1, by="<b>ana</b>", why="<script>alert(1)</script>")
    page = web.ask("GET", "/tables/1").text
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "<b>ana" not in page


def test_a_page_shows_the_layout_and_what_the_last_rewrite_did(web, tmp_path):
    import pyarrow as pa

    schema = pa.schema({"day": pa.int64(), "name": pa.string(), "note": pa.string()})
    table = lakehand.create_table(tmp_path / "real", schema)
    for number in range(6):
        rows = {"day": [number, number + 2], "name": ["a", f"<b>{number}"], "note": [None, None]}
        table.append(pa.table(rows, schema=schema))
    table.compact(quiet_period="0s", min_files=2)
    for number in range(3):
        rows = {"day": [number, 9], "name": [f"{number}", "z"], "note": [None, None]}
        table.append(pa.table(rows, schema=schema))
    ServiceClient(web.config, database=web.database).tables.add(str(tmp_path / "real"))
    number = web.tables.find(table.url).id
    content = _content(web, f"/api/v1/tables/{number}")
    assert content["rewrite"]["version"] == 7
    assert sum(one["file_count"] for one in content["rewrite"]["before"]) == 6
    assert sum(one["file_count"] for one in content["rewrite"]["after"]) == 1
    assert content["inspection"]["layout"]["columns"] == ["day", "name"]
    page = web.ask("GET", f"/tables/{number}").text
    drawn = page[page.index('class="picture"') :]
    assert drawn.count("<path d=") == 4
    assert "<style" not in drawn
    assert "<b>" not in drawn
    # Other columns, and none that can be drawn.
    other = _content(web, f"/api/v1/tables/{number}?by=name,day")
    assert other["inspection"]["layout"]["columns"] == ["name", "day"]
    for by in ("nothing,day", "day", "a b c", "day,name,note"):
        answer = web.ask("GET", f"/tables/{number}?by={by.replace(' ', '+')}")
        assert answer.status in {200, 400}
        assert 'class="picture"' not in answer.text


def _content(web, path):
    """Return what the log of a table says, which a slow machine needs several requests for."""
    for _ in range(100):
        found = web.ask("GET", path).json["content"]
        if not found["is_pending"]:
            return found
    raise AssertionError("the table is not read")


def test_the_budget_page_adds_up_what_jobs_were_worth(web):
    report = {"files_before": 90, "files_after": 2, "bytes_before": 2**33, "bytes_after": 2**32}
    web.jobs.cancel(4)
    for table_id in (1, 2):
        web.jobs.enqueue(JobRequest(table_id=table_id, verb="cluster", trigger="manual"))
        job = web.jobs.claim(Claim(worker_id="w-1", lease_seconds=60))
        assert job.table_id == table_id
        spent = {"core_seconds": 60.0, "bytes": 2.0**33, "cost": 0.5}
        end = AttemptEnd(outcome="committed", report=report, spent=spent)
        web.jobs.finish(job.id, job.fence, end, state="succeeded")
    found = web.ask("GET", "/api/v1/budgets").json["returns"]
    assert found["total"]["files_saved"] == 176
    assert found["total"]["cost"] == pytest.approx(1.0)
    assert found["total"]["return"] == pytest.approx(found["total"]["benefit"] - 1.0)
    assert [one["table_id"] for one in found["tables"]] == [1, 2]
    assert web.ask("GET", "/api/v1/overview").json["returns"]["files_saved"] == 176
    assert "176" in web.ask("GET", "/budgets").text


def test_templates_have_no_scripts_or_styles_of_their_own():
    from importlib.resources import files

    for template in files(lakehand.web).joinpath("templates").iterdir():
        text = template.read_text()
        if template.name != "standalone.html":
            assert "<style" not in text
        assert not re.search(r"\son\w+=|hx-on|hx-vals=.js:|style=\"|javascript:|\| safe", text)
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_vendored_files_are_those_that_were_published():
    import hashlib
    from importlib.resources import files

    vendor = files(lakehand.web).joinpath("static", "vendor")
    known = dict(
        reversed(line.split("  "))
        for line in vendor.joinpath("SHA256SUMS").read_text().splitlines()
    )
    scripts = [one for one in vendor.iterdir() if one.name.endswith((".js", ".css"))]
    assert {one.name for one in scripts} == set(known)
    for one in scripts:
        assert hashlib.sha256(one.read_bytes()).hexdigest() == known[one.name]


# -- odd requests ----------------------------------------------------------------------------------

_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    ["table", "verb", "options", "urgent", "duration", "why", "set", "reset", "name", "role", "url"]
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    database = open_database(f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/jobs.db")
    web = WebApp(database)
    fill(web)
    yield web
    database.close()


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_requests_never_fail_the_server(filled, data, monkeypatch):
    from urllib.parse import quote, urlencode

    monkeypatch.setattr("lakehand.web.middleware.RateLimit.take", lambda *_: True)
    endpoint = data.draw(st.sampled_from(ENDPOINTS))
    parts = {name: quote(data.draw(_TEXT), safe="") or "1" for name in ("table", "job")}
    parts |= {
        name: quote(data.draw(_TEXT), safe="") or "1" for name in ("worker", "source", "token")
    }
    path = endpoint.path.format(
        **{name: value.replace("%2F", "x") for name, value in parts.items()}
    )
    names = [parameter.name for parameter in endpoint.parameters] or ["x"]
    query = urlencode(data.draw(st.dictionaries(st.sampled_from(names), _TEXT, max_size=3)))
    body = data.draw(st.dictionaries(_FIELDS, _JSON, max_size=4) | _JSON | st.binary(max_size=60))
    prefix = data.draw(st.sampled_from(["/api/v1", ""]))
    headers = {"accept": data.draw(st.sampled_from(["text/html", "application/json", "*/*"]))}
    answer = filled.ask(endpoint.method, f"{prefix}{path}?{query}", body, **headers, **HERE)
    assert answer.status < 500, (answer.status, answer.text)
    assert "Traceback" not in answer.text


_PATHS = (
    *("/sql", "/api/v1/sql", "/login", "/logout", "/notify", "/api/v1/notify", "/openapi.json"),
    *("/api/v1/events/objects", "/metrics", "/healthz", "/readyz", "/static/style.css"),
    *("/static/../app.py", "/static/%2e%2e/app.py", "/api/v1", "//", "/%00", "/\u00e9"),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_requests_to_other_routes_never_fail_the_server(filled, data, monkeypatch):
    from urllib.parse import quote, urlencode

    monkeypatch.setattr("lakehand.web.middleware.RateLimit.take", lambda *_: True)
    words = st.sampled_from(["SELECT", "SHOW", "JOBS", "FROM", "system.jobs", "(", "'", ";", "*"])
    text = _TEXT | st.lists(words, max_size=6).map(" ".join)
    path = data.draw(st.sampled_from(_PATHS) | _TEXT.map(lambda one: "/" + quote(one)))
    names = st.sampled_from(["statement", "token", "next", "table", "version", "Records", "format"])
    values = data.draw(st.dictionaries(names, text, max_size=3))
    body = data.draw(
        st.just(urlencode(values).encode()) | st.dictionaries(names, _JSON) | st.binary(max_size=60)
    )
    method = data.draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "BREW"]))
    headers = {
        "accept": data.draw(st.sampled_from(["text/html", "*/*", "\x7f"])),
        "cookie": quote(data.draw(_TEXT)),
        "authorization": data.draw(st.sampled_from(["Bearer", "Basic", "Basic x", "x y z"])),
    }
    answer = filled.ask(method, f"{path}?{urlencode(values)}", body, **headers, **HERE)
    assert answer.status < 500, (method, path, answer.status, answer.text)
    assert "Traceback" not in answer.text


# -- live events -----------------------------------------------------------------------------------


class Stream:
    """A client of the event stream."""

    def __init__(self, url, last=None):
        host = url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(host, timeout=30)
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        self._connection.request("GET", "/api/v1/events/stream", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.readline().startswith(b"retry:")

    def next(self):
        """Return number and kind of the next event."""
        number = kind = None
        while kind is None or number is None:
            line = self._answer.readline().decode()
            assert line, "the stream has ended"
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("event: "):
                kind = line[7:].strip()
        return number, kind

    def close(self):
        self._connection.close()


def _server(database):
    from lakehand.service.config import parse_config

    tables = TableRegistry(database)
    made = WebServer(parse_config({}), database, jobs=JobQueue(database), tables=tables)
    made.start("127.0.0.1:0")
    return made


def _happen(database, kind):
    with database.transaction() as connection:
        record_event(connection, database.now(), kind, by="test")


def test_events_arrive_and_go_on_after_a_restart_of_the_server(database):
    server = _server(database)
    stream = Stream(server.url)
    _happen(database, "service.paused")
    number, kind = stream.next()
    assert kind == "service.paused"
    started = time.monotonic()
    assert server.stop()
    assert time.monotonic() - started < 5  # An open stream does not hold up the end.
    stream.close()
    for kind in ("service.resumed", "worker.lost"):
        _happen(database, kind)
    second = _server(database)
    stream = Stream(second.url, last=number)
    found = [stream.next() for _ in range(2)]
    assert [kind for _, kind in found] == ["service.resumed", "worker.lost"]
    assert number < found[0][0] < found[1][0]
    _happen(database, "token.created")
    assert stream.next()[1] == "token.created"
    stream.close()
    assert second.stop()


# SQLite has one writer: no event is committed after a later one.
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_an_event_that_is_committed_late_is_delivered(database):
    from lakehand.service.store.listings import Listings
    from lakehand.web.event_stream import EventFeed

    feed = EventFeed(database, Listings(database))
    with database.engine.begin() as late:
        record_event(late, database.now(), "job.failed")
        _happen(database, "job.queued")
        assert [event.kind for event in feed._read_new()] == ["job.queued"]
    assert [event.kind for event in feed._read_new()] == ["job.failed"]
    assert feed._read_new() == ()


@only_sqlite
def test_a_slow_client_is_disconnected_and_others_go_on(database):
    from lakehand.service.store.listings import Listings
    from lakehand.web.event_stream import EventFeed

    async def run():
        feed = EventFeed(database, Listings(database))
        async with feed.listen() as slow, feed.listen() as quick:
            batch = await feed.read_since(0)
            assert [message.kind for message in batch] == ["job.queued"]
            for _ in range(slow.maxsize):
                slow.put_nowait(batch)
            feed._deliver(slow, batch)
            feed._deliver(quick, batch)
            assert slow not in feed._clients
            assert await quick.get() == batch
            feed.ending.set()

    _happen(database, "job.queued")
    asyncio.run(run())


@only_sqlite
def test_ten_thousand_tables_fit_a_page(database):
    web = WebApp(database)
    fill(web)
    from sqlalchemy import insert

    from lakehand.service.store.database_schema import TABLES

    times = {"found_at": 0.0, "seen_at": 0.0, "look_at": 0.0}
    rows = [
        {
            "url": f"s3://lake/area/{number:05}",
            "name": f"table_{number:05}",
            "source": "lake",
            "format": "delta",
            "policy": "default",
            "summary": {"total_bytes": number * 10**6, "file_count": number},
            "health_score": number % 101,
            **times,
        }
        for number in range(10_000)
    ]
    with database.transaction() as connection:
        connection.execute(insert(TABLES), rows)
    for path in ("/", "/tables", "/tables?q=table_09&sort=bytes", "/tables?sort=health"):
        web.ask("GET", path)
        started = time.process_time()
        page = web.ask("GET", path)
        # Of this process: the machine may be busy with others.
        assert time.process_time() - started < 0.2, path
        assert len(page.body) < 100_000, path
    assert len(web.tables.listed(limit=20_000)) == 10_003
    assert TableFilter().sort == "id"
