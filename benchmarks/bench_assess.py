"""Assessment at scale: how long the scheduler takes to look at tables and to assess what changed.

The tables are real Delta tables: their logs are copies of the commits of one that was written, and
a table changes by further copies. What is measured is what the service does in its process:
listings, reading new commits, summaries, scores, and writing to an SQLite job store. The goal is
10,000 tables within a minute on two cores, that is 12 ms of processor time per table, with less
than 300 MB of resident memory. Very many tables are only looked at: a thousand of them have
directories of their own, the others are symbolic links to these.
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
from typing import TYPE_CHECKING, Any

from process_tree import usage_of
from sqlalchemy import insert

from lakehand.service.config import parse_config
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import JOBS, TABLES
from lakehand.service.store.job_claims import configure_pools
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.table_reader import BackgroundReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
COUNTS = tuple(map(int, os.environ.get("LAKEHAND_BENCH_TABLES", "100,1000,10000").split(",")))
#: Tables that are only looked at, and how many of them have directories of their own.
MANY, REAL = int(os.environ.get("LAKEHAND_BENCH_REGISTERED", "100000")), 1000
RESULTS = ROOT / "benchmarks" / "results" / "assess.json"
GOAL_MB, GOAL_MS = 300.0, 12.0
#: Commits of a table when it is found, and how many it gets later.
FIRST, MORE = 6, 3
#: Tables that another process reads as a whole.
READ = 100


@dataclass(frozen=True, kw_only=True)
class Part:
    """One measured part of the work."""

    name: str
    tables: int
    #: Tables whose summary changed.
    assessed: int
    seconds: float
    core_seconds: float
    core_ms_per_table: float
    rss_mb: float
    load: float


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="lakehand-bench-"))
    parts: list[Part] = []
    try:
        # By another process: what writing a table loads is not part of a scheduler.
        with multiprocessing.get_context("spawn").Pool(1) as other:
            commits = other.apply(make_template, (directory / "template",))
            whole = other.apply(make_cleaned_tables, (directory / "whole", commits))
        for count in COUNTS:
            parts += measure(directory / f"n{count}", commits, count)
        parts.append(measure_looks(directory / "many", commits))
        parts.append(measure_whole_tables(directory / "whole", whole))
    finally:
        shutil.rmtree(directory)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(part) for part in parts], indent=2) + "\n")
    own = [part for part in parts if part.tables <= 10_000 and "process" not in part.name]
    is_met = all(part.core_ms_per_table < GOAL_MS and part.rss_mb < GOAL_MB for part in own)
    sys.exit(0 if is_met else "the goal is missed")


def make_template(path: Path) -> list[Path]:
    """Write a table, and return its commits."""
    import pyarrow as pa

    import lakehand

    rows = pa.table({"id": range(1000), "name": [f"customer {n}" for n in range(1000)]})
    table = lakehand.create_table(path, rows.schema, engine="local")
    for _ in range(FIRST + MORE - 1):
        table.append(rows)
    return sorted((path / "_delta_log").glob("*.json"))


def make_tables(root: Path, commits: Sequence[Path], count: int) -> list[str]:
    """Make tables, a hundred in each directory, and return their paths."""
    paths = [root / f"d{number // 100}" / f"t{number}" for number in range(count)]
    for path in paths:
        (path / "_delta_log").mkdir(parents=True)
        add_commits(path, commits[:FIRST])
    return [str(path) for path in paths]


def add_commits(table: Path, commits: Sequence[Path]) -> None:
    for commit in commits:
        # With its time: summaries know their last commit by it, and links share one summary.
        shutil.copy2(commit, table / "_delta_log" / commit.name)


class Bench:
    """A scheduler with registered tables, and what its work takes."""

    def __init__(self, directory: Path, paths: Sequence[str], **columns: Any) -> None:
        self.count = len(paths)
        self.database = open_database(f"sqlite:///{directory}/jobs.db")
        self.tables = TableRegistry(self.database)
        self.reader = BackgroundReader(self.database, self.tables)
        self.scheduler = Scheduler(
            parse_config({}),
            self.database,
            jobs=JobQueue(self.database),
            tables=self.tables,
            workers=WorkerRegistry(self.database),
            reader=self.reader,
        )
        configure_pools(self.database, self.scheduler.config.pools)
        values = {"source": "manual", "format": "delta", "found_at": 0.0, "seen_at": 0.0, **columns}
        rows = [{"url": f"file://{path}", "look_at": 0.0, **values} for path in paths]
        with self.database.transaction() as connection:
            connection.execute(insert(TABLES), rows)

    def make_due(self) -> None:
        with self.database.transaction() as connection:
            connection.execute(TABLES.update().values(look_at=0.0))

    def look_at_all(self) -> int:
        """Look at each table once, and return how many were assessed."""
        assessed = looked_at = 0
        # On a busy machine the first ones are due again before the last.
        while looked_at < self.count:
            tick = self.scheduler.tick()
            looked_at += tick.looked_at
            assessed += tick.assessed
        return assessed

    def measured(self, name: str, work: Callable[[], int]) -> Part:
        tables = self.count
        began, worked = time.perf_counter(), time.process_time()
        assessed = work()
        core_seconds = time.process_time() - worked
        part = Part(
            name=name,
            tables=tables,
            assessed=assessed,
            seconds=round(time.perf_counter() - began, 2),
            core_seconds=round(core_seconds, 2),
            core_ms_per_table=round(core_seconds / tables * 1000, 2),
            rss_mb=round(usage_of(os.getpid()).rss_bytes / 1e6, 1),
            load=round(os.getloadavg()[0], 1),
        )
        print(describe(part), flush=True)
        return part


def measure(directory: Path, commits: Sequence[Path], count: int) -> list[Part]:
    directory.mkdir()
    paths = make_tables(directory / "lake", commits, count)
    bench = Bench(directory, paths)
    parts = [bench.measured("new tables: all assessed, a job for each", bench.look_at_all)]
    bench.make_due()
    parts.append(bench.measured("no table has changed", bench.look_at_all))
    for number in range(0, count, 10):
        add_commits(Path(paths[number]), commits[FIRST:])
    bench.make_due()
    parts.append(bench.measured("a tenth has changed", bench.look_at_all))
    for number in range(count):
        if number % 10:
            add_commits(Path(paths[number]), commits[FIRST:])
    bench.make_due()
    parts.append(bench.measured("nine tenths have changed", bench.look_at_all))
    bench.database.close()
    return parts


def measure_looks(directory: Path, commits: Sequence[Path]) -> Part:
    """Measure looks at very many tables of which none has changed."""
    directory.mkdir()
    real = make_tables(directory / "lake", commits, REAL)
    assessed = Bench(directory, real[:1])
    assessed.look_at_all()
    row = assessed.tables.listed()[0]
    known = {"version": row.version, "summary": row.summary}
    (directory / "links").mkdir()
    links = [directory / "links" / f"t{number}" for number in range(MANY)]
    for number, link in enumerate(links):
        link.symlink_to(real[number % REAL])
    now = time.time()
    bench = Bench(
        directory, list(map(str, links)), assessed_at=now, assessed_version=row.version, **known
    )
    part = bench.measured("no table has changed", bench.look_at_all)
    bench.database.close()
    return part


def make_cleaned_tables(root: Path, commits: Sequence[Path]) -> list[str]:
    """Make tables whose first commit is gone: only a checkpoint tells what it added."""
    import lakehand

    paths = make_tables(root, commits, READ)
    for path in paths:
        lakehand.open_table(path, engine="local").checkpoint()
        (Path(path) / "_delta_log" / commits[0].name).unlink()
    return paths


def measure_whole_tables(directory: Path, paths: Sequence[str]) -> Part:
    """Measure tables that another process has to read, until each has its job."""
    bench = Bench(directory, paths)

    def look() -> int:
        while jobs_queued(bench) < READ:
            bench.scheduler.tick()
            time.sleep(0.02)
        return READ

    part = bench.measured("new tables that another process reads", look)
    bench.reader.close()
    bench.database.close()
    return part


def jobs_queued(bench: Bench) -> int:
    with bench.database.reading() as connection:
        return len(connection.execute(JOBS.select()).all())


def describe(part: Part) -> str:
    return (
        f"{part.name:42} {part.tables:7} tables  {part.seconds:7.2f} s  "
        f"{part.core_seconds:7.2f} core s  {part.core_ms_per_table:6.2f} ms each  "
        f"{part.rss_mb:6.1f} MB  load {part.load}"
    )


if __name__ == "__main__":
    main()
