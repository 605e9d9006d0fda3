"""Lakehand's order against oldest first, on real Delta tables that real writers overload.

Two services run at the same time on two lakes, with one slot each, and get the same appends of
delta-rs. So other load on the machine is the same for both. Appends come ever faster until both
slots are busy nearly all the time, and then at a multiple of that rate. A fixed set of queries is
drawn by how often tables are read; read cost is the number of files that these queries would open,
on average over the time since the slots are busy.

Files differ in size by a factor of a hundred, and reads by more. With `--importance` policies say
how often tables are read, in powers of two; without it the service does not know.

A day of a lake is compressed into the minutes of a run, writes and waits alike, so head starts are
divided by the same factor; `--real-time` leaves them as they are.

    python benchmarks/bench_scheduling.py --tables 200 --minutes 30
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

RESULTS = Path(__file__).parent / "results" / "scheduling_real.json"
ORDERS = ("lakehand", "oldest")
MIN_FILES = 8
#: Appends per second at first; they grow by this factor until slots are busy for this share.
FIRST_RATE, GROWTH, BUSY = 5.0, 1.3, 0.9
#: Over this many seconds that is measured.
BUSY_SECONDS = 45.0
WRITERS = 3
DAY_MINUTES = 1440.0
#: The first forecasts are made before anything is known.
WARM_UP_JOBS = 10
BUDGET, SLICE = 2**21, 2**19


# -- the services ------------------------------------------------------------------------------


def serve(order: str, factor: float, config: Path) -> int:
    """Run the service, with another order or with shorter head starts."""
    from lakehand.cli.main import run
    from lakehand.service import scheduler, triggers

    own = triggers.head_start

    def head_start(score: float = 0.0, *, importance: float = 1.0) -> float:
        return 0.0 if order == "oldest" else factor * own(score, importance=importance)

    triggers.head_start = scheduler.head_start = head_start  # type: ignore[attr-defined]
    scheduler.OVERDUE_SECONDS *= factor  # type: ignore[attr-defined]
    scheduler._PROMOTE_EVERY *= factor
    return run(["serve", "--config", str(config), "--roles", "scheduler,worker"])


class Service:
    """A service in its own process, its lake and its job store."""

    def __init__(self, root: Path, order: str) -> None:
        self.order = order
        self.importance: dict[int, float] = {}
        self.lake = root / "lake"
        self.store = root / "jobs.db"
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, factor: float, *, budget: bool = False) -> None:
        config = self._root / "lakehand.toml"
        config.write_text(self._config(budget=budget))
        command = [sys.executable, __file__, "--serve", self.order, str(factor), str(config)]
        with (self._root / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        if not self.store.exists():
            return []
        connection = sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=30)
        try:
            return connection.execute(statement).fetchall()
        except sqlite3.OperationalError:  # The service has not made its tables yet.
            return []
        finally:
            connection.close()

    def busy_share(self, seconds: float) -> float:
        """Return the share of the last seconds in which a job ran."""
        now = time.time()
        since = now - seconds
        found = self.rows("SELECT started_at, ended_at FROM attempts")
        parts = [min(ended or now, now) - max(started, since) for started, ended in found]
        return sum(part for part in parts if part > 0) / seconds

    def _config(self, *, budget: bool) -> str:
        limits = f'\n[budget.all]\nbytes_per_day = "{BUDGET}B"\n' if budget else ""
        slices = f'slice_bytes = "{SLICE}B"\n' if budget else ""
        return f"""
[service]
store = "sqlite:///{self.store}"
poll_interval = "2s"
max_poll_interval = "10s"
max_concurrent_jobs = 1

[[source]]
name = "lake"
include = ["{self.lake}"]

{self._policies(slices)}{limits}"""

    def _policies(self, slices: str) -> str:
        """Return a policy for each importance, and one for all other tables."""
        rules = f"""steps = ["compact"]
