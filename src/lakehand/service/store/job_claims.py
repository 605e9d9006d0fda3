"""Which job a worker gets: the first of a pool with a free slot, on a table without another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, func, insert, or_, select, update

from lakehand.service.store.database_schema import JOBS, POOLS, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Claim


def set_pools(database: Database, pools: Mapping[str, int]) -> None:
    """Let each pool run so many jobs at once; a store that was lost has its pools again."""
    with database.transaction() as connection:
        known = {row.name: row.max_running for row in connection.execute(select(POOLS))}
        for name, max_running in pools.items():
            if name not in known:
                connection.execute(insert(POOLS).values(name=name, max_running=max_running))
            elif known[name] != max_running:
                changed = update(POOLS).where(POOLS.c.name == name)
                connection.execute(changed.values(max_running=max_running))


def find_claimable(connection: Connection, claim: Claim, now: Any) -> tuple[int, int] | None:
    """Return the job whose turn it is, and a free slot of its pool; None if there is none."""
    candidates = [
        (candidate.rank_at, candidate.id, slot)
        for pool, slot in _free_slots(connection, claim).items()
        if (candidate := connection.execute(_next_in(pool, claim, now)).one_or_none())
    ]
    if not candidates:
        return None
    _, job_id, slot = min(candidates)
    return job_id, slot


def claiming(job_id: int, slot: int, claim: Claim, now: Any) -> Any:
    """Return the statement that gives a job to a worker, and the job back."""
    return (
        update(JOBS)
        .where(JOBS.c.id == job_id, JOBS.c.state == "queued")
        .values(
            state="running",
            slot=slot,
            fence=JOBS.c.fence + 1,
            attempt=JOBS.c.attempt + 1,
            worker_id=claim.worker_id,
            leased_until=now + claim.lease_seconds,
            started_at=func.coalesce(JOBS.c.started_at, now),
            waits_for=None,
            wish=None,
            progress=None,
        )
        .returning(JOBS)
    )


def _free_slots(connection: Connection, claim: Claim) -> dict[str, int]:
    """Return a free slot of every pool that has one; workers begin to look at different ones."""
    pools = select(POOLS)
    if claim.pools:
        pools = pools.where(POOLS.c.name.in_(claim.pools))
    taken: dict[str, set[int]] = {}
    running = select(JOBS.c.pool, JOBS.c.slot).where(JOBS.c.state == "running")
    for pool, slot in connection.execute(running):
        taken.setdefault(pool, set()).add(slot)
    free = {}
    for pool in connection.execute(pools):
        used = taken.get(pool.name, set())
        slots = ((claim.offset + number) % pool.max_running for number in range(pool.max_running))
        found = next((slot for slot in slots if slot not in used), None)
        if found is not None:
            free[pool.name] = found
    return free


def _next_in(pool: str, claim: Claim, now: Any) -> Any:
    """Return the query for the first job of a pool that this worker may start."""
    running = JOBS.alias("running")
    is_busy = exists().where(
        running.c.table_id == JOBS.c.table_id,
        running.c.lane == JOBS.c.lane,
        running.c.state == "running",
    )
    is_usable = exists().where(
        TABLES.c.id == JOBS.c.table_id,
        TABLES.c.gone_at.is_(None),
        or_(TABLES.c.paused_until.is_(None), TABLES.c.paused_until <= now),
    )
    return (
        select(JOBS.c.rank_at, JOBS.c.id)
        .where(
            JOBS.c.state == "queued",
            JOBS.c.pool == pool,
            JOBS.c.not_before <= now,
            JOBS.c.paused_by.is_(None),
            or_(JOBS.c.runs_until.is_(None), JOBS.c.runs_until > now),
            JOBS.c.engine.in_(claim.engines),
            JOBS.c.memory_bytes <= claim.memory_bytes,
            and_(is_usable, ~is_busy),
        )
        .order_by(JOBS.c.rank_at, JOBS.c.id)
        .limit(1)
        .with_for_update(of=JOBS, skip_locked=True)
    )
