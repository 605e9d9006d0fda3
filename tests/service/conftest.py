from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakehand.observe.clock import ManualClock
from lakehand.service.store.database import open_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.service.store.database import Database


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path) -> str:
    """The URL of an empty job store, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return request.getfixturevalue("emptied_postgresql")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(store_url, clock) -> Iterator[Database]:
    opened = open_database(store_url, clock=clock)
    yield opened
    opened.close()
