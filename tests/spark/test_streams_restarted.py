"""Streams into a table, killed and started again: each micro-batch is there once."""

from __future__ import annotations

import json
import random
import signal

import pytest

import lakehand
from support.killed_streams import run_stream, write_source
from support.killed_writers import compact_now

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def ids_in(place):
    return sorted(lakehand.open_table(place).to_arrow(columns=["id"])["id"].to_pylist())


def unnamed_files(place):
    """Return files that no version names."""
    named = set(lakehand.open_table(place).snapshot().files["path"].to_pylist())
    return [path for path in place.rglob("*.parquet") if str(path.relative_to(place)) not in named]


def test_a_stream_killed_around_its_commits_writes_each_batch_once(tmp_path, oracle):
    table = tmp_path / "table"
    for number in range(4):
        write_source(tmp_path / "source", number, range(100 * number, 100 * number + 40))

    # Files are written, and no version names them.
    assert run_stream(tmp_path, die="before", batch=1) == -signal.SIGKILL
    assert ids_in(table) == list(range(40))
    left = unnamed_files(table)
    assert left

    # The version is there, and Spark does not know.
    assert run_stream(tmp_path, die="after", batch=2) == -signal.SIGKILL
    assert ids_in(table) == [*range(40), *range(100, 140), *range(200, 240)]

    assert run_stream(tmp_path, then_batches=True) == 0
    expected = [100 * number + i for number in range(4) for i in range(40)]
    assert ids_in(table) == expected
    read = [json.loads(row) for row in oracle.rows(table)]
    assert sorted(row["id"] for row in read) == expected
    assert {(row["id"] % 3, row["part"]) for row in read} == {(i, f"p{i}") for i in range(3)}

    # What marks the batches is the id that the checkpoint keeps.
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert lakehand.open_table(table).transactions() == {query: 3}
    # Batch 2 was written twice: its second files are gone, those of the first kill are vacuum's.
    assert sorted(unnamed_files(table)) == sorted(left)

    # The last driver has also written rows of every type, without a stream.
    written = json.loads((tmp_path / "rows.json").read_text())
    assert (len(written), len(set(written))) == (83, 50)
    assert oracle.rows(tmp_path / "batches") == written


@pytest.mark.soak
def test_a_writer_id_is_not_taken_over_by_another_checkpoint(tmp_path):
    """The batches of a new checkpoint begin at 0: they would be taken for those in the table."""
    write_source(tmp_path / "source", 0, range(40))
    assert run_stream(tmp_path, writer_id="orders") == 0
    assert lakehand.open_table(tmp_path / "table").transactions() == {"orders": 0}

    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    write_source(tmp_path / "source", 0, range(500, 540))
    assert run_stream(tmp_path, writer_id="orders") == 1

    log = (tmp_path / "driver.log").read_text()
    assert "WriterCollisionError" in log
    assert "a stream with a new checkpoint is a new writer" in log.replace("\n", " ")
    assert ids_in(tmp_path / "table") == list(range(40))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_streams_killed_at_random_write_each_batch_once(tmp_path, seed):
    chance = random.Random(seed)
    batches = 8
    for number in range(batches):
        write_source(tmp_path / "source", number, range(100 * number, 100 * number + 40))
    for batch in sorted(chance.sample(range(batches), 4)):
        run_stream(tmp_path, die=chance.choice(["before", "after"]), batch=batch)
        compact_now(tmp_path / "table")

    assert run_stream(tmp_path) == 0
    expected = [100 * number + i for number in range(batches) for i in range(40)]
    assert ids_in(tmp_path / "table") == expected
