"""Events that hooks are still to be told of. A row is there from its event until its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import delete, insert, select, update

from lakehand.service.run_metrics import Increment
from lakehand.service.store.database_schema import EVENTS, HOOK_EVENTS, JOBS, OUTBOX, TABLES
from lakehand.service.store.events import record_event
from lakehand.service.store.service_metrics import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from lakehand.service.store.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """An event, and the hook that is to be told of it."""

    id: int
    hook: str
    event_id: int
    kind: str
    at: float
    table_id: int | None
    table_url: str | None
    table_name: str | None
    job_id: int | None
    verb: str | None
    by: str | None
    details: dict[str, Any]
    #: With the one that has begun.
    attempts: int
    #: How long it has waited, in seconds.
    age: float

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        return cls(**row._mapping)  # noqa: SLF001  the documented way to a row's names


class Outbox:
    """The deliveries of a store. Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def subscribe(self, hooks: Mapping[str, Sequence[str]]) -> None:
        """Say which hooks there are, with the events that each wants, from now on.

        Deliveries to hooks that are no more are deleted.
        """
        rows = [
            {"hook": hook, "pattern": pattern}
            for hook, patterns in hooks.items()
            for pattern in dict.fromkeys(patterns)
        ]
        with self._database.transaction() as connection:
            connection.execute(delete(HOOK_EVENTS))
            if rows:
                connection.execute(insert(HOOK_EVENTS), rows)
            connection.execute(delete(OUTBOX).where(OUTBOX.c.hook.not_in(list(hooks))))

    def take_due(self, *, limit: int, hold_seconds: float) -> list[Delivery]:
        """Return deliveries that are due; if their end is not noted in time, they are due again.

        Those that have failed less often come first.
        """
        now = self._database.now()
        due = (
            select(OUTBOX.c.id)
            .where(OUTBOX.c.due_at <= now)
            .order_by(OUTBOX.c.attempts, OUTBOX.c.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with self._database.transaction() as connection:
            ids = list(connection.execute(due).scalars())
            if not ids:
                return []
            connection.execute(
                update(OUTBOX)
                .where(OUTBOX.c.id.in_(ids))
                .values(due_at=now + hold_seconds, attempts=OUTBOX.c.attempts + 1)
            )
            rows = connection.execute(_described(now).where(OUTBOX.c.id.in_(ids)))
            return [Delivery.of(row) for row in rows]

    def delivered(self, delivery: Delivery) -> None:
        """Note that a hook was told."""
        with self._database.transaction() as connection:
            connection.execute(delete(OUTBOX).where(OUTBOX.c.id == delivery.id))
            count(connection, Increment("webhook_deliveries", {"outcome": "sent"}))

    def retry(self, delivery: Delivery, *, delay: float, counts: bool = True) -> None:
        """Tell a hook again after some seconds; `counts` is False if it was not even tried."""
        attempts = delivery.attempts if counts else delivery.attempts - 1
        with self._database.transaction() as connection:
            connection.execute(
                update(OUTBOX)
                .where(OUTBOX.c.id == delivery.id)
                .values(due_at=self._database.now() + delay, attempts=attempts)
            )
            if counts:
                count(connection, Increment("webhook_deliveries", {"outcome": "failed"}))

    def drop(self, delivery: Delivery, *, hook: str, reason: str) -> None:
        """Give a delivery up, with an event; one about such an event goes without."""
        with self._database.transaction() as connection:
            connection.execute(delete(OUTBOX).where(OUTBOX.c.id == delivery.id))
            count(connection, Increment("webhook_deliveries", {"outcome": "dropped"}))
            if delivery.kind == "hook.dropped":
                return
            record_event(
                connection,
                self._database.now(),
                "hook.dropped",
                table=delivery.table_id,
                job=delivery.job_id,
                hook=hook,
                event=delivery.event_id,
                event_kind=delivery.kind,
                attempts=delivery.attempts,
                reason=reason,
            )

    def waiting(self) -> int:
        """Return how many deliveries wait."""
        with self._database.transaction() as connection:
            return len(connection.execute(select(OUTBOX.c.id)).all())


def _described(now: Any) -> Any:
    """Return the statement that reads deliveries with their events, the oldest event first."""
    return (
        select(
            OUTBOX.c.id,
            OUTBOX.c.hook,
            OUTBOX.c.event_id,
            EVENTS.c.kind,
            EVENTS.c.at,
            EVENTS.c.table_id,
            TABLES.c.url.label("table_url"),
            TABLES.c.name.label("table_name"),
            EVENTS.c.job_id,
            JOBS.c.verb,
            EVENTS.c.by,
            EVENTS.c.details,
            OUTBOX.c.attempts,
            (now - OUTBOX.c.queued_at).label("age"),
        )
        .join(EVENTS, EVENTS.c.id == OUTBOX.c.event_id)
        .outerjoin(TABLES, TABLES.c.id == EVENTS.c.table_id)
        .outerjoin(JOBS, JOBS.c.id == EVENTS.c.job_id)
        .order_by(OUTBOX.c.attempts, OUTBOX.c.id)
    )
