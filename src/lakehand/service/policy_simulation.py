"""What a configuration would do with the tables of today: jobs, their cost, and when they run.

Nothing is queued and no data file is read. Tables are assessed by their logs, as the scheduler does
it; windows, budgets, slices and pools decide when jobs would start, one after the other.
"""

from __future__ import annotations

import heapq
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError
from lakehand.formats.optional import SupportsSummaries
from lakehand.formats.registry import load_format
from lakehand.service.job_specs import pool_of, storage_options, table_policy
from lakehand.service.scores import Limits, TableScore, head_start, score_table
from lakehand.service.spending import budgets_of, day_of
from lakehand.service.store.records import FOREVER, format_time
from lakehand.service.table_summaries import assess_summary
from lakehand.service.triggers import next_window
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakehand.model.table_summary import TableSummary
    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.store.summary_store import StoredSummary, SummaryStore
    from lakehand.service.store.table_registry import RegisteredTable

#: Days after which the simulation of a job ends that budgets or windows keep from starting.
_MOST_DAYS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedJob:
    """A job that a configuration would run."""

    #: URL of the table.
    table: str
    #: Its policy.
    policy: str
    #: Steps that are due.
    steps: tuple[str, ...]
    #: Why.
    reasons: tuple[str, ...]
    #: Benefit divided by cost.
    score: float
    #: Bytes that would be rewritten.
    bytes: int
    #: Files that it would save or delete.
    files: int
    #: Forecast of its processor time.
    core_seconds: float
    #: Forecast of its cost.
    cost: float
    #: Number of slices.
    slices: int = 1
    #: When it would start; null: never, by its windows and budgets.
    starts_at: float | None = None
    #: When it would end.
    ends_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        times = {"starts_at": self.starts_at, "ends_at": self.ends_at}
        shown = {name: None if at is None else format_time(at) for name, at in times.items()}
        return {**asdict(self), **shown}


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """What a configuration would do with the registered tables."""

    #: Jobs, in the order in which they would start.
    jobs: tuple[SimulatedJob, ...]
    #: Number of tables that were assessed.
    tables: int
    #: Tables that could not be assessed, each with the reason.
    skipped: Mapping[str, str]

    def totals(self) -> dict[str, float]:
        """Return the sums over all jobs."""
        names = ("bytes", "files", "core_seconds", "cost")
        sums = {name: sum(getattr(job, name) for job in self.jobs) for name in names}
        return {"jobs": len(self.jobs), **sums}

    def to_json(self) -> dict[str, Any]:
        """Return the simulation as a JSON document."""
        return {
            "totals": self.totals(),
            "tables": self.tables,
            "skipped": dict(self.skipped),
            "jobs": [job.to_json() for job in self.jobs],
        }


def simulate_policies(
    config: ServiceConfig,
    tables: Iterable[RegisteredTable],
    summaries: SummaryStore,
    *,
    now: float,
) -> Simulation:
    """Assess tables under a configuration, and say which jobs would run when."""
    found, skipped, count = [], {}, 0
    for table in tables:
        count += 1
        policy = table_policy(config, table).policy
        if not policy.enabled:
            skipped[table.url] = f"its policy {policy.name} is disabled"
            continue
        try:
            score = _score(config, table, summaries.get(table.id), now)
        except LakehandError as error:
            skipped[table.url] = error.message
            continue
        if score is None:
            skipped[table.url] = "what is due is known only to a run"
        elif score.is_due:
            found.append((head_start(score.score, importance=policy.importance), table, score))
    found.sort(key=lambda one: -one[0])
    jobs = [_job(config, table, score) for _, table, score in found]
    return Simulation(
        jobs=tuple(
            _Timetable(config, now).place(zip(jobs, (one[1] for one in found), strict=True))
        ),
        tables=count,
        skipped=skipped,
    )


