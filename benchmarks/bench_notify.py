"""Notify the service of commits over HTTP until their jobs are queued; and sinks that notify.

Goals: a p99 below 100 ms from the request to the queued job, on SQLite and on PostgreSQL, with one
client and with eight, each of which pauses between two; and a sink's commits that are not slower
with a service that is told, or that never answers: at most 1.5 times the median without one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sections import ROOT, Section, circumstances, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL = 800
TABLES = int(os.environ.get("LAKEHAND_BENCH_TABLES", "1000"))
CLIENTS = (1, 8)
#: Between two notifications of a client: writers commit now and then, and not without end.
PAUSE = 0.05
EPOCHS = 200
GOAL_MS, GOAL_RATIO = 100, 1.5


def main() -> None:
    chosen = _arguments()
    if chosen.serve:
        serve(chosen.serve)
        return
    if not chosen.draw:
        found = measure(chosen)
        is_full = chosen.requests >= FULL and "LAKEHAND_BENCH_TABLES" not in os.environ
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            print(json.dumps(found["results"], indent=1))
            return
    sys.exit(0 if meets_goals(SECTION.draw()) else "a goal is missed")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    requests = int(os.environ.get("LAKEHAND_BENCH_NOTIFICATIONS", FULL))
    options.add_argument("--requests", type=int, default=requests)
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    options.add_argument("--serve", help=argparse.SUPPRESS)
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict:
    around = circumstances()
    results = {}
    with _stores() as stores:
        for name, url in stores.items():
            with _server(url) as address:
                for clients in CLIENTS:
                    taken = _run_clients(address, clients, chosen.requests)
                    results[f"{name}, {clients} client{'s' * (clients > 1)}"] = taken
    return {
        **around,
        "niceness": os.nice(0),
        "requests": chosen.requests,
        "results": results,
        "sinks": measure_sinks(min(EPOCHS, chosen.requests)),
    }


# The server


@contextmanager
def _stores() -> Iterator[dict[str, str]]:
    """Yield the URLs of empty job stores."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.postgresql import find_programs, serve_postgresql

    scratch = Path(tempfile.mkdtemp(prefix="lakehand-notify-"))
    stores = {"SQLite": f"sqlite:///{scratch}/jobs.db"}
    serving = serve_postgresql(is_durable=True) if find_programs() else None
    try:
        if serving is not None:
            stores["PostgreSQL"] = next(serving).url()
        yield stores
    finally:
        if serving is not None:
            for _ in serving:
                pass
        shutil.rmtree(scratch)


@contextmanager
def _server(store: str) -> Iterator[str]:
    """Run a server in its own process, until its input is closed."""
    command = [sys.executable, __file__, "--serve", store]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def serve(store: str) -> None:
    """Serve a store in which every notification queues a job."""
    sys.path.insert(0, str(ROOT / "tests"))
    from lakehand.service.config import parse_config
    from lakehand.service.store.database import open_database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import TableRegistry
    from lakehand.web.server import WebServer
    from support.job_stores import add_pool, add_tables

    config = parse_config({"policy": {"default": {"check_after": {"commits": 1}}}})
    database = open_database(store)
    add_pool(database)
    add_tables(database, TABLES)
    server = WebServer(config, database, jobs=JobQueue(database), tables=TableRegistry(database))
    print(server.start("127.0.0.1:0").removeprefix("http://"), flush=True)
    sys.stdin.read()
    server.stop()
    database.close()


# Clients


def _run_clients(address: str, clients: int, requests: int) -> dict:
    """Post notifications, and return how long it took until their jobs were queued."""
    each = requests // clients
    with ThreadPoolExecutor(clients) as threads:
        parts = threads.map(lambda number: _client(address, number, each), range(clients))
        taken = [seconds for part in parts for seconds in part]
    return {
        "median_ms": round(statistics.median(taken) * 1000, 1),
        "p99_ms": round(statistics.quantiles(taken, n=100)[98] * 1000, 1),
        "worst_ms": round(max(taken) * 1000, 1),
    }


