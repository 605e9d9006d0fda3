"""The pages in a real browser."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakehand.service.client import ServiceClient
from lakehand.service.config import parse_config
from lakehand.service.store.database import open_database
from lakehand.service.store.records import JobRequest
from lakehand.web.server import WebServer
from support.browsers import Complaints, run_browser
from support.small_tables import make_table
from support.web_apps import WebApp, fill

pytestmark = pytest.mark.xdist_group("browser")
PAGES = (
    "/",
    "/tables",
    "/tables/1",
    "/tables/4",
    "/jobs",
    "/jobs/2",
    "/jobs/3",
    "/policies",
    "/budgets",
    "/workers",
    "/events",
    "/sql",
    "/sql?statement=SHOW+JOBS",
    "/login",
)


class Site:
    """A running server over a store with some rows."""

    def __init__(self, directory, section):
        self.database = open_database(f"sqlite:///{directory}/jobs.db")
        config = {"web": section, "policy": {"nightly": {"match": ["x"], **NIGHTLY}}}
        self.web = WebApp(self.database, config)
        fill(self.web)
        self.jobs, self.tables = self.web.jobs, self.web.tables
        self.server = WebServer(
            parse_config(config), self.database, jobs=self.jobs, tables=self.tables
        )
        self.url = self.server.start("127.0.0.1:0")

    def close(self):
        assert self.server.stop()
        self.database.close()


NIGHTLY = {"windows": [{"cron": "0 22 * * *", "for": "7h"}]}


@pytest.fixture(scope="module")
def browser():
    with run_browser() as opened:
        yield opened


@pytest.fixture
def section():
    return {}


@pytest.fixture
def site(tmp_path, section):
    made = Site(tmp_path, section)
    yield made
    made.close()


@pytest.fixture
def open_page(browser):
    contexts = []

    def open_(width=1440, **options):
        viewport = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=viewport, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        return page

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1440, "light"),
        (390, "dark"),
        pytest.param(1440, "dark", marks=pytest.mark.soak),
        pytest.param(390, "light", marks=pytest.mark.soak),
    ],
)
def test_every_page_is_quiet_and_fits_its_window(site, open_page, tmp_path, width, scheme):
    real = make_table(tmp_path / "real")
    ServiceClient(site.web.config, database=site.database).tables.add(str(real))
    page = open_page(width, color_scheme=scheme)
    complaints = Complaints(page)
    backgrounds = set()
    for path in PAGES:
        page.goto(site.url + path)
        page.locator("h1").wait_for()
        excess = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert excess <= 0, path
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert complaints.found == []
    assert backgrounds == {"rgb(246, 247, 249)" if scheme == "light" else "rgb(15, 20, 25)"}


def test_new_jobs_and_progress_appear_by_themselves(site, open_page):
    page = open_page()
    complaints = Complaints(page)
    page.goto(f"{site.url}/jobs")
    page.get_by_text("live", exact=True).wait_for()
    new = site.jobs.enqueue(JobRequest(table_id=2, verb="verify", trigger="manual"))
    page.get_by_role("link", name=f"#{new.job_id}", exact=True).first.wait_for()
    running = site.jobs.listed(states=["running"])[0]
    progress = {"phase": "prove", "done": 3, "total": 8, "unit": "groups"}
    site.jobs.beat(running.id, running.fence, lease_seconds=60, progress=progress)
    page.get_by_text("3 of 8 groups").wait_for()
    assert complaints.found == []


def test_buttons_cancel_pause_and_resume(site, open_page):
    queued = site.jobs.listed(states=["queued"])[0].id
    page = open_page()
    page.goto(f"{site.url}/jobs/{queued}")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert site.jobs.get(queued).paused_by == "web"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Run again").wait_for()
    assert site.jobs.get(queued).state == "cancelled"
    page.goto(f"{site.url}/tables/2")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_label("Verb").select_option("checkpoint")
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("heading", name="Checkpoint").wait_for()
    assert site.jobs.listed(states=["queued"])[0].verb == "checkpoint"


@pytest.mark.parametrize("section", [{}, {"auth": "token"}], ids=["none", "cookie"])
def test_a_form_of_another_origin_changes_nothing(site, open_page, section):
    _, secret = site.web.tokens.create("ana", "admin")
    page = open_page()
    page.goto(site.url)
    if section:
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Needs attention").wait_for()
    form = f'<form method="post" action="{site.url}/tables/1/pause"><button>Win</button></form>'
    with _other_site(form) as other:
        page.goto(other)
        page.get_by_role("button", name="Win").click()
        page.get_by_text("another site").wait_for()
    assert site.tables.get(1).paused_by is None
    # From its own page the same form is taken.
    page.goto(f"{site.url}/tables/1")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert site.tables.get(1).paused_by == ("ana" if section else "web")


class _other_site:  # noqa: N801  used as a function
    """A server at another port, which is another origin."""

    def __init__(self, body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        # With threads, and not waited for: a browser opens connections ahead of requests.
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

        self._server.daemon_threads = True
        self._server.block_on_close = False

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def test_tables_are_found_with_the_keyboard_alone(site, open_page):
    page = open_page()
    page.goto(site.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.goto(f"{site.url}/tables")
    page.keyboard.press("/")
    page.keyboard.type("t1")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=t1**")
    page.locator("#rows a").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="t1").wait_for()


def test_pages_work_without_javascript(site, open_page):
    page = open_page(java_script_enabled=False)
    page.goto(f"{site.url}/tables")
    page.get_by_label("Search").fill("t2")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="t2", exact=True).last.click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused by web").wait_for()
