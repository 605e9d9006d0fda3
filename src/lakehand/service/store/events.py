"""What happened, in the order in which it was committed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select

from lakehand.service.store.database_schema import EVENTS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lakehand.service.store.database import Database


def record_event(
    connection: Connection,
    now: Any,
    kind: str,
    *,
    table: int | None = None,
    job: int | None = None,
    by: str | None = None,
    **details: Any,
) -> None:
    """Record an event in the transaction that makes it true."""
    values = {"kind": kind, "table_id": table, "job_id": job, "by": by, "details": details}
    connection.execute(_inserting(now), values)


@functools.lru_cache(maxsize=64)
def _inserting(now: Any) -> Any:
    columns = ("kind", "table_id", "job_id", "by", "details")
    return insert(EVENTS).values(at=now, **{name: bindparam(name) for name in columns})


class EventLog:
    """The events of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, event_id: int, *, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the events after one, oldest first."""
        wanted = select(EVENTS).where(EVENTS.c.id > event_id).order_by(EVENTS.c.id).limit(limit)
        with self._database.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]  # noqa: SLF001

    def of_job(self, job_id: int) -> list[dict[str, Any]]:
        """Return the events of a job, oldest first."""
        wanted = select(EVENTS).where(EVENTS.c.job_id == job_id).order_by(EVENTS.c.id)
        with self._database.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]  # noqa: SLF001

    def prune(self, older_than: float) -> int:
        """Delete the events from before a time; return how many."""
        with self._database.transaction() as connection:
            return connection.execute(delete(EVENTS).where(EVENTS.c.at < older_than)).rowcount
