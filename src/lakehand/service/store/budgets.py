"""Budgets of a day: reserved before an attempt, settled at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import case, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.errors import LeaseLostError
from lakehand.observe.steps import Step, reached
from lakehand.service.store.database_schema import ATTEMPTS, BUDGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        unit: Unit,
        day: str,
        wanted: float,
        least: float,
    ) -> float | None:
        """Reserve for an attempt in every scope that has a budget, and return how much.

        It is what is wanted or what is left, and None if less than `least` is left anywhere;
        LeaseLostError if the attempt has ended.
        """
        with self._database.transaction() as connection:
            # In the order of names, so that no two attempts wait for each other.
            budgets = connection.execute(
                select(BUDGETS)
                .where(BUDGETS.c.scope.in_(scopes), BUDGETS.c.unit == unit, BUDGETS.c.day == day)
                .order_by(BUDGETS.c.scope)
                .with_for_update()
            ).all()
            amount = min((Budget(**row._mapping).left for row in budgets), default=wanted)  # noqa: SLF001
            amount = min(amount, wanted)
            if amount < least:
                return None
            for budget in budgets:
                connection.execute(
                    update(BUDGETS)
                    .where(*_key(budget.scope, unit, day))
                    .values(reserved=BUDGETS.c.reserved + amount)
                )
            self._note(
                connection,
                job_id,
                fence,
                [
                    {"scope": budget.scope, "unit": unit, "day": day, "amount": amount}
                    for budget in budgets
                ],
            )
        reached(Step.BUDGET_RESERVED)
        return amount

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


def release_reserved(
    connection: Connection, reserved: Sequence[Mapping[str, Any]], spent: Mapping[str, float]
) -> None:
    """Give back what an attempt had reserved, and count what it has spent instead."""
    for part in sorted(reserved, key=lambda part: (part["scope"], part["unit"])):
        rest = BUDGETS.c.reserved - part["amount"]
        connection.execute(
            update(BUDGETS)
            .where(*_key(part["scope"], part["unit"], part["day"]))
            .values(
                reserved=case((rest < 0, 0.0), else_=rest),
                spent=BUDGETS.c.spent + float(spent.get(part["unit"], 0.0)),
            )
        )


def _key(scope: str, unit: str, day: str) -> tuple[Any, ...]:
    return BUDGETS.c.scope == scope, BUDGETS.c.unit == unit, BUDGETS.c.day == day
