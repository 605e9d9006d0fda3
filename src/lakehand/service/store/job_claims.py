"""Which job a worker gets: the first of a pool with a free slot, on a table without another one.

What each of the others waits for is in `job_waits`, which uses the same conditions.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Double,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.service.store.database_schema import (
    ATTEMPTS,
    JOBS,
    POOLS,
    SERVICE,
    TABLES,
)
from lakehand.service.store.job_statements import QUEUED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from lakehand.service.config import PoolSection
    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Claim


def configure_pools(database: Database, pools: Sequence[PoolSection]) -> None:
    """Set how many jobs each pool runs at once; a store that was lost has its pools again.

    Queued jobs of a pool that is no longer there move to the first one.
    """
    wanted = {pool.name: pool.max_running for pool in pools}
    with database.reading() as connection:
        known = {row.name: row.max_running for row in connection.execute(select(POOLS))}
    if known == wanted:
        return
    dialect = sqlite if database.is_sqlite else postgresql
    is_other = JOBS.c.pool.not_in(wanted)
    with database.transaction() as connection:
        for name, max_running in sorted(wanted.items()):
            new = dialect.insert(POOLS).values(name=name, max_running=max_running)
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[POOLS.c.name], set_={"max_running": max_running}
                )
            )
        moved = update(JOBS).where(QUEUED, is_other)
        connection.execute(moved.values(pool=pools[0].name, engine=pools[0].engine))
        is_used = exists().where(JOBS.c.pool == POOLS.c.name)
        connection.execute(delete(POOLS).where(POOLS.c.name.not_in(wanted), ~is_used))


def find_claimable(connection: Connection, claim: Claim, now: Any) -> tuple[int, int] | None:
    """Return the job whose turn it is, and a free slot of its pool; None if there is none."""
    wanted = {"engines": list(claim.engines), "memory": claim.memory_bytes}
    candidates = [
        (candidate.rank_at, candidate.id, slot)
        for pool, slot in _free_slots(connection, claim).items()
        if (candidate := connection.execute(_next(now), {"pool": pool, **wanted}).one_or_none())
    ]
    if not candidates:
        return None
    _, job_id, slot = min(candidates)
    return job_id, slot


def take(connection: Connection, job_id: int, slot: int, claim: Claim, now: Any) -> Any:
    """Give a job to a worker; return its row, or None if it is no longer queued."""
    values = {
        "job": job_id,
        "in_slot": slot,
        "worker": claim.worker_id,
        "lease": claim.lease_seconds,
    }
    row = connection.execute(_taking(now), values).one_or_none()
    if row is not None:
        attempt = {"job_id": row.id, "fence": row.fence, "table_id": row.table_id}
        connection.execute(_beginning(now), {**attempt, "worker_id": claim.worker_id})
    return row


@functools.lru_cache(maxsize=64)
def _taking(now: Any) -> Any:
    return (
        update(JOBS)
        .where(JOBS.c.id == bindparam("job"), QUEUED)
        .values(
            state="running",
            slot=bindparam("in_slot"),
            fence=JOBS.c.fence + 1,
            attempt=JOBS.c.attempt + 1,
            worker_id=bindparam("worker"),
            leased_until=now + bindparam("lease", type_=Double),
            started_at=func.coalesce(JOBS.c.started_at, now),
            waits_for=None,
            wait_details=None,
            wish=None,
            progress=None,
        )
        .returning(JOBS)
    )


@functools.lru_cache(maxsize=64)
def _beginning(now: Any) -> Any:
    columns = ("job_id", "fence", "table_id", "worker_id")
    return insert(ATTEMPTS).values(started_at=now, **{name: bindparam(name) for name in columns})


#: Every pool, with each slot of it that is taken.
_TAKEN = select(POOLS, JOBS.c.slot).join_from(
    POOLS, JOBS, and_(JOBS.c.pool == POOLS.c.name, RUNNING), isouter=True
)


def _free_slots(connection: Connection, claim: Claim) -> dict[str, int]:
    """Return a free slot of every pool that has one; workers begin to look at different ones."""
    taken: dict[tuple[str, int], set[int | None]] = {}
    for pool, max_running, slot in connection.execute(_TAKEN):
        taken.setdefault((pool, max_running), set()).add(slot)
    free = {}
    for (pool, max_running), used in taken.items():
        if claim.pools and pool not in claim.pools:
            continue
        slots = ((claim.offset + number) % max_running for number in range(max_running))
        found = next((slot for slot in slots if slot not in used), None)
        if found is not None:
            free[pool] = found
    return free


def startable(now: Any) -> tuple[Any, ...]:
    """Return the conditions on a job that may start now, apart from slots and workers."""
    running = JOBS.alias("running")
    is_busy = exists().where(
        running.c.table_id == JOBS.c.table_id,
        running.c.lane == JOBS.c.lane,
        running.c.state == literal_column("'running'"),
    )
    is_usable = exists().where(
        TABLES.c.id == JOBS.c.table_id,
        TABLES.c.gone_at.is_(None),
        or_(TABLES.c.paused_until.is_(None), TABLES.c.paused_until <= now),
    )
    return (
        QUEUED,
        JOBS.c.not_before <= now,
        JOBS.c.paused_by.is_(None),
        or_(JOBS.c.runs_until.is_(None), JOBS.c.runs_until > now),
        and_(is_usable, ~is_busy, ~exists().where(SERVICE.c.paused_until > now)),
    )


@functools.lru_cache(maxsize=64)
def _next(now: Any) -> Any:
    """Return the query for the first job of a pool that a worker may start."""
    return (
        select(JOBS.c.rank_at, JOBS.c.id)
        .where(
            *startable(now),
            JOBS.c.pool == bindparam("pool"),
            JOBS.c.engine.in_(bindparam("engines", expanding=True)),
            JOBS.c.memory_bytes <= bindparam("memory"),
        )
        .order_by(JOBS.c.rank_at, JOBS.c.id)
        .limit(literal_column("1"))
        .with_for_update(of=JOBS, skip_locked=True)
    )