def _client(address: str, number: int, requests: int) -> list[float]:
    taken = []
    first = time.time_ns() // 1_000_000  # Later than the versions of an earlier client.
    connection = http.client.HTTPConnection(address, timeout=60)
    for request in range(requests + 20):
        table = f"file:///t{(number * 131 + request) % TABLES}"
        document = {"table": table, "version": first + request, "files": 1, "bytes": 1000}
        time.sleep(PAUSE)
        started = time.perf_counter()
        connection.request("POST", "/api/v1/notify", json.dumps(document))
        answer = json.loads(connection.getresponse().read())
        if request >= 20:  # Those before load what is needed.
            taken.append(time.perf_counter() - started)
        if answer["effect"] not in {"queued", "known"}:
            raise AssertionError(answer)
    connection.close()
    return taken


# Sinks


def measure_sinks(epochs: int) -> dict:
    """Commit in turns without a service, with one, and with one that never answers."""
    scratch = Path(tempfile.mkdtemp(prefix="lakehand-notify-"))
    try:
        with (
            _server(f"sqlite:///{scratch}/jobs.db") as address,
            socket.create_server(("127.0.0.1", 0)) as silent,
        ):
            port = silent.getsockname()[1]
            urls = {
                "without": None,
                "told": f"http://{address}",
                "never answers": f"http://127.0.0.1:{port}",
            }
            return _commit_in_turns(scratch, urls, epochs)
    finally:
        with suppress(OSError):
            shutil.rmtree(scratch)


def _commit_in_turns(scratch: Path, urls: dict[str, str | None], epochs: int) -> dict:
    from lakehand.sink import TableSink

    rows = pa.table({"id": range(1_000), "x": [1.5] * 1_000})
    sinks = {
        name: TableSink(
            scratch / name,
            schema=rows.schema,
            writer_id="w",
            notify_url=url,
            sink_maintenance=False,
        ).open()
        for name, url in urls.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in sinks}
    for epoch in range(1, epochs + 11):
        for name, sink in sinks.items():
            started = time.perf_counter()
            sink.begin_epoch(epoch)
            sink.write(rows)
            sink.commit_epoch()
            if epoch > 10:
                taken[name].append((time.perf_counter() - started) * 1000)
    for sink in sinks.values():
        sink.close()
    return {
        name: {
            "median_ms": round(statistics.median(times), 1),
            "p99_ms": round(statistics.quantiles(times, n=100)[98], 1),
        }
        for name, times in taken.items()
    }


# What is said of it


def table(found: dict) -> str:
    subject = f"{found['requests']:,} notifications of {TABLES:,} tables in each row"
    if found["niceness"]:
        subject += f", niceness {found['niceness']}"
    lines = [
        in_words(found, subject),
        "",
        "| request to queued job | median ms | p99 ms | worst ms |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {one['median_ms']} | {one['p99_ms']} | {one['worst_ms']} |"
        for name, one in found["results"].items()
    ]
    lines += ["", "| epoch of a sink | median ms | p99 ms |", "|---|---:|---:|"]
    labels = {
        "without": "without `notify_url`",
        "told": "the service is notified",
        "never answers": "the service never answers",
    }
    lines += [
        f"| {labels[name]} | {one['median_ms']} | {one['p99_ms']} |"
        for name, one in found["sinks"].items()
    ]
    return "\n".join(lines)


def meets_goals(found: dict) -> bool:
    is_fast = all(one["p99_ms"] < GOAL_MS for one in found["results"].values())
    sinks = found["sinks"]
    most = GOAL_RATIO * sinks["without"]["median_ms"]
    return is_fast and all(one["median_ms"] <= most for one in sinks.values())


SECTION = Section(name="notify", table=table)

if __name__ == "__main__":
    main()
