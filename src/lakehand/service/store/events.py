"""What happened, in the order in which it was committed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, bindparam, delete, insert, select

from lakehand.service.store.database_schema import (
    EVENTS,
    HOOK_EVENTS,
    JOBS,
    MEASUREMENTS,
    OUTBOX,
)

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
    event_id = connection.execute(_inserting(now), values).scalar_one()
    connection.execute(_posting(now), {"event": event_id, "patterns": patterns_of(kind)})


@functools.lru_cache(maxsize=64)
def _inserting(now: Any) -> Any:
    columns = ("kind", "table_id", "job_id", "by", "details")
    new = insert(EVENTS).values(at=now, **{name: bindparam(name) for name in columns})
    return new.returning(EVENTS.c.id)


@functools.lru_cache(maxsize=64)
def _posting(now: Any) -> Any:
    """Return the statement that puts an event into the outbox of the hooks that want it."""
    patterns: Any = bindparam("patterns", expanding=True)
    wanted = (
        select(bindparam("event", type_=BigInteger), HOOK_EVENTS.c.hook, now, now)
        .where(HOOK_EVENTS.c.pattern.in_(patterns))
        .distinct()
    )
    columns = [OUTBOX.c.event_id, OUTBOX.c.hook, OUTBOX.c.queued_at, OUTBOX.c.due_at]
    return insert(OUTBOX).from_select(columns, wanted)


def patterns_of(kind: str) -> tuple[str, str, str]:
    """Return the patterns that describe a kind of event.

    >>> patterns_of("job.failed")
    ('job.failed', 'job.*', '*')
    """
    return kind, f"{kind.partition('.')[0]}.*", "*"


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
        """Delete the history from before a time: events, ended jobs, measurements.

        Return how many rows. A job that is queued or running is not history, however old it is.
        """
        with self._database.transaction() as connection:
            gone = [
                connection.execute(delete(EVENTS).where(EVENTS.c.at < older_than)),
                connection.execute(delete(JOBS).where(JOBS.c.ended_at < older_than)),
                connection.execute(delete(MEASUREMENTS).where(MEASUREMENTS.c.at < older_than)),
            ]
            return sum(one.rowcount for one in gone)
