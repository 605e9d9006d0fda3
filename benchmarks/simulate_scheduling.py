"""Orders of maintenance compared: modelled tables and workers, the real scores, windows and queue.

Tables get small files all the time, workers rewrite them in the order of the queue. Read cost is
the integral of small files times reads. Scores, head starts, windows, back-off and budgets are the
functions of the service; with `--store` its job store is the queue. A test shows that the arrays,
which are used for many seeds, give the same order.

    python benchmarks/simulate_scheduling.py --seeds 20 --tables 1000
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import json
import math
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert

from lakehand.observe.clock import ManualClock
from lakehand.planning import plan
from lakehand.service.config import ServiceConfig, parse_config
from lakehand.service.job_states import LEASE_LOST, backoff_seconds
from lakehand.service.scores import (
    OPEN_SECONDS,
    OVERDUE_SECONDS,
    READS_PER_DAY,
    START_SECONDS,
    Limits,
    TableNumbers,
    head_start,
    score_table,
)
from lakehand.service.spending import day_of, wanted_by
from lakehand.service.store.budgets import Budget, find_short, share_left
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import TABLES
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_statements import OVERDUE_RANK, own_head_start
from lakehand.service.store.records import AttemptEnd, Claim, JobRequest
from lakehand.service.store.service_state import ServiceState
from lakehand.service.triggers import next_window

RESULTS = Path(__file__).parent / "results" / "scheduling.json"
MIB, GIB, HOUR, DAY = 2**20, 2**30, 3600.0, 86_400.0
#: Steps of the profile of writes over time.
STEP = 900.0
_PER_BYTE = 1 / plan.RECODE_READ_BYTES_PER_SECOND + 1 / plan.RECODE_WRITE_BYTES_PER_SECOND
LIMITS = Limits()
#: A table is looked at this long after a threshold is reached, at most.
LOOK_SECONDS = 60.0
#: The job of a table that waits is scored again when its files have grown by this factor.
RESCORED_GROWTH = 1.25
#: Weight of the newest rewrite in the share that writers undo, as in the service.
NEWEST_WEIGHT = 0.3
#: A table that waits for longer than this is starved: three hours longer than until it is overdue.
STARVED_SECONDS = 12 * HOUR
#: How often the scheduler looks for jobs that are overdue.
PROMOTE_SECONDS = 60.0
LEASE_SECONDS = 60.0
#: Workers look this long after a job may start: the clock of the store has whole microseconds.
WAKE_SECONDS = 0.001
MEDIAN_FILE_BYTES = 12 * MIB
#: Work that the busiest table needs at most.
MOST_OF_A_WORKER = 0.9


@dataclass(frozen=True, kw_only=True)
class Trace:
    """How tables are written to, and what goes wrong."""

    name: str
    load: float = 1.25
    hours: float = 24.0
    #: Factor of the rate of writes, by hour of the day.
    profile: tuple[float, ...] = (1.0,)
    #: Hour at which a share of the tables gets this many files at once.
    burst: tuple[float, float, int] | None = None
    #: Bytes of one huge table.
    huge_bytes: int = 0
    #: Share of the tables whose writers undo rewrites, and how often they do.
    busy_share: float = 0.0
    lost: float = 0.0
    #: Probability that the worker of a job dies.
    deaths: float = 0.0
    #: Actual times are forecasts times or divided by up to this.
    wrong: float = 1.0
    config: dict[str, Any] = field(default_factory=dict)


_DIURNAL = tuple(1.0 + 0.9 * math.sin(2 * math.pi * (hour - 8) / 24) for hour in range(24))
TRACES = {
    trace.name: trace
    for trace in (
        Trace(name="stationary_80", load=0.8),
        Trace(name="stationary_125"),
        Trace(name="diurnal", load=0.9, profile=_DIURNAL),
        Trace(name="burst", load=0.6, burst=(6.0, 0.2, 200)),
        Trace(name="backfill", load=0.6, burst=(6.0, 0.02, 20_000)),
        Trace(name="huge_table", load=0.8, huge_bytes=100 * 2**40),
        Trace(name="writers_undo", load=0.9, busy_share=0.2, lost=0.8),
        Trace(name="dying_workers", load=0.8, deaths=0.05),
        Trace(name="wrong_forecasts", wrong=3.0),
        Trace(
            name="windows",
            load=0.3,
            config={
                "policy": {"default": {"windows": [{"cron": "0 */6 * * *", "for": "3h"}]}},
            },
        ),
        Trace(name="budget", load=0.8, config={"budget": {"all": {"bytes_per_day": "1TiB"}}}),
    )
}


class Lake:
    """Modelled tables: files and bytes that grow with time, reads per day."""

    def __init__(self, trace: Trace, tables: int, workers: int, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.trace, self.count = trace, tables
        weights = 1.0 / np.arange(1, tables + 1) ** 1.1
        self.chance.shuffle(weights)
        self.file_bytes = np.minimum(
            self.chance.lognormal(math.log(MEDIAN_FILE_BYTES), 1.0, tables), 60.0 * MIB
        )
        self.reads = 24.0 * (1.0 + self.chance.pareto(1.2, tables))
        # What no order can save; the start of each job comes on top.
        groups = self.file_bytes / LIMITS.target_file_bytes
        work = self.file_bytes * _PER_BYTE + plan.SECONDS_PER_FILE + plan.SECONDS_PER_GROUP * groups
        # Of its tables none needs more than a part of one worker, which has its jobs in turn.
        shares = weights * work / float((weights * work).sum())
        most = MOST_OF_A_WORKER / (trace.load * workers)
        for _ in range(20):
            shares = np.minimum(shares / shares.sum(), most)
        self.rate = shares / shares.sum() * trace.load * workers / work
        self.files = self.chance.uniform(0, LIMITS.min_files - 1, tables)
        self.bytes_of_files = self.files * self.file_bytes
        if trace.huge_bytes:
            self.bytes_of_files[0] = trace.huge_bytes
            self.files[0] = trace.huge_bytes / self.file_bytes[0]
        self.is_busy = self.chance.random(tables) < trace.busy_share
        self.read_cost = 0.0
        self._changed_at, self._passed_at = [0.0] * tables, [0.0] * tables
        # Single values are read and written through views, which is faster than through arrays.
        self._files, self._bytes = memoryview(self.files), memoryview(self.bytes_of_files)
        self._sizes, self._rates = self.file_bytes.tolist(), self.rate.tolist()
        self._reads = self.reads.tolist()
        self._is_steady = len(trace.profile) == 1
        times = np.arange(0, trace.hours * HOUR + 2 * STEP, STEP)
        hours = (times / HOUR).astype(int) % len(trace.profile)
        self._paces = np.array(trace.profile)[hours].tolist()
        self._passed = [0.0, *(np.cumsum(self._paces)[:-1] * STEP).tolist()]

    def passed(self, at: float) -> float:
        """Return the time of writes: that of the clock, faster while more is written."""
        if self._is_steady:
            return at
        step = min(int(at / STEP), len(self._paces) - 1)
        return self._passed[step] + (at - step * STEP) * self._paces[step]

    def update(self, table: int, at: float) -> None:
        """Let a table grow to a time, and count what readers paid."""
        before = self._changed_at[table]
        if at <= before:
            return
        passed = self.passed(at)
        grown = self._rates[table] * (passed - self._passed_at[table])
        average = self._files[table] + grown / 2
        self.read_cost += average * self._reads[table] / DAY * (at - before)
        self._files[table] += grown
        self._bytes[table] += grown * self._sizes[table]
        self._changed_at[table], self._passed_at[table] = at, passed

    def due_at(self, table: int, now: float) -> float:
        """Return when a table has enough small files, as far as it is known."""
        missing = LIMITS.min_files - self._files[table]
        if missing <= 0:
            return now
        wanted = self.passed(now) + missing / self._rates[table]
        if self._is_steady:
            return wanted
        step = bisect.bisect_right(self._passed, wanted) - 1
        if step == len(self._passed) - 1:
            return math.inf
        return step * STEP + (wanted - self._passed[step]) / self._paces[step]

    def seconds_to_grow(self, table: int, factor: float) -> float:
        """Return how long it takes until a table has that many times its files, on average."""
        return self._files[table] * (factor - 1) / self._rates[table]

    def add(self, table: int, files: float) -> None:
        self._files[table] += files
        self._bytes[table] += files * self._sizes[table]

    def take(self, table: int, files: float, size: float) -> None:
        self._files[table] -= files
        self._bytes[table] -= size

    def held(self, table: int) -> tuple[float, float]:
        """Return small files and their bytes."""
        return self._files[table], self._bytes[table]

    def numbers(self, table: int) -> TableNumbers:
        files, size = int(self._files[table]), int(self._bytes[table])
        needed = max(1, math.ceil(size / LIMITS.target_file_bytes))
        return TableNumbers(
            file_count=files + 100,
            total_bytes=size + 100 * LIMITS.target_file_bytes,
            small_file_count=files,
            small_bytes=size,
            excess_file_count=max(0, files - needed),
            most_in_partition=files,
        )

    def seconds(self, table: int, share: float = 1.0) -> float:
        """Return the forecast of a rewrite of a share of the small files."""
        size, files = self._bytes[table] * share, self._files[table] * share
        groups = max(1.0, size / LIMITS.target_file_bytes)
        fixed = START_SECONDS + plan.SECONDS_PER_GROUP * groups
        return fixed + plan.SECONDS_PER_FILE * files + size * _PER_BYTE

    def score(self, table: int, *, reads: bool = True, lost_share: float = 0.0) -> Any:
        known = {"reads_per_day": self._reads[table]} if reads else {}
        numbers = self.numbers(table)
        return score_table(numbers, LIMITS, steps=("compact",), lost_share=lost_share, **known)


@dataclass(frozen=True, kw_only=True)
class Order:
    """In which order jobs start."""

    name: str
    has_slices: bool = False
    knows_reads: bool = True
    #: Whether the rest after a slice keeps the age of its job.
    keeps_age: bool = False
    #: Factor of the head start of the service.
    slope: float = 1.0
    #: Whether jobs may wait for any time.
    is_unbounded: bool = False
    #: Whether a job keeps the rank of the time when it was queued.
    is_static: bool = False


ORDERS = {
    order.name: order
    for order in (
        Order(name="lakehand", has_slices=True, is_static=True),
        Order(name="lakehand, reads unknown", has_slices=True, is_static=True, knows_reads=False),
        Order(
            name="lakehand, slices keep their age", has_slices=True, is_static=True, keeps_age=True
        ),
        Order(name="lakehand, no slices", is_static=True),
        Order(name="lakehand, head start / 3", has_slices=True, is_static=True, slope=1 / 3),
        Order(
            name="lakehand, reads unknown, no bound",
            has_slices=True,
            is_static=True,
            knows_reads=False,
            slope=100.0,
            is_unbounded=True,
        ),
        Order(name="oldest first", is_static=True),
        Order(name="oldest first, slices", has_slices=True, is_static=True),
        Order(name="Amoro balanced"),
        Order(name="Amoro quota"),
        Order(name="OpenHouse weighted sum"),
        Order(name="benefit/cost"),
        Order(name="benefit/cost, reads unknown", knows_reads=False),
        Order(name="25 % by age, slices", has_slices=True),
    )
}
#: Read costs are relative to it.
BASE = "benefit/cost"
REAL = tuple(name for name in ORDERS if name.startswith("lakehand"))


class ArrayQueue:
    """The queue as arrays: the first of those that wait, by the key of an order."""

    def __init__(self, lake: Lake, order: Order, seed: int) -> None:
        self._lake, self._order = lake, order
        self._chance = np.random.default_rng(seed + 1)
        self.waiting = np.zeros(lake.count, bool)
        self.queued_at = np.zeros(lake.count)
        self.rank_at = np.zeros(lake.count)
        self.not_before = np.zeros(lake.count)
        self.done_at = np.zeros(lake.count)
        self.used = np.zeros(lake.count)

    def push(self, table: int, now: float, *, head: float, delay: float) -> None:
        self.waiting[table] = True
        self.queued_at[table], self.rank_at[table] = now, now - head
        self.not_before[table] = now + delay

    def put_back(self, table: int, now: float, delay: float, *, next_turn: bool = False) -> None:
        self.waiting[table] = True
        self.not_before[table] = now + delay
        if next_turn:
            head = own_head_start(float(self.queued_at[table]), float(self.rank_at[table]))
            self.queued_at[table], self.rank_at[table] = now, now - head

    def rescore(self, table: int, now: float, score: float, *, head: float) -> None:  # noqa: ARG002
        """Raise the rank of a job that waits; its score is stored by the job store only."""
        self.rank_at[table] = min(self.rank_at[table], self.queued_at[table] - head)

    def promote(self, now: float) -> None:
        """Let jobs that could have started for too long go before others."""
        since = np.maximum(self.queued_at, self.not_before)
        raised = (self.queued_at - self.rank_at) / OVERDUE_RANK
        is_overdue = self.waiting & (since + OVERDUE_SECONDS * (raised + 1.0) <= now)
        self.rank_at[is_overdue] -= OVERDUE_RANK

    def pop(self, now: float) -> int | None:
        ready = np.flatnonzero(self.waiting & (self.not_before <= now))
        if not len(ready):
            return None
        found = int(ready[np.argmin(self._keys(ready, now))])
        self.waiting[found] = False
        return found

    def finish(self, table: int, now: float, seconds: float) -> None:
        self.done_at[table] = now
        self.used[table] += seconds

    def next_start(self, now: float) -> float:
        later = self.not_before[self.waiting & (self.not_before > now)]
        return float(later.min()) if len(later) else math.inf

    def _keys(self, ready: np.ndarray, now: float) -> np.ndarray:
        match self._order.name:
            case "Amoro balanced":
                return self.done_at[ready]
            case "Amoro quota":
                return self.used[ready] / max(now, 1.0)
            case "OpenHouse weighted sum":
                gain, cost = self._gain(ready), self._cost(ready)
                return -(0.7 * _scaled(gain) - 0.3 * _scaled(cost))
            case "benefit/cost" | "benefit/cost, reads unknown":
                return -self._value(ready)
            case "25 % by age, slices":
                is_by_age = self._chance.random() < 0.25
                return self.queued_at[ready] if is_by_age else -self._value(ready)
        return self.rank_at[ready]

    def _gain(self, ready: np.ndarray) -> np.ndarray:
        lake = self._lake
        files = lake.files[ready]
        return np.maximum(files - np.ceil(lake.bytes_of_files[ready] / LIMITS.target_file_bytes), 0)

    def _cost(self, ready: np.ndarray) -> np.ndarray:
        return START_SECONDS + self._lake.bytes_of_files[ready] * _PER_BYTE

    def _value(self, ready: np.ndarray) -> np.ndarray:
        reads = self._lake.reads[ready] if self._order.knows_reads else READS_PER_DAY
        benefit = reads * self._gain(ready) * OPEN_SECONDS
        return benefit / self._cost(ready)


def _scaled(values: np.ndarray) -> np.ndarray:
    spread = values.max() - values.min()
    return (values - values.min()) / spread if spread else np.zeros(len(values))


class StoreQueue(ArrayQueue):
    """The same with the job store of the service, for orders that are its own."""

    def __init__(self, lake: Lake, order: Order, seed: int) -> None:
        super().__init__(lake, order, seed)
        self._clock = ManualClock()
        self._began = self._clock.now().timestamp()
        self._database = open_database("sqlite://", clock=self._clock)
        self._jobs = JobQueue(self._database)
        ServiceState(self._database).ensure_pool("default", 10_000)
        now = self._began
        common = {"source": "model", "found_at": now, "seen_at": now, "look_at": now}
        rows = [{"id": n + 1, "url": f"model:{n}", **common} for n in range(lake.count)]
        with self._database.transaction() as connection:
            connection.execute(insert(TABLES), rows)
        self._running: dict[int, Any] = {}

    def _at(self, now: float) -> None:
        # The clock has whole microseconds, and never goes back.
        self._clock.advance(max(0.0, self._began + now - self._clock.now().timestamp()))

    def push(self, table: int, now: float, *, head: float, delay: float) -> None:
        super().push(table, now, head=head, delay=delay)
        self._at(now)
        self._jobs.enqueue(
            JobRequest(
                table_id=table + 1, verb="maintain", trigger="model", head_start=head, delay=delay
            )
        )

    def rescore(self, table: int, now: float, score: float, *, head: float) -> None:
        super().rescore(table, now, score, head=head)
        values = {"new_score": score, "new_expected": {}, "new_reasons": [], "new_head_start": head}
        self._jobs.rescore([{"table": table + 1, "for_verb": "maintain", **values}])

    def promote(self, now: float) -> None:
        super().promote(now)
        self._at(now)
        self._jobs.promote_overdue(OVERDUE_SECONDS)

    def put_back(self, table: int, now: float, delay: float, *, next_turn: bool = False) -> None:
        super().put_back(table, now, delay, next_turn=next_turn)
        self._at(now)
        job = self._running.pop(table)
        self._jobs.requeue(
            job.id,
            job.fence,
            AttemptEnd(outcome="stopped_early"),
            waits_for="turn",
            delay=delay,
            counts=False,
            is_next_turn=next_turn,
        )

    def pop(self, now: float) -> int | None:
        self._at(now)
        job = self._jobs.claim(Claim(worker_id="model", lease_seconds=10 * DAY))
        if job is None:
            return None
        table = job.table_id - 1
        self.waiting[table] = False
        self._running[table] = job
        return table

    def finish(self, table: int, now: float, seconds: float) -> None:
        super().finish(table, now, seconds)
        self._at(now)
        job = self._running.pop(table)
        end = AttemptEnd(outcome="committed", spent={"core_seconds": seconds})
        self._jobs.finish(job.id, job.fence, end, state="succeeded")


class Simulation:
    """One run of a trace under an order."""

    def __init__(
        self,
        trace: Trace,
        order: Order,
        *,
        tables: int,
        workers: int,
        seed: int,
        store: bool = False,
    ) -> None:
        self.trace, self.order = trace, order
        self.lake = Lake(trace, tables, workers, seed)
        self.config: ServiceConfig = parse_config(trace.config)
        self.policy = self.config.policies[0]
        self.queue = (StoreQueue if store else ArrayQueue)(self.lake, order, seed)
        self.idle = workers
        self.end = trace.hours * HOUR
        self.events: list[tuple[float, int, str, int, float]] = []
        self.waits: list[float] = []
        self.started: set[int] = set()
        self.losses: dict[int, int] = {}
        self.lost_share: dict[int, float] = {}
        self.lost_seconds: dict[int, float] = {}
        self.rescored_at: dict[int, float] = {}
        self.taken: dict[int, tuple[float, float]] = {}
        self.budgets: dict[tuple[str, str], Budget] = {}
        self.jobs, self.bytes, self.busy_seconds = 0, 0.0, 0.0
        self._number = 0

    def run(self) -> dict[str, float]:
        for table in range(self.lake.count):
            self._expect(table, 0.0)
        if self.order.name in REAL and not self.order.is_unbounded:
            self._add(PROMOTE_SECONDS, "promote", 0)
        if self.trace.burst:
            self._add(self.trace.burst[0] * HOUR, "burst", 0)
        while self.events:
            at, _, kind, table, value = heapq.heappop(self.events)
            if at > self.end:
                break
            getattr(self, f"_{kind}")(table, at, value)
            self._start_jobs(at)
        return self._result()

    def _add(self, at: float, kind: str, table: int, value: float = 0.0) -> None:
        self._number += 1
        heapq.heappush(self.events, (at, self._number, kind, table, value))

    def _expect(self, table: int, now: float) -> None:
        """Look at a table soon after its threshold is reached."""
        at = self.lake.due_at(table, now)
        if at < math.inf:
            self._add(at + float(self.lake.chance.uniform(1.0, LOOK_SECONDS)), "look", table)

    def _look(self, table: int, now: float, _value: float) -> None:
        if self.queue.waiting[table] or table in self.started:
            return
        self.lake.update(table, now)
        opens_at, _ = next_window(self.config, self.policy, now)
        _, head = self._ranked(table)
        delay = max(0.0, opens_at - now, self._backoff(table))
        self.queue.push(table, now, head=head, delay=delay)
        self._expect_rescoring(table, now)
        if delay:
            self._add(now + delay + WAKE_SECONDS, "wake", table)

    def _ranked(self, table: int) -> tuple[float, float]:
        """Return the score and the head start of a job; only lakehand has one."""
        if self.order.name not in REAL:
            return 0.0, 0.0
        lost = self.lost_share.get(table, 0.0)
        score = self.lake.score(table, reads=self.order.knows_reads, lost_share=lost).score
        head = head_start(score, importance=self.policy.importance)
        return score, head * self.order.slope

    def _expect_rescoring(self, table: int, now: float) -> None:
        """Look at a table that waits when it has grown: the service does so every minute."""
        if self.order.name in REAL:
            more = self.lake.seconds_to_grow(table, RESCORED_GROWTH)
            at = now + max(LOOK_SECONDS, more)
            self.rescored_at[table] = at
            self._add(at, "rescore", table)

    def _rescore(self, table: int, now: float, _value: float) -> None:
        if not self.queue.waiting[table] or self.rescored_at.get(table) != now:
            return
        self.lake.update(table, now)
        score, head = self._ranked(table)
        self.queue.rescore(table, now, score, head=head)
        self._expect_rescoring(table, now)

    def _promote(self, _table: int, now: float, _value: float) -> None:
        self.queue.promote(now)
        self._add(now + PROMOTE_SECONDS, "promote", 0)

    def _wake(self, _table: int, _now: float, _value: float) -> None:
        """Let workers look again: a job may start now."""

    def _backoff(self, table: int) -> float:
        # Only lakehand has this rule.
        if self.order.name not in REAL:
            return 0.0
        return backoff_seconds(self.losses.get(table, 0), self.lost_seconds.get(table, 0.0))

    def _burst(self, _table: int, now: float, _value: float) -> None:
        assert self.trace.burst is not None
        _, share, files = self.trace.burst
        for table in np.flatnonzero(self.lake.chance.random(self.lake.count) < share).tolist():
            self.lake.update(table, now)
            self.lake.add(table, files)
            self._expect(table, now)

    def _start_jobs(self, now: float) -> None:
        while self.idle and (table := self.queue.pop(now)) is not None:
            self._start(table, now)

    def _start(self, table: int, now: float) -> None:
        opens_at, _ = next_window(self.config, self.policy, now)
        if opens_at > now + WAKE_SECONDS:  # Its window closed while it waited.
            self._later(table, now, opens_at - now)
            return
        self.lake.update(table, now)
        files, size = self.lake.held(table)
        most = self.policy.slice_bytes if self.order.has_slices else math.inf
        granted = self._reserve(min(size, most), now)
        if granted is None:
            self._later(table, now, day_of(self.config, now)[1] - now)
            return
        if table not in self.started:
            self.waits.append(now - self.queue.queued_at[table])
        self.started.add(table)
        share = min(1.0, granted / size) if size else 1.0
        self.taken[table] = (files * share, size * share)
        seconds = self.lake.seconds(table, share)
        if self.trace.wrong > 1.0:
            power = self.lake.chance.uniform(-1.0, 1.0)
            seconds *= self.trace.wrong**power
        self.lost_seconds[table] = seconds  # If it is lost.
        self.idle -= 1
        self.jobs += 1
        if self.lake.chance.random() < self.trace.deaths:
            lost = seconds * float(self.lake.chance.random())
            self.busy_seconds += lost
            self._add(now + lost + LEASE_SECONDS, "died", table, lost)
            return
        self.busy_seconds += seconds
        self._add(now + seconds, "ended", table, share)

    def _later(self, table: int, now: float, delay: float, *, next_turn: bool = False) -> None:
        self.queue.put_back(table, now, delay, next_turn=next_turn)
        self._add(now + delay + WAKE_SECONDS, "wake", table)

    def _reserve(self, wanted: float, now: float) -> float | None:
        """Return how many bytes the budgets allow; None: too few for now."""
        if not self.config.budgets:
            return wanted
        day, _ = day_of(self.config, now)
        own = []
        for budget in self.config.budgets:
            for unit, allowed in budget.limits().items():
                empty = Budget(scope=budget.name, unit=unit, day=day, allowed=allowed)  # type: ignore[arg-type]
                own.append(self.budgets.get((budget.name, f"{unit} {day}"), empty))
        amounts = wanted_by(self.config, int(wanted))
        if find_short(own, amounts, 1 / 8) is not None:
            return None
        share = min(share_left(one, amounts) for one in own)
        for one in own:
            spent = one.spent + amounts[one.unit] * share
            self.budgets[one.scope, f"{one.unit} {day}"] = replace(one, spent=spent)
        return wanted * share

    def _died(self, table: int, now: float, _value: float) -> None:
        self.idle += 1
        self._later(table, now, LEASE_LOST.first_delay)

    def _ended(self, table: int, now: float, share: float) -> None:
        self.idle += 1
        lake = self.lake
        lake.update(table, now)
        is_lost = bool(lake.is_busy[table]) and lake.chance.random() < self.trace.lost
        self.losses[table] = self.losses.get(table, 0) + 1 if is_lost else 0
        share_before = self.lost_share.get(table, 0.0)
        self.lost_share[table] = share_before + NEWEST_WEIGHT * (is_lost - share_before)
        if not is_lost:
            # What came while it ran is left.
            files, size = self.taken[table]
            self.bytes += size
            lake.take(table, files, size)
        if share < 1.0:
            next_turn = not self.order.keeps_age
            self._later(table, now, self._backoff(table), next_turn=next_turn)
            self._expect_rescoring(table, now)
            return
        self.queue.finish(table, now, lake.seconds(table))
        self.started.discard(table)
        self._expect(table, now)

    def _result(self) -> dict[str, float]:
        for table in range(self.lake.count):
            self.lake.update(table, self.end)
        unstarted = [
            self.end - self.queue.queued_at[table]
            for table in np.flatnonzero(self.queue.waiting).tolist()
            if table not in self.started
        ]
        waits = sorted([*self.waits, *unstarted]) or [0.0]
        spent = [one.spent / one.allowed for one in self.budgets.values() if one.unit == "bytes"]
        return {
            "jobs": self.jobs,
            "tib_rewritten": self.bytes / 2**40,
            "read_cost": self.lake.read_cost,
            "wait_p50_minutes": waits[len(waits) // 2] / 60,
            "wait_p99_minutes": waits[int(len(waits) * 0.99)] / 60,
            "longest_wait_hours": waits[-1] / HOUR,
            "waiting_at_end": len(unstarted),
            "starved": sum(wait > STARVED_SECONDS for wait in waits),
            "fairness": sum(waits) ** 2 / (len(waits) * sum(w * w for w in waits) or 1.0),
            "most_of_a_budget": max(spent, default=0.0),
        }


class Runs:
    """Runs that have ended, in a file of JSON lines: what is in it is not run again."""

    def __init__(self, path: Path | None, options: dict[str, Any]) -> None:
        self._path, self._options = path, options
        self._ended: dict[str, dict[str, float]] = {}
        if path is not None and path.exists():
            lines = (json.loads(line) for line in path.read_text().splitlines())
            self._ended = {line["run"]: line["result"] for line in lines}

    def get(self, trace: Trace, order: Order, seed: int) -> dict[str, float]:
        """Return the result of a run; it is run if it is not in the file."""
        about = {"trace": trace.name, "order": order.name, "seed": seed, "hours": trace.hours}
        name = json.dumps({**about, **self._options}, sort_keys=True)
        if name not in self._ended:
            store = self._options["store"] and order.name in REAL
            options = {**self._options, "store": store}
            result = Simulation(trace, order, seed=seed, **options).run()
            self._ended[name] = {key: float(value) for key, value in result.items()}
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"run": name, "result": self._ended[name]}) + "\n")
        return self._ended[name]


def compare(
    traces: list[str], orders: list[str], *, seeds: range, runs: Runs
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median over all seeds, and of waits the worst, by trace and order.

    Read costs are compared seed by seed: those of two seeds differ by more than those of orders.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for trace in traces:
        results = {
            order: [runs.get(TRACES[trace], ORDERS[order], seed) for seed in seeds]
            for order in orders
        }
        base = results.get(BASE, results[orders[0]])
        found[trace] = {order: _summed(one, base) for order, one in results.items()}
        print(describe(trace, found[trace]), flush=True)
    return found


def _summed(runs: list[dict[str, float]], base: list[dict[str, float]]) -> dict[str, float]:
    summed = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    costs = [one["read_cost"] / (other["read_cost"] or 1.0) for one, other in zip(runs, base)]  # noqa: B905
    worst = ("longest_wait_hours", "starved")
    return {
        **summed,
        **{name: max(run[name] for run in runs) for name in worst},
        "read_cost_ratio": statistics.median(costs),
        "worst_read_cost_ratio": max(costs),
    }


def describe(trace: str, results: dict[str, dict[str, float]]) -> str:
    """Return a table in Markdown; read cost is relative to pure benefit/cost, if it was run."""
    lines = [
        f"### {trace}",
        "",
        "| order | jobs | TiB | read cost, worst | wait p50, p99 (min) | longest (h) | starved |",
        "|---|---|---|---|---|---|---|",
    ]
    for order, one in results.items():
        waits = f"{one['wait_p50_minutes']:.1f}, {one['wait_p99_minutes']:.0f}"
        costs = f"{one['read_cost_ratio']:.2f}, {one['worst_read_cost_ratio']:.2f}"
        lines.append(
            f"| {order} | {one['jobs']:,.0f} | {one['tib_rewritten']:.2f} "
            f"| {costs} | {waits} | {one['longest_wait_hours']:.1f} "
            f"| {one['starved']:,.0f} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Run traces and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--hours", type=float, help="length of each trace")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--store", action="store_true", help="use the job store")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=Path, help="keep each run there, and go on with it later")
    parser.add_argument("--trace", action="append", choices=sorted(TRACES))
    parser.add_argument("--order", action="append", choices=sorted(ORDERS))
    given = parser.parse_args()
    if given.hours:
        TRACES.update({name: replace(one, hours=given.hours) for name, one in TRACES.items()})
    options = {"tables": given.tables, "workers": given.workers, "store": given.store}
    found = compare(
        given.trace or list(TRACES),
        given.order or list(ORDERS),
        seeds=range(given.first_seed, given.first_seed + given.seeds),
        runs=Runs(given.runs, options),
    )
    given.output.parent.mkdir(exist_ok=True)
    names = ("seeds", "first_seed", "hours", "tables", "workers")
    about = {name: getattr(given, name) for name in names}
    given.output.write_text(json.dumps({**about, "traces": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
