"""Streams of changes from one table into another, killed and started again: no row is lost."""

from __future__ import annotations

import random
import signal

import pyarrow as pa
import pytest

import lakehand
from support.killed_streams import run_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


def rows(ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [f"p{i % 3}" for i in ids]})


def new_feed(folder):
    table = lakehand.create_table(folder / "feed", rows([1]).schema, properties=FEED)
    for first in range(0, 60, 20):
        table.append(rows(range(first, first + 20)))
    table.delete(where="id % 7 = 0", engine="local")
    table.upsert(rows([1, 2, 100]), key=["id"], engine="local")
    return table


def in_sink(folder):
    found = lakehand.open_table(folder / "table").to_arrow()
    return sorted((row["version"], row["kind"], row["id"]) for row in found.to_pylist())


def in_feed(table):
    found = table.changes(from_version=0).read_all().to_pylist()
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in found)


def test_a_stream_of_changes_killed_around_its_commits_copies_each_change_once(tmp_path):
    table = new_feed(tmp_path)

    assert run_stream(tmp_path, changes=True, die="before", batch=1) == -signal.SIGKILL
    assert 0 < len(in_sink(tmp_path)) < len(in_feed(table))
    table.compact(engine="local")
    table.append(rows([200]))
    assert run_stream(tmp_path, changes=True) == 0

    assert in_sink(tmp_path) == in_feed(table)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_stream_of_changes_killed_50_times_copies_each_change_once(tmp_path):
    chance = random.Random(7)
    table = new_feed(tmp_path)
    for number in range(50):
        table.append(rows(range(1000 * number, 1000 * number + 3)))
        table.append(rows([1000 * number + 500]))
        table.delete(where=f"id = {1000 * number}", engine="local")
        if number % 10 == 0:
            table.compact(min_files=2, engine="local")
        die = chance.choice(["before", "after"])
        assert run_stream(tmp_path, changes=True, die=die, batch=number) == -signal.SIGKILL
    assert run_stream(tmp_path, changes=True) == 0
    assert in_sink(tmp_path) == in_feed(table)
