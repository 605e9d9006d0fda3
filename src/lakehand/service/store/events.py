"""What happened, in the order in which it was committed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, bindparam, cast, delete, insert, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.service.store.database_schema import (
    BUDGETS,
    CONDITIONS,
    EVENTS,
    HOOK_EVENTS,
    JOBS,
    MEASUREMENTS,
    OUTBOX,
    TABLES,
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


_UNHEALTHY, _USED_UP = "table.unhealthy", "budget.used_up"
#: A table is healthy again this far above the limit: scores go up and down a little.
_MARGIN = 5
#: A budget is used up with less than this fraction left: jobs need more than the last bytes.
_LEFT = 0.05
#: Of each kind in one transaction; the next round goes on.
_AT_ONCE = 200


class Conditions:
    """Conditions that last: an unhealthy table, a budget that is used up. Each is told once.

    A row says that a condition holds and that its event was recorded, in one transaction. The
    primary key makes it one event, whichever scheduler sees the condition first.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self, *, unhealthy_below: int, day: str) -> int:
        """Record events of conditions that have begun or ended; return how many began.

        `day` is the one whose budgets count.
        """
        with self._database.transaction() as connection:
            self._end_unhealthy(connection, unhealthy_below)
            begun = self._begin_unhealthy(connection, unhealthy_below)
            is_past = CONDITIONS.c.subject.not_like(f"{day} %")
            connection.execute(delete(CONDITIONS).where(CONDITIONS.c.kind == _USED_UP, is_past))
            return begun + self._begin_used_up(connection, day)

    def _begin_unhealthy(self, connection: Connection, below: int) -> int:
        known = select(cast(CONDITIONS.c.subject, Integer)).where(CONDITIONS.c.kind == _UNHEALTHY)
        found = (
            select(TABLES.c.id, TABLES.c.health_score)
            .where(
                TABLES.c.gone_at.is_(None),
                TABLES.c.health_score < below,
                TABLES.c.id.not_in(known),
            )
            .order_by(TABLES.c.id)
            .limit(_AT_ONCE)
        )
        return sum(
            self._begin(
                connection,
                _UNHEALTHY,
                str(row.id),
                table=row.id,
                score=row.health_score,
                limit=below,
            )
            for row in connection.execute(found).all()
        )

    def _end_unhealthy(self, connection: Connection, below: int) -> None:
        table = cast(CONDITIONS.c.subject, Integer)
        ended = (
            select(CONDITIONS.c.subject, TABLES.c.health_score, TABLES.c.gone_at)
            .join(TABLES, TABLES.c.id == table)
            .where(
                CONDITIONS.c.kind == _UNHEALTHY,
                or_(TABLES.c.gone_at.is_not(None), TABLES.c.health_score >= below + _MARGIN),
            )
            .limit(_AT_ONCE)
        )
        for row in connection.execute(ended).all():
            is_own = (CONDITIONS.c.kind == _UNHEALTHY, CONDITIONS.c.subject == row.subject)
            was_there = connection.execute(delete(CONDITIONS).where(*is_own)).rowcount > 0
            if was_there and row.gone_at is None:
                record_event(
                    connection,
                    self._database.now(),
                    "table.healthy",
                    table=int(row.subject),
                    score=row.health_score,
                    limit=below,
                )

    def _begin_used_up(self, connection: Connection, day: str) -> int:
        spent = BUDGETS.c.spent + BUDGETS.c.reserved
        found = select(BUDGETS).where(
            BUDGETS.c.day == day, spent >= BUDGETS.c.allowed * (1 - _LEFT)
        )
        return sum(
            self._begin(
                connection,
                _USED_UP,
                f"{day} {row.unit} {row.scope}",
                scope=row.scope,
                unit=row.unit,
                day=day,
                allowed=row.allowed,
                spent=row.spent,
            )
            for row in connection.execute(found.order_by(BUDGETS.c.scope, BUDGETS.c.unit)).all()
        )

    def _begin(
        self,
        connection: Connection,
        kind: str,
        subject: str,
        *,
        table: int | None = None,
        **details: Any,
    ) -> bool:
        dialect = sqlite if self._database.is_sqlite else postgresql
        now = self._database.now()
        new = dialect.insert(CONDITIONS).values(kind=kind, subject=subject, since=now)
        added = new.on_conflict_do_nothing(
            index_elements=[CONDITIONS.c.kind, CONDITIONS.c.subject]
        ).returning(CONDITIONS.c.subject)
        if connection.execute(added).scalar_one_or_none() is None:
            return False
        record_event(connection, now, kind, table=table, **details)
        return True
