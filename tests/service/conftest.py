from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from lakehand.observe.clock import ManualClock
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import METADATA, SCHEMA
from support.postgresql import find_programs, serve_postgresql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.service.store.database import Database
    from support.postgresql import PostgresqlServer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server that all tests of a process share."""
    if find_programs() is None and os.environ.get("LAKEHAND_ALLOW_SKIPS"):
        pytest.skip("PostgreSQL is not installed")
    yield from serve_postgresql()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path) -> str:
    """The URL of an empty job store, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return request.getfixturevalue("emptied_postgresql")


@pytest.fixture
def emptied_postgresql(postgresql) -> str:
    """The URL of a PostgreSQL store without rows. Making its tables takes longer than a test."""
    opened = open_database(postgresql.url())
    names = ", ".join(name for name in METADATA.tables if name != SCHEMA.name)
    with opened.transaction() as connection:
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    opened.close()
    return postgresql.url()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(store_url, clock) -> Iterator[Database]:
    opened = open_database(store_url, clock=clock)
    yield opened
    opened.close()
