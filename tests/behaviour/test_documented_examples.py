"""What the pages tell a reader to type works, as pasted, from the top of each page."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehand
from support.documented_pages import ROOT, Page
from support.serving import Lake

if TYPE_CHECKING:
    from pathlib import Path

#: Pages with blocks that another test runs: recovery on damaged tables, Spark in its session.
ELSEWHERE = {"docs/guides/recovery.md", "docs/guides/spark.md", "docs/benchmarks.md"}
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if page.parent.name not in {"reference", "decisions", "contributing"}
    and re.search(r"^```(?:console|python|sql|toml|yaml|json)$", page.read_text(), re.MULTILINE)
)
#: Tables that a page has beyond `events` and `orders` of the lake and `path/to/table`.
MORE_TABLES = {
    "README.md": ["lake/events"],
    "docs/guides/compaction.md": ["lake/large"],
    "docs/guides/purge.md": ["lake/people"],
    "docs/guides/maintenance.md": ["lake/users", "lake/sales/orders"],
    "docs/guides/metrics.md": ["lake/sales"],
    "docs/migration.md": ["path/to/orders"],
}
#: Pages whose reader starts with nothing.
FROM_NOTHING = {
    "docs/tutorial.md",
    "docs/guides/lance.md",
    "docs/guides/schema-evolution.md",
    "docs/guides/upserts.md",
    "docs/guides/writing.md",
}
WITH_SERVICE = re.compile(
    r"127\.0\.0\.1:8484|ServiceClient|system\.jobs"
    r"|\$ lakehand (?:service|tables|jobs|workers|budgets|policies)\b"
)
QUERIES = "SELECT amount FROM events WHERE customer = 7;\nSELECT id FROM events WHERE amount > 3;\n"

pytestmark = [pytest.mark.xdist_group("documented examples"), pytest.mark.timeout(300)]


def rows(first: int, count: int = 10) -> pa.Table:
    ids = range(first, first + count)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": [("eu", "us")[i % 2] for i in ids],
            "amount": pa.array([i / 4 for i in ids], pa.float64()),
            "customer": pa.array([i * 7 % 13 for i in ids], pa.int64()),
            "ts": pa.array([start + timedelta(hours=i) for i in ids], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A table with enough versions, whose commits are old enough for every example."""
    path = tmp_path_factory.mktemp("documented") / "events"
    for commit in range(14):
        write_deltalake(str(path), rows(commit * 10), mode="append", partition_by=["region"])
    then = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for commit in (path / "_delta_log").iterdir():
        os.utime(commit, (then, then))
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory, template):
    """A running service with a table of each name that pages use."""
    lake = Lake(tmp_path_factory.mktemp("served") / "lake")
    lake.configure()
    for name in ("orders", "users", "events"):
        shutil.copytree(template, lake.root / "tables" / name)
    lake.start()
    yield lake
    lake.kill_all()


def url_of(lake: Lake) -> str:
    listening = re.compile(r"Listening at (http://\S+)")
    return lake.wait_for(lambda: listening.search(lake.read_log()))[1]


@pytest.fixture
def place(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith(("LAKEHAND_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_tables(name: str, template: Path, place: Path) -> None:
    """Make what the reader of a page has: tables, and files of queries and statements."""
    for table in ("lake/events", "lake/orders", "path/to/table", *MORE_TABLES.get(name, ())):
        shutil.copytree(template, place / table, dirs_exist_ok=True)
    if name == "docs/guides/health.md":  # The table is healthy.
        lakehand.open_table(place / "lake" / "events").checkpoint()
    if name == "docs/guides/clustering.md":
        visits = lakehand.create_table(place / "lake" / "visits", rows(0).schema)
        visits.cluster_by(["customer", "ts"])
        visits.append(rows(0))
    stray = place / "lake" / "events" / "stray.parquet"  # what a dead writer left
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    (place / "queries.sql").write_text(QUERIES)
    (place / "statements.sql").write_text("SHOW SETTINGS")
    source = '[[source]]\nname = "lake"\ninclude = ["lake/sales"]\n'
    if name == "docs/guides/maintenance.md":
        (place / "lakehand.toml").write_text(source)


def use_service(page: Page, lake: Lake) -> None:
    """Let a page talk to a running service."""
    page.service_url = url_of(lake)
    page.names["client"] = lakehand.ServiceClient(lake.config)
    if page.name != "docs/guides/sql.md":  # There the file would make jobs of statements.
        config = lake.config.read_text().replace("tables", f"{lake.root}/tables")
        (page.place / "lakehand.toml").write_text(config)


@pytest.mark.parametrize("name", [page for page in PAGES if page not in ELSEWHERE])
def test_a_page_works_from_its_top(name, template, place, request):
    page = Page(name, place, is_compared=name == "docs/tutorial.md")
    if name not in FROM_NOTHING:
        make_tables(name, template, place)
        if WITH_SERVICE.search((ROOT / name).read_text()):
            use_service(page, request.getfixturevalue("service"))
    try:
        page.run()
    finally:
        page.close()