min_files = {MIN_FILES}
quiet_period = "0s"
check_after = {{ commits = {MIN_FILES // 2}, time = "30s" }}
{slices}
"""
        parts = ["[policy.default]", rules]
        for value in sorted(set(self.importance.values())):
            names = [f"t{table:03}" for table, one in self.importance.items() if one == value]
            parts += [f"[policy.reads_{value:.0f}]", f"match = {json.dumps(names)}"]
            parts += [f"importance = {value}", rules]
        return "\n".join(parts)


# -- writers and queries -----------------------------------------------------------------------


class Writers:
    """Threads that append to the same tables of all lakes, at a rate that can be changed."""

    def __init__(self, lakes: list[Path], tables: int, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self._lakes = lakes
        weights = 1.0 / np.arange(1, tables + 1) ** 0.7
        self.chance.shuffle(weights)
        self._weights = weights / weights.sum()
        # Row groups below 20,000 rows and a MiB are encoded again: the cost follows the size.
        rows = self.chance.lognormal(np.log(2000), 1.5, tables).clip(100, 19_000)
        self._rows = rows.astype(int)
        texts = self.chance.bytes(19_000 * 20).hex()
        numbers = self.chance.integers(0, 2**62, 19_000)
        payload = [texts[40 * n : 40 * n + 40] for n in range(19_000)]
        self._data = pa.table({"id": numbers, "payload": payload})
        self._queue: queue.Queue[int | None] = queue.Queue(maxsize=50)
        self.rate = 1.0
        self.written = 0
        self.skipped = 0
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._write_all) for _ in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._choose))

    def make_tables(self) -> None:
        for table in range(len(self._rows)):
            for _ in range(2):
                self._append(table)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for _ in range(WRITERS):
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _choose(self) -> None:
        while not self._done.wait(float(self.chance.exponential(1 / self.rate))):
            try:
                self._queue.put_nowait(int(self.chance.choice(len(self._rows), p=self._weights)))
            except queue.Full:
                self.skipped += 1

    def _write_all(self) -> None:
        while (table := self._queue.get()) is not None:
            self._append(table)
            self.written += 1

    def _append(self, table: int) -> None:
        from deltalake import write_deltalake

        rows = self._data.slice(0, self._rows[table])
        for lake in self._lakes:
            write_deltalake(str(lake / f"t{table:03}"), rows, mode="append")


class Queries:
    """A fixed set of queries: how many files they would open."""

    def __init__(self, lake: Path, tables: list[int]) -> None:
        from deltalake import DeltaTable

        counts = {table: tables.count(table) for table in set(tables)}
        self._tables = [
            (DeltaTable(str(lake / f"t{table:03}")), times) for table, times in counts.items()
        ]

    def files_opened(self) -> int:
        opened = 0
        for table, times in self._tables:
            table.update_incremental()
            opened += times * len(table.file_uris())
        return opened


# -- a run -------------------------------------------------------------------------------------


@dataclass
class Run:
    """What is measured of one service."""

    order: str
    samples: list[int] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)


def measure(given: argparse.Namespace, root: Path) -> dict[str, Any]:
    services = [Service(root / order, order) for order in ORDERS]
    writers = Writers([service.lake for service in services], given.tables, given.seed)
    writers.make_tables()
    reads = 1.0 + writers.chance.pareto(1.2, given.tables)
    drawn = writers.chance.choice(given.tables, size=2 * given.tables, p=reads / reads.sum())
    queries = [Queries(service.lake, [int(n) for n in drawn]) for service in services]
    if given.importance:
        steps = np.floor(np.log2(reads)).clip(0, 6)
        for service in services:
            service.importance = {n: float(2**step) for n, step in enumerate(steps) if step > 0}
    factor = 1.0 if given.real_time else given.minutes / DAY_MINUTES
    for service in services:
        service.start(factor)
    writers.start()
    runs = [Run(order=service.order) for service in services]
    began = time.time()
    try:
        _watch(given, services, writers, queries, runs, began)
    finally:
        writers.stop()
        for service in services:
            service.stop()
    seconds = time.time() - began
    for service, run in zip(services, runs, strict=True):
        run.result = {**_outcome(service, given.tables, seconds), **_forecasts(service)}
        run.result["files_opened"] = round(statistics.mean(run.samples), 1)
    own, oldest = (run.result["files_opened"] for run in runs)
    return {
        "tables": given.tables,
        "minutes": round(seconds / 60, 1),
        "load_of_writers": given.load,
        "appends": writers.written,
        "appends_skipped": writers.skipped,
        "machine_load": round(os.getloadavg()[2], 1),
        "head_start_factor": round(factor, 4),
        "is_importance_given": given.importance,
        "read_cost_ratio": round(own / oldest, 3),
        "samples": {run.order: run.samples for run in runs},
        **{run.order: run.result for run in runs},
        "budget": _check_budget(services[0], given),
    }


def _watch(
    given: argparse.Namespace,
    services: list[Service],
    writers: Writers,
    queries: list[Queries],
    runs: list[Run],
    began: float,
) -> None:
    """Sample the queries until the time is over, and let writes follow what services can do."""
    writers.rate, is_full, changed_at = FIRST_RATE, False, began
    every = max(2.0, given.minutes)
    while (now := time.time()) < began + given.minutes * 60:
        if not is_full and now - changed_at > BUSY_SECONDS:
            is_full = min(one.busy_share(BUSY_SECONDS) for one in services) >= BUSY
            writers.rate *= given.load if is_full else GROWTH
            changed_at = now
            if is_full:
                for run in runs:
                    run.samples.clear()
        for run, query in zip(runs, queries, strict=True):
            run.samples.append(query.files_opened())
        opened = ", ".join(f"{run.order} {run.samples[-1]}" for run in runs)
        print(f"{now - began:6.0f} s  {writers.rate:.1f} appends/s  {opened}", flush=True)
        time.sleep(every)


def _outcome(service: Service, tables: int, seconds: float) -> dict[str, Any]:
    """Return how long jobs have waited and how busy the slot was; one job is one wait."""
    now = time.time()
    started = service.rows("SELECT table_id, queued_at, started_at, state FROM jobs")
    waits = sorted((one[2] or now) - one[1] for one in started) or [0.0]
    served = {row[0] for row in started if row[2] is not None}
    unserved = {row[0] for row in started if row[2] is None and now - row[1] > seconds / 2}
    busy = service.rows("SELECT sum(ended_at - started_at), count(*) FROM attempts")[0]
    spent = service.rows("SELECT spent FROM attempts WHERE ended_at IS NOT NULL")
    return {
        "attempts": busy[1],
        "slot_busy": round((busy[0] or 0.0) / seconds, 3),
        "core_seconds": round(sum(json.loads(one[0]).get("core_seconds", 0) for one in spent), 1),
        "tables_served": len(served),
        "tables_of": tables,
        "starved": len(unserved - served),
        "wait_p50_seconds": round(waits[len(waits) // 2], 1),
        "wait_p99_seconds": round(waits[int(len(waits) * 0.99)], 1),
        "longest_wait_seconds": round(waits[-1], 1),
    }


def _forecasts(service: Service) -> dict[str, Any]:
    """Compare forecasts with actuals, with the calibration of that time and without."""
    statement = (
        "SELECT jobs.expected, attempts.spent FROM attempts JOIN jobs ON jobs.id = attempts.job_id"
        " WHERE attempts.outcome = 'committed' ORDER BY attempts.ended_at"
    )
    errors: dict[str, list[float]] = {"plain": [], "calibrated": []}
    for expected, spent in service.rows(statement):
        step = json.loads(expected).get("steps", {}).get("compact")
        actual = json.loads(spent).get("core_seconds")
        if step and actual:
            errors["plain"].append(abs(step["forecast_core_seconds"] / actual - 1))
            errors["calibrated"].append(abs(step["core_seconds"] / actual - 1))
    later = {name: found[WARM_UP_JOBS:] for name, found in errors.items()}
    if not later["plain"]:
        return {}
    return {
        "forecasts": len(later["plain"]),
        "median_error_plain": round(statistics.median(later["plain"]), 3),
        "median_error_calibrated": round(statistics.median(later["calibrated"]), 3),
    }


def _check_budget(service: Service, given: argparse.Namespace) -> dict[str, Any]:
    """Let the service go on with a budget of bytes that is too small for what is left to do."""
    if not given.budget_seconds:
        return {}
    began = time.time()
    service.start(1.0, budget=True)
    time.sleep(given.budget_seconds)
    waiting = service.rows("SELECT count(*) FROM jobs WHERE waits_for = 'budget'")[0][0]
    service.stop()
    statement = f"SELECT spent, outcome FROM attempts WHERE started_at > {began}"
    ends = [(json.loads(spent), outcome) for spent, outcome in service.rows(statement)]
    rewritten = sum(spent.get("bytes", 0.0) for spent, _ in ends)
    return {
        "allowed_bytes": BUDGET,
        "slice_bytes": SLICE,
        "rewritten_bytes": int(rewritten),
        "attempts": len(ends),
        "jobs_waiting_for_budget": waiting,
        "is_held": rewritten <= BUDGET + SLICE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real-time", action="store_true", help="head starts as they are")
    parser.add_argument("--importance", action="store_true", help="say how often tables are read")
    parser.add_argument("--budget-seconds", type=float, default=90.0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        order, factor, config = given.serve
        sys.exit(serve(order, float(factor), Path(config)))
    with tempfile.TemporaryDirectory(prefix="lakehand-bench-") as directory:
        for order in ORDERS:
            (Path(directory) / order / "lake").mkdir(parents=True)
        result = measure(given, Path(directory))
    print(json.dumps({k: v for k, v in result.items() if k != "samples"}, indent=2))
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
