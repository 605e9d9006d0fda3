"""An hour of a service on many tables: writers at work, and its processes killed and stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from lakehand.service.store.database_schema import ATTEMPTS, JOBS
from support.service_lakes import Lake, until
from support.service_processes import Plan, job_processes, start
from support.table_writers import is_by_lakehand, versions

MINUTES = float(os.environ.get("LAKEHAND_SOAK_MINUTES", "60"))
TABLES = int(os.environ.get("LAKEHAND_SOAK_TABLES", "200"))
#: Whether delta-spark writes too; it needs Java.
WITH_SPARK = os.environ.get("LAKEHAND_SOAK_SPARK", "1") == "1"
#: Between two appends; longer on a machine that has other work to do, too.
PAUSE_SECONDS = float(os.environ.get("LAKEHAND_SOAK_PAUSE_SECONDS", "0.02"))
SEED = int(os.environ.get("LAKEHAND_SOAK_SEED", "1"))
WORKERS, SLOTS, LEASE_SECONDS, LOOK_SECONDS = 2, 2, 6.0, 5.0
#: Commits after which a table is maintained, and the longest that it may take from there on.
COMMITS = 10
BOUND_SECONDS = float(os.environ.get("LAKEHAND_SOAK_BOUND_SECONDS", "300"))
#: Jobs end so if their processes were killed as often as they may be tried.
KILLED = ("crashed", "lease_lost")
SPARK_PART = 7
#: Between two faults, at most.
FAULT_SECONDS = 6.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(int(MINUTES * 60) + 3600)]


class Chaos:
    """The processes of a service, which die and stop at random; a supervisor starts new ones."""

    def __init__(self, plan, chance):
        self._plan, self._chance = plan, chance
        self._processes = {}
        self._stopped = []
        self._number = 0
        self.faults = Counter()

    def supervise(self):
        """Start what does not run, and continue what was stopped for longer than a lease."""
        for name in ("scheduler", *(f"worker-{n}" for n in range(WORKERS))):
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                self._number += 1
                role = name.partition("-")[0]
                plan = replace(self._plan, worker=f"{name}-{self._number}")
                self._processes[name] = start(role, plan)
        now = time.monotonic()
        for until_when, pid in [entry for entry in self._stopped if entry[0] < now]:
            self._stopped.remove((until_when, pid))
            send(pid, signal.SIGCONT)

    def strike(self):
        """Kill or stop one process."""
        targets = [(name.partition("-")[0], p.pid) for name, p in self._processes.items()]
        targets += [("job", pid) for pid in job_processes(self._plan.mark)]
        role, pid = self._chance.choice(targets)
        sent = self._chance.choice([signal.SIGKILL, signal.SIGSTOP])
        self.faults[f"{sent.name} {role}"] += 1
        send(pid, sent)
        if sent == signal.SIGSTOP:
            wait = LEASE_SECONDS * self._chance.uniform(0.5, 3)
            self._stopped.append((time.monotonic() + wait, pid))

    def end(self):
        for _, pid in self._stopped:
            send(pid, signal.SIGCONT)
        for process in self._processes.values():
            process.kill()
            process.wait()


class Writer(threading.Thread):
    """A thread whose failure is the failure of whoever waits for it."""

    def __init__(self, function, *args):
        super().__init__()
        self._function, self._args, self._error = function, args, None

    def run(self):
        try:
            self._function(*self._args)
        except BaseException as error:  # noqa: BLE001  raised again below
            self._error = error

    def join(self, timeout=None):
        super().join(timeout)
        if self._error is not None:
            raise self._error


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def write_for_long(lake, chance, is_over):
    """Append to tables at random, to some of them far more often than to others."""
    names = sorted(lake.acknowledged)
    weights = [1 / (1 + number % 10) for number in range(len(names))]
    while not is_over.wait(PAUSE_SECONDS):
        (name,) = chance.choices(names, weights)
        lake.append(name)


def write_by_spark(lake, oracle, chance, is_over):
    """Let delta-spark append rows of a partition of its own."""
    number = 0
    while not is_over.wait(10 * PAUSE_SECONDS):
        name = chance.choice(sorted(lake.acknowledged))
        place = Path(lake.plan.lake, name)
        oracle.sql(f"INSERT INTO delta.`{place}` VALUES ({SPARK_PART}, {number})", fresh=False)
        lake.acknowledged[name].append((SPARK_PART, number))
        number += 1


def longest_neglect(log):
    """Return the longest time from the commit that made a table due to its next maintenance."""
    return max(neglects(log), default=0.0)


def neglects(log):
    """Return how long a table was due, time by time; if it still is, that comes last."""
    since, due_at = 0, None
    for version in versions(log):
        at = (log / f"{version:020}.json").stat().st_mtime
        if is_by_lakehand(log, version):
            if due_at:
                yield at - due_at
            since, due_at = 0, None
            continue
        since += 1
        if since == COMMITS:
            due_at = at
    if due_at:
        yield time.time() - due_at


def is_due(log):
    """Return whether a table has as many commits since its last maintenance as make it due."""
    since = 0
    for version in versions(log):
        since = 0 if is_by_lakehand(log, version) else since + 1
    return since >= COMMITS


def run_chaos(lake, chaos, chance):
    deadline = time.monotonic() + MINUTES * 60
    strike_at = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < deadline:
        chaos.supervise()
        if time.monotonic() > strike_at:
            chaos.strike()
            strike_at = time.monotonic() + chance.uniform(0.2, FAULT_SECONDS)
        time.sleep(0.1)


def settle(lake, chaos):
    """Let the service work without faults until nothing is due."""

    def is_settled():
        chaos.supervise()
        open_jobs = lake.parts.jobs.listed(states=["queued", "running"], limit=1)
        return not open_jobs and not any(
            is_due(Path(lake.plan.lake, name, "_delta_log")) for name in lake.acknowledged
        )

    until(is_settled, seconds=BOUND_SECONDS * 2)


def figures_of(lake, chaos):
    logs = [Path(lake.plan.lake, name, "_delta_log") for name in lake.acknowledged]
    by_lakehand = sum(is_by_lakehand(log, v) for log in logs for v in versions(log))
    states = lake.rows_of(select(JOBS.c.state, func.count()).group_by(JOBS.c.state))
    ends = lake.rows_of(select(ATTEMPTS.c.outcome, func.count()).group_by(ATTEMPTS.c.outcome))
    return {
        "minutes": MINUTES,
        "tables": TABLES,
        "pause_seconds": PAUSE_SECONDS,
        "faults": dict(chaos.faults),
        "commits": sum(len(versions(log)) for log in logs),
        "commits_by_lakehand": by_lakehand,
        "rows": sum(map(len, lake.acknowledged.values())),
        "jobs": {row[0]: row[1] for row in states},
        "attempts": {row[0]: row[1] for row in ends},
        "longest_neglect_seconds": round(max(map(longest_neglect, logs)), 1),
    }


def test_a_service_under_faults_for_long(request, tmp_path):
    chance = random.Random(SEED)
    plan = Plan(
        store=f"sqlite:///{tmp_path}/jobs.db",
        lake=f"{tmp_path}/lake",
        mark=f"{tmp_path}/mark",
        lease_seconds=LEASE_SECONDS,
        slots=SLOTS,
        is_prompt=False,
        look_seconds=LOOK_SECONDS,
        # Rewrites of a few small files pay only where they are read often: else thresholds rise.
        importance=1e6,
    )
    lake = Lake(plan)
    for number in range(TABLES):
        lake.create(f"t{number:03}")
    chaos, is_over = Chaos(plan, chance), threading.Event()
    writers = [Writer(write_for_long, lake, random.Random(SEED), is_over)]
    if WITH_SPARK:
        oracle = request.getfixturevalue("oracle")
        writers.append(Writer(write_by_spark, lake, oracle, random.Random(SEED), is_over))
    for writer in writers:
        writer.start()
    try:
        run_chaos(lake, chaos, chance)
        is_over.set()
        for writer in writers:
            writer.join()
        settle(lake, chaos)
    finally:
        is_over.set()
        chaos.end()
    until(lambda: not job_processes(plan.mark))
    figures = figures_of(lake, chaos)
    print(json.dumps(figures, indent=2))
    lake.check()
    assert figures["longest_neglect_seconds"] < BOUND_SECONDS
    failed = lake.rows_of(select(JOBS.c.outcome).where(JOBS.c.state == "failed"))
    assert [row.outcome for row in failed if row.outcome not in KILLED] == []