def _score(
    config: ServiceConfig, table: RegisteredTable, stored: StoredSummary, now: float
) -> TableScore | None:
    """Score a table under the policy that it would have; None if its format has no summaries."""
    table_format = load_format(table.format or "delta")
    if not isinstance(table_format, SupportsSummaries):
        return None
    summary = stored.summary
    if summary is None or not summary.mark or summary.version != table.version:
        summary = _read(config, table, table_format)
    applied = table_policy(config, table)
    settings = applied.settings(summary.properties)
    numbers = stored.since(assess_summary(summary, applied.settings()).numbers, summary, now)
    return score_table(
        numbers,
        Limits.from_settings(settings),
        steps=applied.policy.steps,
        calibration=stored.factors,
        lost_share=stored.lost_share,
    )


def _read(
    config: ServiceConfig, table: RegisteredTable, table_format: SupportsSummaries
) -> TableSummary:
    """Read the log of a table that the store has no summary of."""
    store = open_store(table.url, storage_options(config, table.url))
    seen = table_format.look(store)
    return table_format.summarize(table_format.open(store).snapshot(), seen)


def _job(config: ServiceConfig, table: RegisteredTable, score: TableScore) -> SimulatedJob:
    policy = table_policy(config, table).policy
    rewritten = sum(step.bytes for step in score.due if step.step == "compact")
    costs = config.costs.cost_of(
        core_seconds=score.core_seconds, bytes_read=rewritten, bytes_written=rewritten
    )
    return SimulatedJob(
        table=table.url,
        policy=policy.name,
        steps=tuple(step.step for step in score.due),
        reasons=score.reasons,
        score=score.score,
        bytes=rewritten,
        files=sum(step.files for step in score.due if step.step in {"compact", "vacuum"}),
        core_seconds=score.core_seconds,
        cost=costs,
    )


class _Timetable:
    """Places jobs one after the other into slots, windows and budgets."""

    def __init__(self, config: ServiceConfig, now: float) -> None:
        self._config, self._now = config, now
        self._free = {pool.name: [now] * pool.max_running for pool in config.pools}
        #: What is left, by budget, unit and day.
        self._left: dict[tuple[str, str, str], float] = {}

    def place(self, jobs: Iterable[tuple[SimulatedJob, RegisteredTable]]) -> Iterator[SimulatedJob]:
        placed = [self._place(job, table) for job, table in jobs]
        yield from sorted(placed, key=lambda job: job.starts_at or FOREVER)

    def _place(self, job: SimulatedJob, table: RegisteredTable) -> SimulatedJob:
        policy = table_policy(self._config, table).policy
        slots = self._free[pool_of(self._config, policy.pool).name]
        at = heapq.heappop(slots)
        slices = max(1, -(-job.bytes // policy.slice_bytes))
        part = replace(
            job,
            bytes=job.bytes / slices,  # type: ignore[arg-type]
            core_seconds=job.core_seconds / slices,
            cost=job.cost / slices,
        )
        started, free = None, at
        for _ in range(slices):
            begin = self._start(part, table, policy, at)
            if begin is None:
                heapq.heappush(slots, free)
                return replace(job, slices=slices, starts_at=started)
            started = begin if started is None else started
            at = free = begin + part.core_seconds
        heapq.heappush(slots, free)
        return replace(job, slices=slices, starts_at=started, ends_at=at)

    def _start(
        self, part: SimulatedJob, table: RegisteredTable, policy: Policy, at: float
    ) -> float | None:
        """Return when a slice may start, from a time on; None if it may not for long."""
        while at < self._now + _MOST_DAYS * 86_400:
            opens_at, _ = next_window(self._config, policy, at)
            if opens_at >= FOREVER:
                return None
            day, tomorrow = day_of(self._config, opens_at)
            if self._spend(part, table, day):
                return opens_at
            at = tomorrow
        return None

    def _spend(self, part: SimulatedJob, table: RegisteredTable, day: str) -> bool:
        wanted = {"bytes": part.bytes, "core_seconds": part.core_seconds, "cost": part.cost}
        keys = []
        for budget in budgets_of(self._config, table):
            for unit, allowed in budget.limits().items():
                key = (budget.name, unit, day)
                left = self._left.setdefault(key, allowed)
                # A slice that is larger than the whole budget of a day takes all of it.
                if left < min(wanted[unit], allowed) or (allowed <= 0 < wanted[unit]):
                    return False
                keys.append((key, wanted[unit]))
        for key, amount in keys:
            self._left[key] -= amount
        return True
