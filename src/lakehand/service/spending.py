"""What a job may spend: its slice, and what is left of the budgets of its table.

A budget makes jobs smaller before it makes them wait: a job gets the share of its slice that is
left. What an attempt reserves is settled with what it has spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand.planning.plan import RECODE_READ_BYTES_PER_SECOND, RECODE_WRITE_BYTES_PER_SECOND
from lakehand.service.job_states import LANE_OF
from lakehand.service.store.budgets import Budget, find_short, share_left

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.config_sections import BudgetSection, CostsSection
    from lakehand.service.store.budgets import BudgetStore, Unit
    from lakehand.service.store.records import Job
    from lakehand.service.store.table_registry import RegisteredTable

#: Verbs that rewrite up to a limit of bytes, and leave the rest to the next job.
SLICED_VERBS = frozenset({"maintain", "compact", "cluster"})
#: By an attempt that has not begun.
NOTHING_SPENT: Mapping[str, float] = {"bytes": 0.0, "core_seconds": 0.0, "cost": 0.0}
#: A job starts with no less than this part of its slice, or of what it is expected to rewrite.
_LEAST_SHARE = 1 / 8
#: Expected bytes may be wrong by this factor without a second job.
_MARGIN = 1.5
#: No job wants less of a slice: it may find more than was expected.
_LEAST_SLICE = 1 / 16
#: A job whose files were too large for what was left is retried with this many times as much.
_RETRY_GROWTH = 2
#: Start of a job and reading of the log, in core seconds.
_START_SECONDS = 2.0


class NoBudgetLeftError(Exception):
    """A budget has too little left for a job to start."""

    def __init__(self, budget: Budget, seconds: float) -> None:
        super().__init__(f"the budget {budget.scope} is used up")
        self.budget = budget
        #: How long it is until the next day.
        self.seconds = seconds

    def describe(self) -> str:
        """Return which budget it is, for people.

        >>> used = Budget(scope="nightly", unit="core_seconds", day="2026-01-01", allowed=1.0)
        >>> NoBudgetLeftError(used, 0.0).describe()
        'core seconds of nightly'
        """
        return f"{self.budget.unit.replace('_', ' ')} of {self.budget.scope}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """What an attempt may do."""

    #: Bytes that it may rewrite; None: the verb has no such limit.
    max_bytes: int | None
    #: Seconds until the next day of the budget that gave less than a slice; None: none did.
    short_for: float | None = None


def budgets_of(config: ServiceConfig, table: RegisteredTable) -> list[BudgetSection]:
    """Return the budgets that limit the jobs of a table."""
    return [budget for budget in config.budgets if budget.applies_to(table.url, table.name)]


def day_of(config: ServiceConfig, now: float) -> tuple[str, float]:
    """Return the day of budgets, and when the next one begins."""
    zone = config.service.time_zone
    today = datetime.fromtimestamp(now, zone).date()
    tomorrow = datetime.combine(today + timedelta(days=1), datetime.min.time(), zone)
    return today.isoformat(), tomorrow.timestamp()


def slice_of(job: Job, policy: Policy) -> int:
    """Return the bytes that an attempt at a job wants to rewrite at most."""
    if LANE_OF[job.verb] != "rewrite":
        return 0
    expected = job.expected.get("bytes") or 0.0
    if not expected or job.verb not in SLICED_VERBS:
        return policy.slice_bytes
    return int(min(policy.slice_bytes, max(expected * _MARGIN, policy.slice_bytes * _LEAST_SLICE)))


def wanted_by(config: ServiceConfig, max_bytes: int) -> dict[Unit, float]:
    """Return what the rewrite of some bytes costs, by unit."""
    per_byte = 1 / RECODE_READ_BYTES_PER_SECOND + 1 / RECODE_WRITE_BYTES_PER_SECOND
    seconds = _START_SECONDS + max_bytes * per_byte
    cost = config.costs.cost_of(core_seconds=seconds, bytes_read=max_bytes, bytes_written=max_bytes)
    return {"bytes": float(max_bytes), "core_seconds": seconds, "cost": cost}


def reserve_for(
    config: ServiceConfig,
    store: BudgetStore,
    job: Job,
    table: RegisteredTable,
    policy: Policy,
    now: float,
) -> Grant:
    """Reserve what an attempt needs; NoBudgetLeftError if there is too little left."""
    max_bytes = slice_of(job, policy)
    is_sliced = job.verb in SLICED_VERBS
    budgets = budgets_of(config, table)
    if not budgets:
        return Grant(max_bytes=policy.slice_bytes if is_sliced else None)
    day, until = day_of(config, now)
    for budget in budgets:
        for unit, amount in budget.limits().items():
            store.allow(budget.name, unit, day, amount)  # type: ignore[arg-type]
    share = store.reserve(
        job.id,
        job.fence,
        scopes=[budget.name for budget in budgets],
        day=day,
        wanted=wanted_by(config, max_bytes),
        least_share=_least_share(job),
    )
    if isinstance(share, Budget):
        raise NoBudgetLeftError(share, until - now)
    short_for = None if share == 1.0 else until - now
    if not is_sliced:
        return Grant(max_bytes=None, short_for=short_for)
    return Grant(max_bytes=max(1, int(max_bytes * share)), short_for=short_for)


def _least_share(job: Job) -> float:
    """Return the share without which an attempt does not start; other lanes always may."""
    return _LEAST_SHARE if LANE_OF[job.verb] == "rewrite" else 0.0


def budgets_today(
    known: Iterable[Budget], day: str, sections: Sequence[BudgetSection]
) -> list[Budget]:
    """Return budgets of a day as the file has them, with what is reserved and spent."""
    stored = {(budget.scope, budget.unit): budget for budget in known}
    found = []
    for section in sections:
        for unit, allowed in section.limits().items():
            empty = Budget(scope=section.name, unit=unit, day=day, allowed=allowed)  # type: ignore[arg-type]
            found.append(replace(stored.get((section.name, empty.unit), empty), allowed=allowed))
    return found


def can_start_again(
    config: ServiceConfig,
    jobs: Sequence[Job],
    tables: Mapping[int, tuple[RegisteredTable, Policy]],
    known: Iterable[Budget],
    day: str,
) -> list[int]:
    """Return the jobs that waited for a budget and would get one, each after those before it."""
    today = budgets_today(known, day, config.budgets)
    left = {(budget.scope, budget.unit): budget for budget in today}
    started = []
    for job in jobs:
        table, policy = tables[job.table_id]
        names = {budget.name for budget in budgets_of(config, table)}
        max_bytes = slice_of(job, policy)
        wanted = wanted_by(config, max_bytes)
        own = [budget for budget in left.values() if budget.scope in names]
        if find_short(own, wanted, _least_share(job)) is not None:
            continue
        share = min((share_left(budget, wanted) for budget in own), default=1.0)
        granted = (job.wait_details or {}).get("granted_bytes") or 0
        if share < 1 and max_bytes * share < _RETRY_GROWTH * granted:
            continue
        started.append(job.id)
        for budget in own:
            more = budget.reserved + wanted[budget.unit] * share
            left[budget.scope, budget.unit] = replace(budget, reserved=more)
    return started


def spent_by(costs: CostsSection, spent: Mapping[str, Any]) -> dict[str, float]:
    """Return what an attempt has spent, by unit of the budgets; its cost follows from the rest."""
    known = {name: float(value) for name, value in spent.items()}
    if "core_seconds" in known:
        known["cost"] = costs.cost_of(
            core_seconds=known["core_seconds"],
            bytes_read=known.get("bytes", 0.0),
            bytes_written=known.get("bytes_written", 0.0),
            requests=known.get("requests", 0.0),
        )
    return known
