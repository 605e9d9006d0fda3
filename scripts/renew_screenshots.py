"""Renew the screenshots of docs/guides/web.md: a service with made-up rows, in Chromium.

Needs `scripts/install-chromium` and the packages of the group `dev`. Each picture shows the top of
a page.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from playwright.sync_api import sync_playwright
from sqlalchemy import insert, update

import lakehand
from lakehand.service.config import parse_config
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database import Database, open_database
from lakehand.service.store.database_schema import BUDGETS, MEASUREMENTS, POOLS
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd, Claim, FoundTable, JobRequest
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import Leadership, Worker, WorkerRegistry
from lakehand.web.server import WebServer

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = ROOT / ".cache" / "chromium" / "chromium"
NAMES = ("orders", "customers", "page_views", "click_events", "payments", "invoices", "stock")
#: Pages, and how much of each is shown.
SHOTS = {"web-overview": ("/", 880), "web-table": ("/tables/1", 1240)}
TABLES, DAYS = 90, 14
#: The commit after which the table is compacted.
COMPACTED = 12
MIB = 2**20


def make_table(path: Path) -> None:
    """Write a table with small files, most of which are compacted."""
    schema = pa.schema({"day": pa.string(), "id": pa.int64(), "text": pa.string()})
    table = lakehand.create_table(path, schema, partition_by=["day"])
    for number in range(18):
        ids = list(range(number * 500, number * 500 + 500))
        columns = {"day": [f"2026-11-{10 + number % 6:02}"] * 500, "id": ids}
        columns["text"] = [f"row {one}" for one in ids]
        table.append(pa.table(columns, schema=schema))
        if number == COMPACTED:
            table.compact(quiet_period="0s", min_files=2)


def fill(database: Database, path: Path) -> None:
    """Register tables, measurements, workers and jobs."""
    chance = random.Random(7)
    tables, now = TableRegistry(database), database.time()
    measured = []
    for number in range(TABLES):
        name = NAMES[number % len(NAMES)] + (f"_{number}" if number >= len(NAMES) else "")
        url = f"file://{path}" if number == 0 else f"s3://lake/{name}"
        found, _ = tables.add(FoundTable(url=url, format="delta", name=name), source="lake")
        score = 60 + chance.randrange(25)
        for day in range(DAYS):
            score = max(30, min(100, score + chance.randrange(-6, 10)))
            at = now - 86_400 * (DAYS - 1 - day) - chance.random() * 3000
            measured.append({"table_id": found.id, "at": at, "version": day, "health_score": score})
        size = int(10 ** chance.uniform(7, 12))
        summary = {"file_count": 1 + size // (64 * MIB), "total_bytes": size}
        tables.looked(
            found.id, look_every=600, policy="default", health_score=score, summary=summary
        )
    with database.transaction() as connection:
        connection.execute(insert(POOLS).values(name="default", max_running=4))
        connection.execute(insert(MEASUREMENTS), measured)
    run_jobs(database, path)


def run_jobs(database: Database, path: Path) -> None:
    """Add workers, and jobs in several states."""
    jobs, workers = JobQueue(database), WorkerRegistry(database)
    for name in ("node-a-4711", "node-b-812"):
        host, _, pid = name.rpartition("-")
        known = {"version": "0.1.0", "engines": ["local"], "slots": 4, "memory_bytes": 2**34}
        workers.start(Worker(id=name, host=host, pid=int(pid), **known))
    Leadership(database, "scheduler", "node-a-4711").hold(3600)
    why = ["12 commits since the last maintenance"]
    for number in range(1, 10):
        verb = "compact" if number == 1 else "maintain"
        jobs.enqueue(JobRequest(table_id=number, verb=verb, trigger="commits", reasons=why))
    job = jobs.claim(Claim(worker_id="node-a-4711"))
    report = lakehand.open_table(path).compact(quiet_period="0s", min_files=2).to_json()
    end = AttemptEnd(outcome="committed", report=report, spent={"core_seconds": 1.9})
    jobs.finish(job.id, job.fence, end, state="succeeded")
    for done in (9, 17, 21):
        job = jobs.claim(Claim(worker_id="node-b-812"))
        progress = {"phase": "prove", "done": done, "total": 24, "unit": "groups"}
        jobs.beat(job.id, job.fence, lease_seconds=3600, progress=progress)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    BudgetStore(database).allow("all-tables", "bytes", day, 2**41)
    with database.transaction() as connection:
        connection.execute(update(BUDGETS).values(spent=2**39.5, reserved=2**36))


def main() -> int:
    if not CHROMIUM.exists():
        print("scripts/install-chromium first", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "orders"
        make_table(path)
        database = open_database(f"sqlite:///{scratch}/jobs.db")
        fill(database, path)
        jobs, tables = JobQueue(database), TableRegistry(database)
        budget = {"all-tables": {"bytes_per_day": "2TiB"}}
        config = parse_config({"web": {"listen": "127.0.0.1:0"}, "budget": budget})
        with WebServer(config, database, jobs=jobs, tables=tables) as server:
            take(server.url, scratch)
        database.close()
    return 0


def take(url: str, scratch: str) -> None:
    """Write the pictures; paths of this machine are not shown."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM))
        for name, (path, height) in SHOTS.items():
            page = browser.new_page(viewport={"width": 1240, "height": height})
            page.goto(url + path)
            page.get_by_text("live", exact=True).wait_for()
            if path.startswith("/tables/"):
                page.locator(".picture svg").wait_for()  # The log is read in the background.
            hide = (
                "(from) => document.body.innerHTML = document.body.innerHTML.replaceAll(from, '')"
            )
            page.evaluate(hide, scratch)
            page.screenshot(path=str(IMAGES / f"{name}.png"))
            page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
