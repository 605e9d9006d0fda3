"""Change a hot table, read it and flush it, beside SQLite and beside the disk alone.

Acknowledged changes a second, with and without a sync of the disk; how long reads take over hot and
cold rows; rows a second of a flush, appended and by key; and memory under writers who are faster
than flushes. Only ratios mean something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sections import ROOT, Section, circumstances, in_words

import lakehand
from lakehand.hot import HotTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FULL_ROWS = 2_000_000
COLD_FILES = 20
ROWS_A_CHANGE = 10
THREADS = 8
MEMORY_BYTES = 64 * 2**20
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("city", pa.string()),
        ("x", pa.float64()),
    ]
)
_ROW_BYTES = 40
#: Nothing is flushed but by hand.
BY_HAND = {"hot_flush_rows": 10**9, "hot_flush_bytes": "64GiB", "hot_memory_bytes": "64GiB"}


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        is_full = chosen.rows >= FULL_ROWS
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    sys.exit(0 if stays_within_memory(found) else "memory is not bounded")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows, help="rows of the cold table")
    options.add_argument("--changes", type=int, default=2_000, help="changes of one run")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    around = circumstances()
    scratch = ROOT / ".cache" / "bench" / "hot"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    found = {
        **around,
        "rows": chosen.rows,
        "changes": chosen.changes,
        "changes_per_second": measure_changes(scratch, chosen.changes, chosen.runs),
        "reads_ms": measure_reads(scratch / "reads", chosen.rows, chosen.runs),
        "flush_rows_per_second": measure_flushes(scratch, chosen.rows // 4, chosen.runs),
        "memory": measure_memory(scratch / "memory", chosen.rows),
    }
    shutil.rmtree(scratch)
    return found


def rows(first: int, count: int) -> pa.RecordBatch:
    chance = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    cities = np.array(["Oslo", "Lima", "Pune", "Kyiv"])[chance.integers(0, 4, count)]
    columns = [ids, ids * 1_000_000, cities, chance.normal(size=count)]
    arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# Changes


def measure_changes(scratch: Path, changes: int, runs: int) -> dict[str, list[float]]:
    """Return changes of ten rows that were acknowledged in a second, run by run and in turns."""
    found: dict[str, list[float]] = {}
    for run in range(1 + runs):  # the first one warms up
        for name, contender in CHANGERS.items():
            place = scratch / f"changes-{run}"
            place.mkdir()
            speed = changes / contender(place, changes)
            shutil.rmtree(place)
            if run:
                found.setdefault(name, []).append(speed)
        print(f"changes, run {run}", flush=True)
    return found


def _hot(durability: str, threads: int) -> Callable[[Path, int], float]:
    def change(place: Path, changes: int) -> float:
        options = {"hot_durability": durability, **BY_HAND}
        batch = rows(0, ROWS_A_CHANGE)
        with HotTable(place / "t", log=place / "log", schema=SCHEMA, **options) as hot:

            def some() -> None:
                for _ in range(changes // threads):
                    hot.append(batch)

            seconds = _timed_threads(some, threads)
            hot.close(flush=False)
        return seconds

    return change


def _sqlite(synchronous: str) -> Callable[[Path, int], float]:
    def change(place: Path, changes: int) -> float:
        data = list(zip(*(c.to_pylist() for c in rows(0, ROWS_A_CHANGE).columns), strict=True))
        values = [(i, at.isoformat(), city, x) for i, at, city, x in data]
        with sqlite3.connect(place / "db", isolation_level=None) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("CREATE TABLE t (id INTEGER, at TEXT, city TEXT, x REAL)")
            started = time.perf_counter()
            for _ in range(changes):
                connection.execute("BEGIN")
                connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", values)
                connection.execute("COMMIT")
            return time.perf_counter() - started

    return change


def _disk(place: Path, changes: int) -> float:
    """Write as many bytes as a change has, and sync; nothing else."""
    data = bytes(1000)
    descriptor = os.open(place / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    started = time.perf_counter()
    for _ in range(changes):
        os.write(descriptor, data)
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - started
    os.close(descriptor)
    return seconds


CHANGERS: dict[str, Callable[[Path, int], float]] = {
    "hot table, full": _hot("full", 1),
    f"hot table, full, {THREADS} threads": _hot("full", THREADS),
    "hot table, lazy": _hot("lazy", 1),
    "hot table, none": _hot("none", 1),
    "SQLite, synchronous=FULL": _sqlite("FULL"),
    "SQLite, synchronous=OFF": _sqlite("OFF"),
    "write and fdatasync alone": _disk,
}


def _timed_threads(work: Callable[[], None], count: int) -> float:
    threads = [threading.Thread(target=work) for _ in range(count)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


# Reads


def measure_reads(place: Path, count: int, runs: int) -> dict[str, dict[str, float]]:
    """Return how long reads take over many cold rows and some hot ones, a tenth of them changed."""
    cold = lakehand.create_table(place / "t", SCHEMA)
    for number in range(COLD_FILES):
        cold.append(rows(number * count // COLD_FILES, count // COLD_FILES))
    options = {"hot_refresh_interval": "1h", **BY_HAND}
    with HotTable(place / "t", log=place / "log", key=["id"], **options) as hot:
        for number in range(50):
            hot.upsert(rows(number * count // 500, 1000))
        questions = {
            "a hot key": lambda: hot.read(key=100),
            "a cold key": lambda: hot.read(key=count - 7),
            "a range in one file": lambda: hot.read(where=f"id > {count - 5000}"),
            "one column of all rows": lambda: hot.read(columns=["x"]),
        }
        found = {name: _times(question, 5 * runs) for name, question in questions.items()}
        plain = lakehand.open_table(place / "t")
        found["the cold table alone: one column of all rows"] = _times(
            lambda: plain.to_arrow(columns=["x"]), 5 * runs
        )
        hot.close(flush=False)
    print("reads", flush=True)
    return found


def _times(work: Callable[[], Any], count: int) -> dict[str, float]:
    work()
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return {"median": statistics.median(taken), "worst": max(taken)}


# Flushes


def measure_flushes(scratch: Path, count: int, runs: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"appended": [], "by key, a tenth replaced": []}
    for run in range(runs):
        for name, key in zip(found, ((), ("id",)), strict=True):
            place = scratch / f"flush-{run}-{len(key)}"
            options = {"hot_durability": "lazy", "schema": SCHEMA, **BY_HAND}
            with HotTable(place / "t", log=place / "log", key=key, **options) as hot:
                hot.append(rows(0, count))
                hot.flush()
                for first in range(count - count // 10, 2 * count - count // 10, 10_000):
                    hot.append(rows(first, 10_000))
                started = time.perf_counter()
                report = hot.flush()
                found[name].append(report.rows_written / (time.perf_counter() - started))
            shutil.rmtree(place)
    print("flushes", flush=True)
    return found


# Memory


def measure_memory(place: Path, count: int) -> dict[str, float]:
    """Let writers bring rows as fast as they can, and see what waits and what it takes."""
    bound = min(MEMORY_BYTES, count * _ROW_BYTES // 8)
    options = {"hot_memory_bytes": bound, "hot_flush_bytes": bound // 4}
    rss_before = _peak_mib()
    batches = [rows(first, 10_000) for first in range(0, count, 10_000)]
    with HotTable(place / "t", log=place / "log", schema=SCHEMA, **options) as hot:
        left = iter(batches)
        lock = threading.Lock()

        def bring() -> None:
            while True:
                with lock:
                    batch = next(left, None)
                if batch is None:
                    return
                hot.append(batch)

        seconds = _timed_threads(bring, 4)
        stats = hot.storage_stats()
    return {
        "rows_per_second": count / seconds,
        "bound_mib": bound / 2**20,
        "peak_mib": stats.shared_peak_bytes / 2**20,
        "waits": stats.waits,
        "flushes": stats.flushes,
        "process_grew_mib": _peak_mib() - rss_before,
        "rows_there": lakehand.open_table(place / "t").to_arrow(columns=["id"]).num_rows,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# The page


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        in_words(
            found, f"{ROWS_A_CHANGE} rows per change, {found['rows']:,} in {COLD_FILES} cold files"
        ),
        "",
        "| acknowledged changes per second | median | worst |",
        "|---|---:|---:|",
        *(_speeds(name, runs) for name, runs in found["changes_per_second"].items()),
        "",
        "| reads over hot and cold rows | median ms | worst ms |",
        "|---|---:|---:|",
    ]
    lines += [
        f"| {name} | {one['median']:.1f} | {one['worst']:.1f} |"
        for name, one in found["reads_ms"].items()
    ]
    lines += ["", "| flushed rows per second | median | worst |", "|---|---:|---:|"]
    lines += [_speeds(name, runs) for name, runs in found["flush_rows_per_second"].items()]
    return "\n".join([*lines, "", _memory(found["memory"])])


def _memory(memory: dict[str, Any]) -> str:
    return (
        f"Four writers, {memory['rows_per_second']:,.0f} rows per second: changes used at most"
        f" {memory['peak_mib']:.0f} of {memory['bound_mib']:.0f} MiB, writers waited"
        f" {memory['waits']} times, {memory['flushes']} flushes; the process grew by"
        f" {memory['process_grew_mib']:.0f} MiB."
    )


def _speeds(name: str, runs: list[float]) -> str:
    return f"| {name} | {statistics.median(runs):,.0f} | {min(runs):,.0f} |"


def stays_within_memory(found: dict[str, Any]) -> bool:
    memory = found["memory"]
    is_whole = memory["rows_there"] == found["rows"]
    return bool(memory["peak_mib"] <= memory["bound_mib"] and memory["waits"] and is_whole)


SECTION = Section(name="hot", table=table)

if __name__ == "__main__":
    main()
