"""Who may do what over HTTP: tokens, roles, proxies, cookies, other sites."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from starlette.routing import Route

from lakehand.cli.main import run
from lakehand.errors import ConfigError, ValidationError
from lakehand.service.config_sections import WebSection
from lakehand.service.store.records import FoundTable
from lakehand.service.store.token_registry import hash_of
from lakehand.web.access import AccessRules
from lakehand.web.app import ENDPOINTS
from support.small_tables import fingerprint, make_table
from support.web_apps import WebApp, fill

OPEN = {"/healthz", "/readyz", "/login", "/static"}


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def web(database):
    made = WebApp(database, {"web": {"auth": "token"}})
    fill(made)
    return made


def _bearer(web, role, name=None):
    _, secret = web.tokens.create(name or role, role)
    return {"authorization": f"Bearer {secret}"}


def _routes(web):
    """Return method and path of every route, with something for each part of a path."""
    for route in web.app.routes:
        if not isinstance(route, Route):
            continue
        path = re.sub(r"{\w+}", "1", route.path)
        for method in sorted(route.methods - {"HEAD"}):
            yield method, path


def test_a_viewer_is_refused_on_every_route_that_changes_something(web):
    viewer = _bearer(web, "viewer")
    allowed = {"/login", "/logout", "/api/v1/sql"}
    unsafe = [one for one in _routes(web) if one[0] != "GET" and one[1] not in allowed]
    assert len(unsafe) > 25
    before = [web.jobs.listed(), web.tables.listed(), web.tokens.listed()]
    for method, path in unsafe:
        assert web.ask(method, path, {}, **viewer).status == 403, (method, path)
    assert [web.jobs.listed(), web.tables.listed(), web.tokens.listed()] == before


#: What a viewer may run, and what not.
READING = (
    "SELECT count(*) AS n FROM system.jobs",
    "WITH j AS (SELECT * FROM system.jobs) SELECT * FROM j",
    "SHOW JOBS",
    "DESCRIBE HISTORY orders",
    "DESCRIBE DETAIL orders",
    "EXPLAIN MAINTENANCE OF orders",
    "EXPLAIN VACUUM orders WITH (dry_run = false)",
)
CHANGING = (
    "VACUUM orders DRY RUN",
    "VACUUM orders ASYNC",
    "OPTIMIZE orders",
    "RESTORE orders TO VERSION AS OF 0",
    "ALTER TABLE orders SET TBLPROPERTIES (x = 1)",
    "ALTER TABLE orders PAUSE",
    "CANCEL JOB 1",
    "RETRY JOB 1",
    "/* SELECT */ VACUUM orders",
)


def test_a_viewer_may_run_statements_that_change_nothing(database, store_url, tmp_path):
    path = make_table(tmp_path / "orders", commits=1)
    web = WebApp(database, {"web": {"auth": "token"}, "service": {"store": store_url}})
    web.tables.add(FoundTable(url=path.as_uri(), format="delta", name="orders"), source="manual")
    viewer, before = _bearer(web, "viewer"), fingerprint(path)

    def post(statement, **headers):
        return web.ask("POST", "/api/v1/sql", {"statement": statement}, **headers)

    for statement in READING:
        assert post(statement, **viewer).status == 200, statement
        assert post(statement).status == 401
    for statement in CHANGING:
        answer = post(statement, **viewer)
        assert (answer.status, answer.json["error"]["code"]) == (403, "REQUEST_REFUSED"), statement
    assert post("OPTIMISE orders", **viewer).status == 400
    for elsewhere in ("storage.endpoint = 'http://10.0.0.1'", "remote = 'sc://10.0.0.1'"):
        answer = post(f"EXPLAIN VACUUM orders WITH ({elsewhere})", **viewer)
        assert (answer.status, answer.json["error"]["code"]) == (400, "SQL_ERROR"), elsewhere
    assert fingerprint(path) == before
    assert web.jobs.listed() == []
    assert web.tables.listed()[0].overrides == {}
    assert post("ALTER TABLE orders PAUSE", **_bearer(web, "operator")).status == 200


def test_a_request_without_a_token_is_refused_on_every_route(web):
    for method, path in _routes(web):
        expected = path not in OPEN
        for headers in ({}, {"authorization": "Bearer no"}, {"cookie": "lakehand=no"}):
            web.app.state.feed.ending.clear()
            # Another address each time: wrong tokens are counted.
            peer = f"10.0.{abs(hash((method, path, str(headers)))) % 250}.{len(path)}"
            same = {"origin": "http://127.0.0.1:8484"} if method != "GET" else {}
            status = web.ask(method, path, {}, peer=peer, **headers, **same).status
            assert (status == 401) == expected or path == "/login", (method, path, status)


def test_a_viewer_may_read_with_sql_and_change_nothing(web):
    viewer, operator, admin = (_bearer(web, role) for role in ("viewer", "operator", "admin"))
    read = web.ask("GET", "/sql?statement=SELECT+id,+state+FROM+system.jobs", **viewer)
    assert read.status == 200
    assert ">succeeded</td>" in read.text
    assert 'method="get"' in read.text
    before = web.jobs.listed()
    for statement in (
        "CANCEL JOB 4",
        "ALTER TABLE t1 PAUSE",
        "OPTIMIZE t1 ASYNC",
        "VACUUM t1 DRY RUN",
    ):
        # Also for an admin: what an address says may only read.
        for who in (viewer, admin):
            answer = web.ask("GET", f"/sql?statement={quote(statement)}", **who)
            assert answer.status == 403, (statement, answer.text)
    assert web.jobs.listed() == before
    # The form is for those who may change something; the API knows what a statement does.
    assert web.ask("POST", "/sql", {"statement": "SHOW JOBS"}, **viewer).status == 403
    same = {"sec_fetch_site": "same-origin"}
    changed = web.ask("POST", "/sql", b"statement=CANCEL+JOB+4", **operator, **same)
    assert changed.status == 200, changed.text
    assert web.jobs.get(4).state == "cancelled"


def test_a_page_of_another_site_runs_no_statement(web):
    admin = _bearer(web, "admin")
    for site in ("cross-site", "same-site"):
        path = "/sql?statement=SHOW+JOBS"
        assert web.ask("GET", path, sec_fetch_site=site, **admin).status == 403
    cookie = admin["authorization"].removeprefix("Bearer ")
    for headers in ({}, {"origin": "https://evil.example.com"}, {"sec_fetch_site": "cross-site"}):
        answer = web.ask(
            "POST", "/sql", b"statement=CANCEL+JOB+4", cookie=f"lakehand={cookie}", **headers
        )
        assert answer.status == 403
    assert web.jobs.get(4).state == "queued"


def test_every_endpoint_needs_its_role(web):
    roles = {role: _bearer(web, role) for role in ("viewer", "operator")}
    for endpoint in ENDPOINTS:
        path = "/api/v1" + re.sub(r"{\w+}", "99", endpoint.path)
        if endpoint.role == "viewer":
            continue
        for role, header in roles.items():
            is_refused = web.ask(endpoint.method, path, {}, **header).status == 403
            assert is_refused == (endpoint.role == "admin" or role == "viewer"), (role, path)
    assert all(endpoint.role != "viewer" for endpoint in ENDPOINTS if endpoint.method != "GET")


def test_tokens_are_stored_as_hashes_and_end(web, clock):
    token, secret = web.tokens.create("ci", "operator", expires_at=web.database.time() + 60)
    assert web.tokens.find(secret) == token
    with web.database.reading() as connection:
        dump = str(connection.exec_driver_sql("SELECT * FROM tokens").all())
        dump += str(connection.exec_driver_sql("SELECT * FROM events").all())
    assert secret not in dump
    assert hash_of(secret) in dump
    with pytest.raises(ValidationError, match="already"):
        web.tokens.create("ci", "viewer")
    clock.advance(61)
    assert web.tokens.find(secret) is None
    _, second = web.tokens.create("ci2", "viewer")
    web.tokens.revoke("ci2")
    assert web.tokens.find(second) is None
    for name, role in (("a b", "viewer"), ("", "viewer"), ("x", "root")):
        with pytest.raises(ValidationError):
            web.tokens.create(name, role)


def test_what_is_done_is_recorded_under_the_name_of_the_token(web):
    header = _bearer(web, "operator", "ana")
    assert web.ask("POST", "/api/v1/tables/1/pause", {"why": "test"}, **header).status == 200
    assert web.tables.get(1).paused_by == "ana"


def test_the_login_page_gives_a_cookie_to_a_valid_token(web):
    _, secret = web.tokens.create("ana", "viewer")
    page = web.ask("GET", "/tables", accept="text/html")
    assert (page.status, page.headers["location"]) == (303, "/login?next=/tables")
    origin = {"origin": "http://127.0.0.1:8484"}
    body = f"token={secret}&next=/tables".encode()
    answer = web.ask("POST", "/login", body, **origin)
    cookie = answer.headers["set-cookie"]
    assert answer.headers["location"] == "/tables"
    for part in ("__Host-lakehand=", "HttpOnly", "SameSite=strict", "Secure", "Path=/"):
        assert part in cookie
    assert web.ask("GET", "/tables", cookie=cookie.partition(";")[0]).status == 200
    assert web.ask("POST", "/login", b"token=wrong", **origin).status == 401
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example"):
        body = f"token={secret}&next={quote(elsewhere)}".encode()
        assert web.ask("POST", "/login", body, **origin).headers["location"] == "/"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({}, 403),
        ({"sec_fetch_site": "same-origin"}, 303),
        ({"origin": "http://127.0.0.1:8484"}, 303),
    ],
)
def test_forms_of_other_sites_are_refused(web, headers, status):
    _, secret = web.tokens.create("ana", "operator")
    cookie = f"__Host-lakehand={secret}"
    assert web.ask("POST", "/tables/1/pause", b"", cookie=cookie, **headers).status == status
    assert (web.tables.get(1).paused_by is None) == (status == 403)


def test_users_of_a_proxy_have_the_role_of_their_group(database):
    section = {
        "auth": "proxy",
        "trusted_proxies": ["10.1.0.0/16"],
        "roles": {"platform": "admin", "data": "viewer"},
        "allowed_hosts": ["lake.example"],
    }
    web = WebApp(database, {"web": section}, address="0.0.0.0:8484")
    fill(web)
    named = {"x_forwarded_user": "ana", "host": "lake.example", "sec_fetch_site": "same-origin"}

    def pause(peer, groups, **more):
        headers = {**named, "x_forwarded_groups": groups, **more}
        return web.ask("POST", "/api/v1/tables/1/pause", {}, peer=peer, **headers).status

    assert pause("10.1.2.3", "other, platform") == 200
    assert web.tables.get(1).paused_by == "ana"
    assert pause("10.1.2.3", "data") == 403
    assert pause("10.1.2.3", "other") == 401
    assert pause("10.2.0.1", "platform") == 401
    assert pause("10.1.2.3", "platform", host="evil.example") == 403
    assert pause("10.1.2.3", "platform", sec_fetch_site="cross-site") == 403


def test_wrong_tokens_are_counted_by_address(web):
    good = _bearer(web, "viewer")
    wrong = {"authorization": "Bearer nonsense"}
    found = [web.ask("GET", "/api/v1/status", peer="10.9.9.9", **wrong).status for _ in range(22)]
    assert found[:20] == [401] * 20
    assert found[20:] == [429] * 2
    assert web.ask("GET", "/api/v1/status", peer="10.9.9.8", **good).status == 200


def test_changes_of_one_user_are_limited_and_notifications_are_not(web, monkeypatch):
    header = _bearer(web, "operator")
    # However slow the machine is.
    monkeypatch.setattr("lakehand.web.middleware.time.monotonic", lambda: 1.0)
    found = [web.ask("POST", "/api/v1/jobs/999/cancel", {}, **header) for _ in range(130)]
    assert {one.status for one in found} == {404, 429}
    limited = next(one for one in found if one.status == 429)
    assert limited.headers["retry-after"]
    assert web.ask("POST", "/notify", {"table": "s3://lake/t1"}, **header).status == 202


def test_every_answer_has_the_headers_that_protect_pages(web):
    header = _bearer(web, "viewer")
    for path in ("/", "/api/v1/status", "/nothing", "/static/style.css", "/login"):
        answer = web.ask("GET", path, accept="text/html", **header)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert web.ask("GET", "/", **header).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("address", "section", "message"),
    [
        ("0.0.0.0:1", {}, "without a token"),
        ("0.0.0.0:1", {"auth": "none"}, "without a token"),
        ("127.0.0.1:1", {"allowed_hosts": ("x",)}, "allowed_hosts needs auth"),
        ("127.0.0.1:1", {"auth": "proxy"}, "trusted_proxies"),
        ("127.0.0.1:1", {"trusted_proxies": ("10.0.0.1",)}, "trusted_proxies"),
    ],
)
def test_a_configuration_that_would_let_anyone_in_is_refused(address, section, message):
    with pytest.raises(ConfigError, match=message):
        AccessRules.of(address, None, WebSection(**section))


def test_tokens_are_managed_with_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def shown(*arguments, code=0):
        assert run([*arguments, "--store", f"sqlite:///{tmp_path}/t.db"]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    secret = shown("service", "token", "create", "ci", "--role", "operator", "--for", "90d").strip()
    assert secret.startswith("lakehand_")
    listed = shown("service", "token", "list")
    assert "operator" in listed
    assert "expires in" in listed
    assert secret not in listed
    document = json.loads(shown("service", "token", "create", "ana", "--json"))
    assert document["role"] == "viewer"
    assert len(document["secret"]) > 40
    shown("service", "token", "revoke", "ci")
    assert "revoked" in shown("service", "token", "list")
    assert "no token" in shown("service", "token", "revoke", "ci", code=2)
