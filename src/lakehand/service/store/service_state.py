"""The service as a whole: whether it is paused, and how it is doing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.service.job_states import STATES
from lakehand.service.store.database import shown_url
from lakehand.service.store.database_schema import JOBS, LEASES, POOLS, SERVICE, TABLES
from lakehand.service.store.events import record_event
from lakehand.service.store.records import FOREVER, record_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from lakehand.service.store.database import Database
    from lakehand.service.store.worker_registry import Worker

#: Ended jobs are counted for this long.
_RECENT_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Who has paused the service, and for how long."""

    #: Until when; null if it has no end.
    paused_until: float
    #: Who paused it.
    paused_by: str
    #: Why.
    paused_why: str | None = None

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceStatus:
    """How the service is doing."""

    #: Address of the job store, without its password.
    store: str
    #: Null if the service is not paused.
    pause: Pause | None
    #: Registered tables: `total`, `paused`, `held`, `unreadable`.
    tables: Mapping[str, int]
    #: Jobs that are `queued` and `running`; and those that ended in the last day, by state.
    jobs: Mapping[str, int]
    #: How long the oldest job that may start has been waiting.
    oldest_queued_seconds: float | None
    #: Workers that have told of themselves lately.
    workers: tuple[Worker, ...]
    #: The process that schedules; null if there is none.
    scheduler: str | None

    @property
    def slots(self) -> int:
        """How many jobs the workers can run at once."""
        return sum(worker.slots for worker in self.workers)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "pause": None if self.pause is None else self.pause.to_json(),
            "workers": [worker.to_json() for worker in self.workers],
            "slots": self.slots,
        }


class ServiceState:
    """What holds for the whole service of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pause(self, *, by: str, why: str | None = None, until: float | None = None) -> None:
        """Start no job and look at no table until a time, or until it is resumed.

        Running jobs go on.
        """
        values = {"paused_until": until or FOREVER, "paused_by": by, "paused_why": why}
        dialect = sqlite if self._database.is_sqlite else postgresql
        new = dialect.insert(SERVICE).values(id=1, **values)
        with self._database.transaction() as connection:
            connection.execute(
                new.on_conflict_do_update(index_elements=[SERVICE.c.id], set_=values)
            )
            record_event(connection, self._database.now(), "service.paused", by=by, why=why)

    def resume(self, *, by: str | None = None) -> bool:
        """Let jobs start again; return whether the service was paused."""
        now = self._database.now()
        none = {"paused_until": None, "paused_by": None, "paused_why": None}
        with self._database.transaction() as connection:
            was_paused = self._pause(connection) is not None
            connection.execute(update(SERVICE).values(none))
            if was_paused:
                record_event(connection, now, "service.resumed", by=by)
        return was_paused

    def pause_now(self) -> Pause | None:
        """Return the pause that holds now; None if there is none."""
        with self._database.reading() as connection:
            return self._pause(connection)

    def _pause(self, connection: Connection) -> Pause | None:
        wanted = select(SERVICE.c.paused_until, SERVICE.c.paused_by, SERVICE.c.paused_why)
        holds = wanted.where(SERVICE.c.paused_until > self._database.now())
        row = connection.execute(holds).one_or_none()
        return None if row is None else Pause(**row._mapping)  # noqa: SLF001

    def ensure_pool(self, name: str, max_running: int) -> None:
        """Add a pool unless it exists: a job can be asked for before the service has started."""
        dialect = sqlite if self._database.is_sqlite else postgresql
        new = dialect.insert(POOLS).values(name=name, max_running=max_running)
        with self._database.transaction() as connection:
            connection.execute(new.on_conflict_do_nothing(index_elements=[POOLS.c.name]))

    def status(self, workers: tuple[Worker, ...], *, held: int) -> ServiceStatus:
        """Count tables and jobs; `held` is the number of tables of which a verb is held."""
        with self._database.reading() as connection:
            now = float(connection.execute(select(self._database.now())).scalar_one())
            oldest = connection.execute(
                select(func.min(JOBS.c.queued_at)).where(
                    JOBS.c.state == "queued", JOBS.c.not_before <= now, JOBS.c.paused_by.is_(None)
                )
            ).scalar_one()
            leader = connection.execute(
                select(LEASES.c.holder).where(LEASES.c.until > now).order_by(LEASES.c.name)
            ).first()
            return ServiceStatus(
                store=shown_url(self._database.engine.url),
                pause=self._pause(connection),
                tables={**_count_tables(connection, now), "held": held},
                jobs=_count_jobs(connection, now),
                oldest_queued_seconds=None if oldest is None else max(0.0, now - oldest),
                workers=workers,
                scheduler=None if leader is None else leader.holder,
            )


def _count_tables(connection: Connection, now: float) -> dict[str, int]:
    conditions = {
        "total": TABLES.c.id.is_not(None),
        "paused": TABLES.c.paused_until > now,
        "unreadable": and_(TABLES.c.last_error.is_not(None), TABLES.c.error_count > 0),
    }
    known = select(func.count()).select_from(TABLES).where(TABLES.c.gone_at.is_(None))
    return {
        name: int(connection.execute(known.where(condition)).scalar_one())
        for name, condition in conditions.items()
    }


def _count_jobs(connection: Connection, now: float) -> dict[str, int]:
    wanted = (
        select(JOBS.c.state, func.count())
        .where(or_(JOBS.c.ended_at.is_(None), JOBS.c.ended_at > now - _RECENT_SECONDS))
        .group_by(JOBS.c.state)
    )
    found = {row[0]: int(row[1]) for row in connection.execute(wanted)}
    return {state: found.get(state, 0) for state in STATES}
