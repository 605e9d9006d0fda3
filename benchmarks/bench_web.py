"""What a busy dashboard costs: 200 event streams and 50 requests a second beside 4 running jobs.

The server is `lakehand serve --roles web` on a store with many tables and jobs. Rounds of the same
four jobs run with and without the load, in turns, so that what else the machine does hits both
alike. Jobs may not be slowed by more than 5 %. The processor time of the server says the same
without noise: what it takes of the cores is what the jobs can lose.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa  # noqa: E402
from process_tree import usage_of  # noqa: E402

import lakehand  # noqa: E402
from lakehand.service.store.database import open_database  # noqa: E402
from lakehand.service.store.database_schema import POOLS  # noqa: E402
from lakehand.service.store.events import record_event  # noqa: E402
from lakehand.service.store.job_queue import JobQueue  # noqa: E402
from lakehand.service.store.records import (  # noqa: E402
    AttemptEnd,
    Claim,
    FoundTable,
    JobRequest,
)
from lakehand.service.store.table_registry import TableRegistry  # noqa: E402
from lakehand.service.store.worker_registry import Worker, WorkerRegistry  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.service.store.database import Database

RESULTS = ROOT / "benchmarks" / "results" / "web.json"
JOBS, TABLES, REAL_TABLES, ENDED_JOBS, QUEUED_JOBS = 4, 500, 20, 200, 40
GOAL_SLOWDOWN, GOAL_GROWTH_BYTES = 1.05, 64 * 2**20
#: Files and rows of the table that each job compacts.
FILES, ROWS = 24, 60_000
EVENTS_PER_SECOND = 2.0
#: What is asked for, and how often among all requests. `{n}` is one of 20 numbers.
MIX = {
    "/": 50,
    "/tables": 20,
    "/tables?sort=health&health=poor": 10,
    "/tables/{n}": 20,
    "/jobs": 40,
    "/jobs/{n}": 20,
    "/events": 10,
    "/workers": 10,
    "/api/v1/jobs": 8,
    "/api/v1/tables": 6,
    "/api/v1/status": 5,
    "/metrics": 1,
}
JOB = """
import sys, time, resource
import lakehand
table = lakehand.open_table(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
started = time.perf_counter()
table.compact(quiet_period="0s", min_files=2)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(time.perf_counter() - started, sum(one.ru_utime + one.ru_stime for one in used), flush=True)
"""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--streams", type=int, default=200)
    options.add_argument("--rate", type=int, default=50)
    options.add_argument("--nice", type=int, default=0, help="niceness of the server")
    options.add_argument("--minimal", action="store_true", help="a server that sends constants")
    options.add_argument("--output", type=Path, default=RESULTS)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakehand-bench-") as directory:
        found = measure(Path(directory), chosen)
    chosen.output.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    is_met = found["slowdown"] <= GOAL_SLOWDOWN and found["growth_bytes"] <= GOAL_GROWTH_BYTES
    return 0 if is_met else 1


def measure(root: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    make_job_tables(root / "pristine")
    store = f"sqlite:///{root}/jobs.db"
    fill(store, root)
    load_before = os.getloadavg()[0]
    rounds = []
    with ExitStack() as running:
        url, pid = running.enter_context(serve(root, store, chosen.nice))
        running.enter_context(events(store))
        sizes = warm_up(url)
        if chosen.minimal:
            url, pid = running.enter_context(serve_constants(sizes, chosen.nice))
        before = usage_of(pid)
        for number in range(chosen.rounds):
            # First one, then the other, so that a machine that gets busier slows both alike.
            for is_loaded in (False, True) if number % 2 == 0 else (True, False):
                rounds.append(run_round(root, url, pid, chosen, is_loaded=is_loaded))
                print(json.dumps(rounds[-1]), flush=True)
        after = usage_of(pid)
    idle = [one for one in rounds if not one["is_loaded"]]
    loaded = [one for one in rounds if one["is_loaded"]]
    together = list(zip(idle, loaded, strict=True))
    pairs = [two["seconds"] / one["seconds"] for one, two in together]
    means = [two["mean_seconds"] / one["mean_seconds"] for one, two in together]
    return {
        "streams": chosen.streams,
        "server_nice": chosen.nice,
        "requests_per_second": statistics.median(one["rate"] for one in loaded),
        "slowdown": statistics.median(pairs),
        "slowdowns": pairs,
        "slowdown_of_a_job": statistics.median(means),
        "slowdowns_of_a_job": means,
        "job_core_seconds_ratio": sum(one["job_core_seconds"] for one in loaded)
        / sum(one["job_core_seconds"] for one in idle),
        "server_cores": statistics.median(one["server_cores"] for one in loaded),
        "server_cores_idle": statistics.median(one["server_cores"] for one in idle),
        "client_cores": statistics.median(one["client_cores"] for one in loaded),
        "p50_ms": statistics.median(one["p50_ms"] for one in loaded),
        "p99_ms": statistics.median(one["p99_ms"] for one in loaded),
        "failed": sum(one["failed"] for one in loaded),
        "stream_bytes": sum(one["stream_bytes"] for one in loaded),
        "rss_bytes": after.rss_bytes,
        "growth_bytes": after.rss_bytes - before.rss_bytes,
        "cores": os.cpu_count(),
        "load": [load_before, os.getloadavg()[0]],
    }


def make_job_tables(root: Path) -> None:
    for number in range(JOBS):
        table = lakehand.create_table(
            root / f"job_{number}", pa.schema({"id": pa.int64(), "text": pa.string()})
        )
        for part in range(FILES):
            ids = range(part * ROWS, (part + 1) * ROWS)
            table.append(pa.table({"id": list(ids), "text": [f"row {one}" for one in ids]}))


def fill(store: str, root: Path) -> None:
    """Register tables, a few of which exist, and jobs that have ended, run and wait."""
    database = open_database(store)
    tables, jobs = TableRegistry(database), JobQueue(database)
    with database.transaction() as connection:
        connection.execute(POOLS.insert().values(name="default", max_running=64))
    for number in range(TABLES):
        name = f"table_{number:03}"
        if number < REAL_TABLES:
            made = lakehand.create_table(root / "lake" / name, pa.schema({"id": pa.int64()}))
            for value in range(5):
                made.append(pa.table({"id": [value]}))
            url = made.url
        else:
            url = f"s3://lake/{name}"
        found, _ = tables.add(FoundTable(url=url, format="delta", name=name), source="lake")
        summary = {"file_count": 10 + number, "total_bytes": number * 10**9}
        score = number % 101
        known = {"policy": "default", "health_score": score, "summary": summary}
        tables.looked(found.id, look_every=600, **known)
    run_jobs(database, jobs, lakehand.open_table(root / "lake" / "table_000"))
    database.close()


def run_jobs(database: Database, jobs: JobQueue, table: lakehand.Table) -> None:
    known = {"version": "0", "engines": ["local"], "slots": 64, "memory_bytes": 2**34}
    WorkerRegistry(database).start(Worker(id="bench-1", host="bench", pid=1, **known))
    report = table.compact(quiet_period="0s", min_files=2).to_json()
    for number in range(ENDED_JOBS + JOBS + QUEUED_JOBS):
        wanted = JobRequest(table_id=1 + number, verb="compact", trigger="commits", reasons=["x"])
        jobs.enqueue(wanted)
        if number < ENDED_JOBS + JOBS:
            job = jobs.claim(Claim(worker_id="bench-1", lease_seconds=80_000))
            assert job is not None
            if number < ENDED_JOBS:
                end = AttemptEnd(outcome="committed", report=report, spent={"core_seconds": 1.0})
                jobs.finish(job.id, job.fence, end, state="succeeded")


@contextmanager
def serve(root: Path, store: str, nice: int) -> Iterator[tuple[str, int]]:
    """Run the server as a process of its own, as its users do."""
    config = root / "lakehand.toml"
    config.write_text(f'[service]\nstore = "{store}"\n[web]\nlisten = "127.0.0.1:18484"\n')
    program = [
        "nice",
        "-n",
        str(nice),
        sys.executable,
        "-m",
        "lakehand",
        "serve",
        "--roles",
        "web",
        "--config",
        str(config),
    ]
    server = subprocess.Popen([*program, "--log-level", "warning"])
    try:
        wait_until_ready("http://127.0.0.1:18484")
        yield "http://127.0.0.1:18484", server.pid
    finally:
        server.terminate()
        server.wait(30)


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        try:
            with urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit("the server did not start")


def warm_up(url: str) -> dict[str, int]:
    """Ask for everything once, and return how large the answers are."""
    sizes = {}
    for path in MIX:
        for number in range(1, 21 if "{n}" in path else 2):
            asked = path.format(n=number)
            with urlopen(url + asked, timeout=60) as answer:
                sizes[asked] = len(answer.read())
    return sizes


@contextmanager
def serve_constants(sizes: dict[str, int], nice: int) -> Iterator[tuple[str, int]]:
    """Run a server that sends answers of these sizes and events, and does nothing else."""
    program = [sys.executable, str(Path(__file__).with_name("web_constants.py"))]
    address = "127.0.0.1:18485"
    command = ["nice", "-n", str(nice), *program, address, str(EVENTS_PER_SECOND)]
    server = subprocess.Popen([*command, json.dumps(sizes)])
    try:
        wait_until_ready(f"http://{address}")
        yield f"http://{address}", server.pid
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def events(store: str) -> Iterator[None]:
    """Let something happen all the time, as running jobs do."""
    ending = threading.Event()
    database = open_database(store)

    def happen() -> None:
        while not ending.wait(1 / EVENTS_PER_SECOND):
            with database.transaction() as connection:
                record_event(connection, database.now(), "job.started", table_id=1, job_id=1)

    thread = threading.Thread(target=happen)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        database.close()


def run_round(
    root: Path, url: str, pid: int, chosen: argparse.Namespace, *, is_loaded: bool
) -> dict[str, Any]:
    """Run the four jobs on fresh copies of their tables, with or without the load."""
    work = root / "work"
    shutil.copytree(root / "pristine", work)
    started = time.monotonic()
    client = start_load(url, chosen) if is_loaded else None
    if client is not None:
        assert client.stdout is not None
        client.stdout.readline()  # All streams are open.
    before, at = usage_of(pid), time.monotonic()
    jobs = run_four(work)
    seconds, after = time.monotonic() - at, usage_of(pid)
    told = {} if client is None else end_load(client)
    shutil.rmtree(work)
    return {
        "is_loaded": is_loaded,
        "seconds": max(one[0] for one in jobs),
        "mean_seconds": statistics.mean(one[0] for one in jobs),
        "job_core_seconds": sum(one[1] for one in jobs),
        "server_cores": (after.cpu_seconds - before.cpu_seconds) / seconds,
        "round_seconds": time.monotonic() - started,
        **told,
    }


def run_four(work: Path) -> list[tuple[float, float]]:
    """Return the time and the processor time of each job; they begin together."""
    program = [sys.executable, "-c", JOB]
    jobs = [
        subprocess.Popen(
            [*program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for path in sorted(work.iterdir())
    ]
    for job in jobs:
        assert job.stdout is not None
        job.stdout.readline()
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
    outputs = [job.communicate()[0].split() for job in jobs]
    return [(float(one[0]), float(one[1])) for one in outputs]


def start_load(url: str, chosen: argparse.Namespace) -> subprocess.Popen[str]:
    program = [sys.executable, str(Path(__file__).with_name("web_load.py")), url]
    command = [*program, str(chosen.streams), str(chosen.rate), json.dumps(MIX)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end_load(client: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = client.communicate("\n", timeout=120)
    found: dict[str, Any] = json.loads(out)
    return found


if __name__ == "__main__":
    sys.exit(main())
