"""Budgets of a day: reserved before an attempt, settled at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import case, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.errors import LeaseLostError
from lakehand.observe.steps import Step, reached
from lakehand.service.store.database_schema import ATTEMPTS, BUDGETS, JOBS
from lakehand.service.store.job_statements import QUEUED
from lakehand.service.store.records import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from lakehand.service.store.database import Database

Unit = Literal["bytes", "core_seconds", "cost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What may be spent in one scope on one day."""

    #: What it limits.
    scope: str
    #: `bytes`, `core_seconds` or `cost`.
    unit: Unit
    #: Day in the service's time zone.
    day: str
    #: What may be spent.
    allowed: float
    #: What running jobs have reserved.
    reserved: float = 0.0
    #: What ended jobs have spent.
    spent: float = 0.0

    @property
    def left(self) -> float:
        return max(0.0, self.allowed - self.reserved - self.spent)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "left": self.left}


class BudgetStore:
    """The budgets of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def allow(self, scope: str, unit: Unit, day: str, amount: float) -> None:
        """Say what may be spent; what is reserved and spent already stays."""
        dialect = sqlite if self._database.is_sqlite else postgresql
        new = dialect.insert(BUDGETS).values(scope=scope, unit=unit, day=day, allowed=amount)
        statement = new.on_conflict_do_update(
            index_elements=[BUDGETS.c.scope, BUDGETS.c.unit, BUDGETS.c.day],
            set_={"allowed": new.excluded.allowed},
        )
        with self._database.transaction() as connection:
            connection.execute(statement)

    def time(self) -> float:
        """Return the time of the store."""
        return self._database.time()

    def of_day(self, day: str) -> list[Budget]:
        wanted = select(BUDGETS).where(BUDGETS.c.day == day)
        ordered = wanted.order_by(BUDGETS.c.scope, BUDGETS.c.unit)
        with self._database.reading() as connection:
            return [Budget(**row._mapping) for row in connection.execute(ordered)]  # noqa: SLF001

    def reserve(
        self,
        job_id: int,
        fence: int,
        *,
        scopes: Sequence[str],
        day: str,
        wanted: Mapping[Unit, float],
        least_share: float,
    ) -> float | Budget:
        """Reserve for an attempt in every scope that has a budget; return which share of `wanted`.

        It is 1, or what is left of the tightest budget. Where too little is left of one
        (`find_short`), it is returned and nothing is reserved. LeaseLostError if the attempt has
        ended.
        """
        with self._database.transaction() as connection:
            # In the order of names, so that no two attempts wait for each other.
            rows = connection.execute(
                select(BUDGETS)
                .where(
                    BUDGETS.c.scope.in_(scopes),
                    BUDGETS.c.unit.in_(list(wanted)),
                    BUDGETS.c.day == day,
                )
                .order_by(BUDGETS.c.scope, BUDGETS.c.unit)
                .with_for_update()
            ).all()
            budgets = [Budget(**row._mapping) for row in rows]  # noqa: SLF001
            short = find_short(budgets, wanted, least_share)
            if short is not None:
                return short
            share = min((share_left(budget, wanted) for budget in budgets), default=1.0)
            self._reserve_share(connection, job_id, fence, budgets, wanted, share)
        reached(Step.BUDGET_RESERVED)
        return share

    def _reserve_share(
        self,
        connection: Connection,
        job_id: int,
        fence: int,
        budgets: Sequence[Budget],
        wanted: Mapping[Unit, float],
        share: float,
    ) -> None:
        reserved = []
        for budget in budgets:
            amount = wanted[budget.unit] * share
            connection.execute(
                update(BUDGETS)
                .where(*_key(budget.scope, budget.unit, budget.day))
                .values(reserved=BUDGETS.c.reserved + amount)
            )
            key = {"scope": budget.scope, "unit": budget.unit, "day": budget.day}
            reserved.append({**key, "amount": amount})
        self._note(connection, job_id, fence, reserved)

    def waiting_jobs(self, *, limit: int = 500) -> list[Job]:
        """Return the jobs that wait for a budget, in the order of their turns."""
        wanted = select(JOBS).where(QUEUED, JOBS.c.waits_for == "budget")
        is_later = JOBS.c.not_before > self._database.now()
        ordered = wanted.where(is_later).order_by(JOBS.c.rank_at, JOBS.c.id).limit(limit)
        with self._database.reading() as connection:
            return [Job.of(row) for row in connection.execute(ordered)]

    def end_waits(self, job_ids: Sequence[int]) -> None:
        """Let queued jobs start that waited for a budget."""
        is_waiting = (JOBS.c.id.in_(job_ids), QUEUED, JOBS.c.waits_for == "budget")
        values = {"not_before": self._database.now(), "waits_for": None, "wait_details": None}
        with self._database.transaction() as connection:
            connection.execute(update(JOBS).where(*is_waiting).values(values))

    def _note(
        self, connection: Connection, job_id: int, fence: int, reserved: list[dict[str, Any]]
    ) -> None:
        attempt = (ATTEMPTS.c.job_id == job_id, ATTEMPTS.c.fence == fence)
        known = connection.execute(
            select(ATTEMPTS.c.reserved)
            .where(*attempt, ATTEMPTS.c.ended_at.is_(None))
            .with_for_update()
        ).scalar_one_or_none()
        if known is None:  # The end of an attempt returns its budget, and this one has ended.
            message = f"the lease of job {job_id} is lost: its attempt has ended"
            raise LeaseLostError(message, job=job_id, fence=fence)
        connection.execute(update(ATTEMPTS).where(*attempt).values(reserved=[*known, *reserved]))


def share_left(budget: Budget, wanted: Mapping[Unit, float]) -> float:
    """Return which share of what is wanted a budget has left, at most 1.

    >>> today = Budget(scope="all", unit="bytes", day="2026-01-01", allowed=50.0, spent=20.0)
    >>> share_left(today, {"bytes": 60.0}), share_left(today, {"bytes": 0.0})
    (0.5, 1.0)
    """
    amount = wanted.get(budget.unit, 0.0)
    return 1.0 if amount <= 0 else min(1.0, budget.left / amount)


def find_short(
    budgets: Iterable[Budget], wanted: Mapping[Unit, float], least_share: float
) -> Budget | None:
    """Return the tightest budget that has less left than this share of what is wanted.

    A budget that is small compared with what is wanted is still used up: an eighth of it is
    enough. With a share of 0 none is too short.
    """
    short = [
        budget
        for budget in budgets
        if least_share > 0
        and (amount := wanted.get(budget.unit, 0.0)) > 0
        and (budget.left <= 0 or budget.left < min(least_share * amount, budget.allowed / 8))
    ]
    return min(short, key=lambda budget: share_left(budget, wanted), default=None)


def release_reserved(
    connection: Connection, reserved: Sequence[Mapping[str, Any]], spent: Mapping[str, float]
) -> None:
    """Give back what an attempt had reserved, and count what it has spent instead.

    Of an attempt that did not tell, as one whose worker died, all that it had reserved counts.
    """
    amounts: dict[tuple[str, Unit, str], float] = {}
    for part in reserved:
        key = (part["scope"], part["unit"], part["day"])
        amounts[key] = amounts.get(key, 0.0) + part["amount"]
    for (scope, unit, day), amount in sorted(amounts.items()):
        rest = BUDGETS.c.reserved - amount
        connection.execute(
            update(BUDGETS)
            .where(*_key(scope, unit, day))
            .values(
                reserved=case((rest < 0, 0.0), else_=rest),
                spent=BUDGETS.c.spent + float(spent.get(unit, amount)),
            )
        )


def _key(scope: str, unit: str, day: str) -> tuple[Any, ...]:
    return BUDGETS.c.scope == scope, BUDGETS.c.unit == unit, BUDGETS.c.day == day
