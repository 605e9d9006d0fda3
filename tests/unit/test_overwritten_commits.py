"""A commit that another writer overwrites after it was confirmed is noticed and logged."""

from __future__ import annotations

import logging
import uuid

import pyarrow as pa
import pytest

import lakehand
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.storage import open_store

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def table():
    made = lakehand.create_table(f"memory://{uuid.uuid4().hex}/t", ROWS.schema)
    made.append(ROWS)
    return made


def errors_in(caplog) -> list[tuple[str, int]]:
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    return [(record.event, record.fields["version"]) for record in errors]


def overwrite(table, version: int) -> None:
    """Do what a writer does that looks whether the name is free, and then puts."""
    open_store(table.url).put(commit_key(version), b'{"commitInfo":{"operation":"WRITE"}}\n')


def test_an_overwritten_commit_is_logged_once_and_loudly(table, caplog):
    table.append(ROWS)
    overwrite(table, 1)

    with caplog.at_level(logging.ERROR, "lakehand"):
        table.snapshot()
        table.snapshot()

    assert errors_in(caplog) == [("commit_overwritten", 1)]
    assert "its changes are lost" in caplog.text


def test_commits_of_others_and_untouched_ones_are_not_logged(table, caplog):
    overwrite(table, 2)
    with caplog.at_level(logging.ERROR, "lakehand"):
        table.append(ROWS)
        table.snapshot()
    assert errors_in(caplog) == []


def test_a_table_at_the_place_of_another_one_is_not_taken_for_it(table, caplog):
    store = open_store(table.url)
    store.delete([info.key for info in store.list()])
    with caplog.at_level(logging.ERROR, "lakehand"):
        again = lakehand.create_table(store, pa.schema([("another", pa.string())]))
        again.append(pa.table({"another": ["x"]}))
        again.snapshot()
    assert errors_in(caplog) == []
