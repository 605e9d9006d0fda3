"""What each queued job waits for, in the order in which a claim would find it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from lakehand.service.store.database_schema import JOBS, POOLS, SERVICE, TABLES, WORKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from lakehand.service.job_states import WaitsFor
    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class _Situation:
    """What claims look at, apart from the job itself."""

    now: float
    is_service_paused: bool
    #: Tables that are paused, by id.
    paused: frozenset[int]
    #: Tables and lanes in which a job runs.
    busy: frozenset[tuple[int, str]]
    #: Pools without a free slot.
    full: frozenset[str]
    #: Engines of the workers that are alive.
    engines: frozenset[str]


def find_waits(
    database: Database, jobs: Sequence[Job], *, silent_seconds: float
) -> dict[int, WaitsFor]:
    """Return what the queued ones among some jobs wait for, by their ids.

    A worker that was silent for so many seconds does not count.
    """
    queued = [job for job in jobs if job.state == "queued"]
    if not queued:
        return {}
    with database.transaction() as connection:
        now = float(connection.execute(select(database.now())).scalar_one())
        situation = _look(connection, now, silent_seconds)
    return {job.id: _wait_of(job, situation) for job in queued}


def _wait_of(job: Job, situation: _Situation) -> WaitsFor:
    if job.paused_by is not None or situation.is_service_paused or job.table_id in situation.paused:
        return "paused"
    if job.not_before > situation.now:
        return "retry" if job.waits_for == "retry" else "window"
    if job.runs_until is not None and job.runs_until <= situation.now:
        return "window"
    if job.engine not in situation.engines:
        return "no_worker"
    if (job.table_id, job.lane) in situation.busy:
        return "table_busy"
    return "pool_full" if job.pool in situation.full else "turn"


def _look(connection: Connection, now: float, silent_seconds: float) -> _Situation:
    running = connection.execute(
        select(JOBS.c.table_id, JOBS.c.lane, JOBS.c.pool).where(JOBS.c.state == "running")
    ).all()
    pools = connection.execute(select(POOLS.c.name, POOLS.c.max_running)).all()
    taken = [row.pool for row in running]
    alive = select(WORKERS.c.engines).where(
        WORKERS.c.stopped_at.is_(None), WORKERS.c.beat_at > now - silent_seconds
    )
    is_paused = select(func.count()).select_from(SERVICE).where(SERVICE.c.paused_until > now)
    return _Situation(
        now=now,
        is_service_paused=connection.execute(is_paused).scalar_one() > 0,
        paused=frozenset(
            connection.execute(select(TABLES.c.id).where(TABLES.c.paused_until > now)).scalars()
        ),
        busy=frozenset((row.table_id, row.lane) for row in running),
        full=frozenset(pool.name for pool in pools if taken.count(pool.name) >= pool.max_running),
        engines=frozenset(
            engine for engines in connection.execute(alive).scalars() for engine in engines
        ),
    )
