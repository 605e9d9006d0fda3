"""Job stores with a few tables in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from lakehand.service.store.database_schema import JOBS, POOLS, TABLES
from lakehand.service.store.records import Claim, JobRequest

if TYPE_CHECKING:
    from lakehand.service.store.database import Database


def add_tables(database: Database, count: int) -> list[int]:
    """Register tables by made-up addresses; return their ids."""
    now = database.time()
    with database.transaction() as connection:
        return [
            connection.execute(
                insert(TABLES)
                .values(url=f"file:///t{n}", source="test", found_at=now, seen_at=now, look_at=now)
                .returning(TABLES.c.id)
            ).scalar_one()
            for n in range(count)
        ]


def add_pool(database: Database, name: str = "default", max_running: int = 4) -> None:
    with database.transaction() as connection:
        connection.execute(insert(POOLS).values(name=name, max_running=max_running))


def request(table_id: int, verb: str = "compact", **values: Any) -> JobRequest:
    return JobRequest(table_id=table_id, verb=verb, trigger="test", **values)


def claim_by(worker: str = "w", **values: Any) -> Claim:
    return Claim(worker_id=worker, **values)


def rows_of(database: Database) -> dict[int, Any]:
    with database.transaction() as connection:
        return {row.id: row for row in connection.execute(select(JOBS))}
