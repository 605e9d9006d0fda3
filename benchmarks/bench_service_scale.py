"""A scheduler over many tables: its memory, its tick, and how long it takes to find them.

The tables are real Delta tables whose logs are hard links to one. The goal is less than 300 MB of
resident memory with 10,000 registered tables.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from process_tree import usage_of
from sqlalchemy import insert

from lakehand.service.config import parse_config
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import TABLES
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry

ROOT = Path(__file__).parent.parent
COUNT = int(os.environ.get("LAKEHAND_BENCH_TABLES", "10000"))
MANY = int(os.environ.get("LAKEHAND_BENCH_REGISTERED", "100000"))
RESULTS = ROOT / "benchmarks" / "results" / "service_scale.json"
GOAL_MB = 300.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """One measured part of a scheduler's work."""

    name: str
    tables: int
    seconds: float
    core_seconds: float
    rss_mb: float
    load: float


class Measured:
    """Measures parts of the work of this process, one after the other."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def run(self, name: str, tables: int, function: Any, *args: Any) -> Any:
        began, worked = time.perf_counter(), time.process_time()
        result = function(*args)
        self.parts.append(
            Part(
                name=name,
                tables=tables,
                seconds=round(time.perf_counter() - began, 2),
                core_seconds=round(time.process_time() - worked, 2),
                rss_mb=round(usage_of(os.getpid()).rss_bytes / 1e6, 1),
                load=round(os.getloadavg()[0], 1),
            )
        )
        print(describe(self.parts[-1]))
        return result


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="lakehand-bench-"))
    try:
        measured = Measured()
        # By another process: what writing a table loads is not part of a scheduler.
        with multiprocessing.get_context("spawn").Pool(1) as other:
            other.apply(make_lake, (directory / "lake", COUNT))
        measure_ticks(directory, measured)
        measure_memory(directory, measured)
    finally:
        shutil.rmtree(directory)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(part) for part in measured.parts], indent=2) + "\n")
    most = max(part.rss_mb for part in measured.parts if part.tables <= COUNT)
    sys.exit(0 if most < GOAL_MB else "the goal is missed")


def make_lake(root: Path, count: int) -> None:
    """Make so many tables, a hundred in each directory."""

    import pyarrow as pa

    import lakehand

    first = root / "d0" / "t0"
    rows = pa.table({"id": [1]})
    table = lakehand.create_table(first, rows.schema, engine="local")
    for _ in range(5):
        table.append(rows)
    commits = sorted((first / "_delta_log").glob("*.json"))
    for number in range(1, count):
        log = root / f"d{number // 100}" / f"t{number}" / "_delta_log"
        log.mkdir(parents=True)
        for commit in commits:
            (log / commit.name).hardlink_to(commit)


def new_scheduler(url: str, lake: Path) -> Scheduler:
    database = open_database(url)
    document = {"source": [{"name": "lake", "include": [str(lake)], "every": "1h"}]}
    return Scheduler(
        parse_config(document),
        database,
        jobs=JobQueue(database),
        tables=TableRegistry(database),
        workers=WorkerRegistry(database),
    )


def measure_ticks(directory: Path, measured: Measured) -> None:
    scheduler = new_scheduler(f"sqlite:///{directory}/jobs.db", directory / "lake")
    measured.run("first tick: discovery, first looks", COUNT, scheduler.tick)
    measured.run("looks at the others, a job for each", COUNT, look_at_all, scheduler)
    make_due(scheduler)
    measured.run("looks at unchanged tables", COUNT, look_at_all, scheduler)
    scheduler._listed_at.clear()
    measured.run("discovery of known tables", COUNT, scheduler.tick)


def look_at_all(scheduler: Scheduler) -> int:
    looked_at = 0
    while found := scheduler.tick().looked_at:
        looked_at += found
    return looked_at


def make_due(scheduler: Scheduler) -> None:
    with scheduler._database.transaction() as connection:
        connection.execute(TABLES.update().values(look_at=0))


def measure_memory(directory: Path, measured: Measured) -> None:
    """Register very many tables and have a tick with nothing due."""
    url = f"sqlite:///{directory}/many.db"
    scheduler = new_scheduler(url, directory / "none")
    scheduler.config = parse_config({})
    far = time.time() + 3600
    values = {"source": "manual", "found_at": far, "seen_at": far, "look_at": far}
    rows = [{"url": f"s3://lake/t{n}", **values} for n in range(MANY)]
    with scheduler._database.transaction() as connection:
        connection.execute(insert(TABLES), rows)
    del rows
    measured.run("a tick with nothing due", MANY, scheduler.tick)


def describe(part: Part) -> str:
    return (
        f"{part.name:38} {part.tables:7} tables   {part.seconds:7.2f} s   "
        f"{part.core_seconds:7.2f} core s   {part.rss_mb:6.1f} MB   load {part.load}"
    )


if __name__ == "__main__":
    main()
