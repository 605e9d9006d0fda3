"""Streams of changes from one table into another, killed and started again: no row is lost."""

from __future__ import annotations

import random
import signal
from itertools import islice

import pytest

import lakehand
from support.killed_streams import feed_rows, run_killed_stream, run_stream

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 or later")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


def new_feed(folder, appends=3):
    table = lakehand.create_table(folder / "feed", feed_rows([1]).schema, properties=FEED)
    for first in range(0, 20 * appends, 20):
        table.append(feed_rows(range(first, first + 20)))
    table.delete(where="id % 7 = 0", engine="local")
    table.upsert(feed_rows([1, 2, 100]), key=["id"], engine="local")
    return table


def in_sink(folder):
    found = lakehand.open_table(folder / "table").to_arrow()
    return sorted((row["version"], row["kind"], row["id"]) for row in found.to_pylist())


def in_feed(table):
    found = table.changes(from_version=0).read_all().to_pylist()
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in found)


def test_a_stream_of_changes_killed_around_its_commits_copies_each_change_once(tmp_path):
    """Spark is started once: its Python process is killed, which commits the batches."""
    table = new_feed(tmp_path, appends=1)
    steps = [
        ("before", "table.compact(min_files=2, engine='local')"),
        ("after", "table.append(rows([200]))"),
    ]

    assert run_killed_stream(tmp_path, steps, seconds=840) == 0

    assert in_sink(tmp_path) == in_feed(table)
    assert len(in_feed(table)) > 20


def fifty_steps():
    chance = random.Random(7)
    for number in range(50):
        first = 1000 * number
        change = (
            f"table.append(rows(range({first}, {first} + 3))), table.append(rows([{first} + 500])),"
        )
        change += f" table.delete(where='id = {first}', engine='local'),"
        if number % 10 == 0:
            change += " table.compact(min_files=2, engine='local')"
        yield chance.choice(["before", "after"]), change


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_stream_of_changes_killed_50_times_copies_each_change_once(tmp_path):
    """After ten kills the driver is another one, too."""
    table = new_feed(tmp_path)
    steps = fifty_steps()
    for first in range(0, 50, 10):
        ten = list(islice(steps, 10))
        finishes = first == 40
        assert run_killed_stream(tmp_path, ten, seconds=1400, first=first, finishes=finishes) == 0
    assert in_sink(tmp_path) == in_feed(table)


@pytest.mark.soak
def test_a_stream_of_changes_whose_driver_is_killed_copies_each_change_once(tmp_path):
    table = new_feed(tmp_path)

    assert run_stream(tmp_path, changes=True, die="before", batch=1) == -signal.SIGKILL
    assert 0 < len(in_sink(tmp_path)) < len(in_feed(table))
    table.compact(engine="local")
    table.append(feed_rows([200]))
    assert run_stream(tmp_path, changes=True, die="after", batch=2) == -signal.SIGKILL
    assert run_stream(tmp_path, changes=True) == 0

    assert in_sink(tmp_path) == in_feed(table)
