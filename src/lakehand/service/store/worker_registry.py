"""Workers and who leads them: each tells that it is alive, and reads what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from sqlalchemy import delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.errors import JobNotFoundError
from lakehand.service.store.database import is_over
from lakehand.service.store.database_schema import LEASES, WORKERS
from lakehand.service.store.events import record_event
from lakehand.service.store.records import record_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row

    from lakehand.service.store.database import Database

#: What a worker is asked to do: take no further job and end, or end at once.
WorkerWish = Literal["drain", "stop"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A row of the table of workers."""

    #: Name of the worker.
    id: str
    #: Machine.
    host: str
    #: Process.
    pid: int
    #: Version of lakehand.
    version: str
    #: Where it can run tasks.
    engines: Sequence[str]
    #: Jobs that it runs at once.
    slots: int
    #: Memory for its jobs.
    memory_bytes: int
    #: Pools whose jobs it takes; empty: all.
    pools: Sequence[str] = ()
    #: When it was started.
    started_at: float = 0.0
    #: Its last sign of life.
    beat_at: float = 0.0
    #: What it is asked to do: `drain` or `stop`.
    wish: WorkerWish | None = None
    #: When it ended.
    stopped_at: float | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        values = row._mapping  # noqa: SLF001  the documented way to a row's names
        return cls(**{item.name: values[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


class WorkerRegistry:
    """The workers of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, worker: Worker) -> None:
        """Register a worker."""
        now = self._database.now()
        values = {
            "host": worker.host,
            "pid": worker.pid,
            "version": worker.version,
            "engines": list(worker.engines),
            "slots": worker.slots,
            "memory_bytes": worker.memory_bytes,
            "pools": list(worker.pools),
            "started_at": now,
            "beat_at": now,
        }
        with self._database.transaction() as connection:
            connection.execute(WORKERS.insert().values(id=worker.id, **values))
            record_event(connection, now, "worker.started", by=worker.id, host=worker.host)

    def beat(self, worker_id: str) -> WorkerWish | None:
        """Tell that a worker is alive; return what it is asked to do."""
        statement = (
            update(WORKERS)
            .where(WORKERS.c.id == worker_id)
            .values(beat_at=self._database.now())
            .returning(WORKERS.c.wish)
        )
        with self._database.transaction() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise _no_worker(worker_id)
        wish: WorkerWish | None = row.wish
        return wish

    def ask(self, worker_id: str, wish: WorkerWish, *, by: str | None = None) -> None:
        """Ask a worker to end; it hears of it with its next beat."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                update(WORKERS)
                .where(WORKERS.c.id == worker_id, WORKERS.c.stopped_at.is_(None))
                .values(wish=wish)
            )
            if changed.rowcount == 0:
                raise _no_worker(worker_id)
            now = self._database.now()
            record_event(connection, now, f"worker.{wish}_requested", by=by, worker=worker_id)

    def stop(self, worker_id: str) -> None:
        """Note that a worker has ended."""
        now = self._database.now()
        with self._database.transaction() as connection:
            connection.execute(
                update(WORKERS).where(WORKERS.c.id == worker_id).values(stopped_at=now)
            )
            record_event(connection, now, "worker.stopped", by=worker_id)

    def alive(self, *, within_seconds: float) -> list[Worker]:
        """Return the workers that have told of themselves lately, the oldest first."""
        now = self._database.now()
        wanted = select(WORKERS).where(
            WORKERS.c.stopped_at.is_(None), WORKERS.c.beat_at > now - within_seconds
        )
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(WORKERS.c.started_at, WORKERS.c.id))
            return [Worker.of(row) for row in rows]

    def forget_lost(self, *, silent_seconds: float) -> list[str]:
        """Mark the workers that have been silent for long as stopped; return their ids."""
        now = self._database.now()
        statement = (
            update(WORKERS)
            .where(WORKERS.c.stopped_at.is_(None), WORKERS.c.beat_at <= now - silent_seconds)
            .values(stopped_at=now)
            .returning(WORKERS.c.id)
        )
        with self._database.transaction() as connection:
            lost = list(connection.execute(statement).scalars())
            for worker_id in lost:
                record_event(connection, now, "worker.lost", by=worker_id)
        return lost


class Leadership:
    """A lease on a name, for work that one process does for all. A second one costs work only."""

    def __init__(self, database: Database, name: str, holder: str) -> None:
        self._database = database
        self._name = name
        self._holder = holder

    def hold(self, seconds: float) -> bool:
        """Take the lease or extend it; False while another process has it."""
        now = self._database.now()
        dialect = sqlite if self._database.is_sqlite else postgresql
        new = dialect.insert(LEASES).values(
            name=self._name, holder=self._holder, until=now + seconds
        )
        statement = new.on_conflict_do_update(
            index_elements=[LEASES.c.name],
            set_={"holder": self._holder, "until": now + seconds, "fence": LEASES.c.fence + 1},
            where=or_(LEASES.c.holder == self._holder, is_over(LEASES.c.until, now)),
        ).returning(LEASES.c.holder)
        with self._database.transaction() as connection:
            return connection.execute(statement).scalar_one_or_none() == self._holder

    def release(self) -> None:
        """Let another process lead at once."""
        own = (LEASES.c.name == self._name, LEASES.c.holder == self._holder)
        with self._database.transaction() as connection:
            connection.execute(delete(LEASES).where(*own))


def _no_worker(worker_id: str) -> JobNotFoundError:
    return JobNotFoundError(f"there is no worker {worker_id!r}", hint="lakehand workers list")
