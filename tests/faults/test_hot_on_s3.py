"""A hot table whose cold table is on a real S3 server."""

from __future__ import annotations

from typing import Any

import pytest

import lakehand
from lakehand.hot import HotTable
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.hot_tables import SCHEMA, pairs, rows


@pytest.fixture
def place(s3_server, tmp_path):
    return s3_server.new_uri(), str(tmp_path / "log"), s3_server.options


def open_hot(uri: str, log: str, options: dict[str, str], **more: Any) -> HotTable:
    return HotTable(uri, log=log, key=["id"], storage_options=options, **more)


def change(uri: str, log: str, options: dict[str, str]) -> None:
    with open_hot(uri, log, options) as hot:
        hot.upsert(rows([1, 2, 3]))
        hot.flush()
        hot.upsert(rows([2], "b"))
        hot.delete([3])
        hot.flush()


@kill_at(Step.COMMIT_PUT)
def test_a_flush_to_s3_that_was_killed_is_made_once(place, step):
    uri, log, options = place
    lakehand.create_table(uri, SCHEMA, storage_options=options)
    run_and_kill(step, change, uri, log, options, occurrence=2)

    with open_hot(uri, log, options) as hot:
        assert pairs(hot.read()) == [(1, "a"), (2, "b")]
        hot.upsert(rows([4]))
        assert pairs(hot.read(where="id > 1")) == [(2, "b"), (4, "a")]
    cold = lakehand.open_table(uri, storage_options=options).to_arrow()
    assert pairs(cold) == [(1, "a"), (2, "b"), (4, "a")]
