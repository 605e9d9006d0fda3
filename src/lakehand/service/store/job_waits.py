"""What queued jobs wait for. The conditions are those of claims, so that the answer is true."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select

from lakehand.service.store.database_schema import JOBS, POOLS, SERVICE, TABLES, WORKERS
from lakehand.service.store.job_claims import startable
from lakehand.service.store.records import FOREVER, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Select, Table

    from lakehand.service.job_states import WaitsFor
    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Job

#: Waits that are stored with a job, with the time until which it waits.
_STORED: tuple[WaitsFor, ...] = ("retry", "budget", "writers_busy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """One thing that a queued job waits for."""

    #: What it waits for.
    reason: WaitsFor
    #: Until when at least; null if it is not known.
    until: float | None = None
    #: Jobs of its pool that start before it.
    ahead: int | None = None
    #: The job that runs on the table.
    job: int | None = None
    #: What is paused: `job`, `table` or `service`.
    paused: str | None = None
    #: Who paused it.
    by: str | None = None
    #: Why it was paused; which budget is used up.
    details: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is known of the wait."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        known = {name: value for name, value in values.items() if value is not None}
        if self.until is not None:
            known["until"] = None if self.until >= FOREVER else format_time(self.until)
        return known


@dataclass(frozen=True, kw_only=True, slots=True)
class _Situation:
    """What claims look at, apart from the job itself."""

    now: float
    #: The pause of the service.
    pause: Wait | None
    #: Pauses of tables, by id.
    paused: Mapping[int, Wait]
    #: Tables of the jobs that are gone.
    gone: frozenset[int]
    #: The job that runs, by table and lane.
    busy: Mapping[tuple[int, str], int]
    #: Pools without a free slot.
    full: frozenset[str]
    #: Workers that are alive and take jobs: engines, memory, pools.
    workers: Sequence[tuple[frozenset[str], int, frozenset[str]]]
    #: Jobs that may start, by how many of their pool start before them.
    ahead: Mapping[int, int]


def find_waits(
    database: Database, jobs: Sequence[Job], *, silent_seconds: float
) -> dict[int, tuple[Wait, ...]]:
    """Return all that the queued ones among some jobs wait for, by their ids.

    The first is what people are told first. A worker that was silent for this many seconds does not
    count.
    """
    queued = [job for job in jobs if job.state == "queued"]
    if not queued:
        return {}
    with database.reading() as connection:
        now = float(connection.execute(select(database.now())).scalar_one())
        situation = _look(connection, database, queued, now, silent_seconds)
    return {job.id: tuple(_waits_of(job, situation)) for job in queued}


def _waits_of(job: Job, situation: _Situation) -> Iterator[Wait]:
    found = [
        *_pauses(job, situation),
        *_later(job, situation.now),
        *_obstacles(job, situation),
    ]
    if found:
        yield from found
        return
    ahead = situation.ahead.get(job.id, 0)
    yield Wait(reason="pool_full" if job.pool in situation.full else "turn", ahead=ahead)


def _pauses(job: Job, situation: _Situation) -> Iterator[Wait]:
    if job.paused_by is not None:
        yield Wait(reason="paused", paused="job", by=job.paused_by)
    if job.table_id in situation.gone:
        yield Wait(reason="table_gone")
    if job.table_id in situation.paused:
        yield situation.paused[job.table_id]
    if situation.pause is not None:
        yield situation.pause


def _later(job: Job, now: float) -> Iterator[Wait]:
    """Return why a job does not start before a time, and whether its window has closed."""
    if job.not_before > now:
        yield _stored_wait(job)
    elif job.runs_until is not None and job.runs_until <= now:
        yield Wait(reason="window")


def _stored_wait(job: Job) -> Wait:
    details = None if job.wait_details is None else job.wait_details.get("details")
    for reason in _STORED:
        if job.waits_for == reason:
            return Wait(reason=reason, until=job.not_before, details=details)
    is_too_new = job.trigger == "quiet_period" and job.waits_for is None
    return Wait(reason="quiet_period" if is_too_new else "window", until=job.not_before)


def _obstacles(job: Job, situation: _Situation) -> Iterator[Wait]:
    if not any(
        job.engine in engines and job.memory_bytes <= memory and (not pools or job.pool in pools)
        for engines, memory, pools in situation.workers
    ):
        yield Wait(reason="no_worker", details=job.engine)
    other = situation.busy.get((job.table_id, job.lane))
    if other is not None:
        yield Wait(reason="table_busy", job=other)


def _look(
    connection: Connection,
    database: Database,
    queued: Sequence[Job],
    now: float,
    silent_seconds: float,
) -> _Situation:
    statements = _statements(database.now())
    running = connection.execute(statements.running).all()
    pools = connection.execute(statements.pools).all()
    taken = [row.pool for row in running]
    alive = connection.execute(statements.alive, {"since": now - silent_seconds})
    tables = [job.table_id for job in queued]
    paused = connection.execute(statements.paused_tables, {"now": now})
    service = connection.execute(statements.paused_service, {"now": now}).first()
    places = connection.execute(statements.places, {"wanted": [job.id for job in queued]})
    return _Situation(
        now=now,
        pause=None if service is None else _pause(service, "service"),
        paused={row.id: _pause(row, "table") for row in paused},
        gone=frozenset(connection.execute(statements.gone, {"tables": tables}).scalars()),
        busy={(row.table_id, row.lane): row.id for row in running},
        full=frozenset(pool.name for pool in pools if taken.count(pool.name) >= pool.max_running),
        workers=[(frozenset(row.engines), row.memory_bytes, frozenset(row.pools)) for row in alive],
        ahead={row.id: row.place - 1 for row in places},
    )


def _pause(row: Any, what: str) -> Wait:
    return Wait(
        reason="paused",
        paused=what,
        by=row.paused_by,
        until=row.paused_until,
        details=row.paused_why,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Statements:
    """What is asked of the store. Making a statement takes longer than running it."""

    #: Jobs that run.
    running: Any
    pools: Any
    #: Workers that take jobs and have been heard of `since` then.
    alive: Any
    #: Which of `tables` are gone.
    gone: Any
    #: Pauses that hold at `now`.
    paused_tables: Any
    paused_service: Any
    #: Places of the `wanted` jobs in the queues of their pools, if they may start.
    places: Any


@functools.lru_cache(maxsize=64)
def _statements(now: Any) -> _Statements:
    place = func.row_number().over(partition_by=JOBS.c.pool, order_by=(JOBS.c.rank_at, JOBS.c.id))
    places = select(JOBS.c.id, place.label("place")).where(*startable(now)).subquery()
    running = select(JOBS.c.id, JOBS.c.table_id, JOBS.c.lane, JOBS.c.pool)
    alive = select(WORKERS.c.engines, WORKERS.c.memory_bytes, WORKERS.c.pools)
    return _Statements(
        running=running.where(JOBS.c.state == "running"),
        pools=select(POOLS.c.name, POOLS.c.max_running),
        alive=alive.where(
            WORKERS.c.stopped_at.is_(None),
            WORKERS.c.wish.is_(None),
            WORKERS.c.beat_at > bindparam("since"),
        ),
        gone=select(TABLES.c.id).where(
            TABLES.c.gone_at.is_not(None), TABLES.c.id.in_(bindparam("tables", expanding=True))
        ),
        paused_tables=_paused(TABLES),
        paused_service=_paused(SERVICE),
        places=select(places).where(places.c.id.in_(bindparam("wanted", expanding=True))),
    )


def _paused(table: Table) -> Select[Any]:
    columns = (table.c.id, table.c.paused_by, table.c.paused_until, table.c.paused_why)
    return select(*columns).where(table.c.paused_until > bindparam("now"))
