"""Spark's stream of changes, driven as Spark drives it: offsets, limits, restarts."""

from __future__ import annotations

import json
import pickle
import random

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ChangeFeedError, SchemaMismatchError, ValidationError

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 or later")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakehand.spark import LakehandSource

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(["mon"] * len(ids))})


@pytest.fixture
def table(tmp_path):
    return lakehand.create_table(tmp_path / "t", rows(1).schema, properties=FEED)


def start(table, **options):
    """Return a reader as one in a new driver."""
    asked = {"path": table.url, "readChangeFeed": "true", "startingVersion": "0", **options}
    source = LakehandSource(asked)
    return source.streamReader(source.schema())


def read(reader, begin, end):
    """Read a micro-batch as tasks do: the reader and each partition travel pickled."""
    remote = pickle.loads(pickle.dumps(reader))
    found = []
    for piece in reader.partitions(begin, end):
        for batch in remote.read(pickle.loads(pickle.dumps(piece))):
            found += batch.to_pylist()
    return found


def next_batch(reader, begin, limit=None):
    # Offsets pass through the JSON of Spark's checkpoint.
    return json.loads(json.dumps(reader.latestOffset(begin, limit or reader.getDefaultReadLimit())))


def batches(reader):
    """Read until there is nothing new."""
    begin, found = reader.initialOffset(), []
    while (end := next_batch(reader, begin)) != begin:
        found.append(read(reader, begin, end))
        begin = end
    return found


def key(row):
    return row["_commit_version"], row["_change_type"], row["id"]


def expected(table):
    return sorted(map(key, table.changes(from_version=0).read_all().to_pylist()))


def test_a_stream_reads_the_changes_of_new_versions(table):
    table.append(rows(1, 2))
    reader = start(table)
    [first] = batches(reader)
    assert sorted(map(key, first)) == [(1, "insert", 1), (1, "insert", 2)]

    table.delete(where="id = 2", engine="local")
    begin = {"table": table.snapshot().table_id, "version": 2, "index": 0}
    end = next_batch(reader, begin)
    assert [key(row) for row in read(reader, begin, end)] == [(2, "delete", 2)]
    assert next_batch(reader, end) == end
    assert reader.partitions(end, end) == []


def test_files_of_a_batch_are_limited(table):
    for number in range(7):
        table.append(rows(number))

    found = batches(start(table, max_files_per_trigger="3"))

    assert [len(batch) for batch in found] == [3, 3, 1]
    assert sorted(key(row) for batch in found for row in batch) == expected(table)


def test_bytes_of_a_batch_are_limited_and_one_file_is_always_read(table):
    for number in range(4):
        table.append(rows(number))
    size = table.snapshot().files["bytes"][0].as_py()

    assert [len(b) for b in batches(start(table, maxBytesPerTrigger=str(2 * size)))] == [2, 2]
    assert [len(b) for b in batches(start(table, max_bytes_per_trigger="1"))] == [1] * 4


def test_a_version_is_divided_between_batches(tmp_path):
    table = lakehand.create_table(tmp_path, rows(1).schema, properties=FEED, partition_by=["id"])
    table.append(rows(*range(5)))

    found = batches(start(table, maxFilesPerTrigger="2"))

    assert [len(batch) for batch in found] == [2, 2, 1]
    assert sorted(key(row) for batch in found for row in batch) == expected(table)


def test_a_long_backlog_is_looked_at_in_parts(table, monkeypatch):
    for number in range(7):
        table.append(rows(number))
    monkeypatch.setattr("lakehand.spark.change_stream._MAX_VERSIONS", 3)

    found = batches(start(table))

    # Version 0, which created the table, has no rows.
    assert [len(batch) for batch in found] == [2, 3, 2]


def test_all_that_is_available_ignores_the_limits_and_ends_where_it_began(table):
    for number in range(4):
        table.append(rows(number))
    reader = start(table, maxFilesPerTrigger="1")
    reader.prepareForTriggerAvailableNow()
    table.append(rows(9))

    begin = reader.initialOffset()
    end = next_batch(reader, begin, ReadAllAvailable())
    assert sorted(row["id"] for row in read(reader, begin, end)) == [0, 1, 2, 3]
    assert next_batch(reader, end, ReadAllAvailable()) == end


def change(table, chance):
    number = chance.randrange(30)
    match chance.choice(["append", "delete", "upsert", "compact"]):
        case "append":
            table.append(rows(*range(100, 100 + number % 5 + 1)))
        case "delete":
            table.delete(where=f"id % 10 = {number % 10}", engine="local")
        case "upsert":
            table.upsert(rows(number, number + 1), key=["id"], engine="local")
        case "compact":
            table.compact(min_files=2, engine="local")


def check_killed(table, chance, *, kills):
    """Kill a stream again and again: Spark logs the end of a batch, reads it, and logs it done."""
    table.append(rows(*range(20)))
    log, done = [start(table).initialOffset()], []
    while kills or len(done) < len(log) - 1:
        reader = start(table, maxFilesPerTrigger=str(chance.randrange(1, 4)))
        while True:
            if len(done) == len(log) - 1:
                end = next_batch(reader, log[-1])
                if end == log[-1]:
                    break
                log.append(end)
            if kills and chance.random() < 0.5:
                kills -= 1
                break
            done.append(read(reader, *log[-2:]))
        if kills and chance.random() < 0.4:
            change(table, chance)
    assert sorted(key(row) for batch in done for row in batch) == expected(table)


def test_a_stream_that_is_killed_10_times_loses_and_doubles_no_row(table):
    check_killed(table, random.Random(1), kills=10)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_stream_that_is_killed_50_times_loses_and_doubles_no_row(table, seed):
    check_killed(table, random.Random(seed), kills=50)


def test_a_batch_that_is_repeated_reads_the_same_rows_after_later_commits(table):
    table.append(rows(1, 2, 3))
    table.delete(where="id = 1", engine="local")
    reader = start(table, maxFilesPerTrigger="1")
    begin = reader.initialOffset()
    end = next_batch(reader, begin)
    before = read(reader, begin, end)
    table.compact(engine="local")
    table.append(rows(4))

    assert read(start(table), begin, end) == before


def test_new_columns_end_the_stream_until_it_is_started_again(table):
    table.append(rows(1))
    reader = start(table)
    begin = reader.initialOffset()
    more = rows(2).append_column("more", pa.array(["x"]))
    table.append(more, schema_evolution=True)

    with pytest.raises(SchemaMismatchError, match="changed while a stream"):
        next_batch(reader, begin)
    again = start(table)
    found = read(again, begin, next_batch(again, begin))
    assert sorted((row["id"], row["more"]) for row in found) == [(1, None), (2, "x")]


def test_another_table_at_the_same_path_is_an_error(tmp_path, table):
    table.append(rows(1))
    begin = start(table).initialOffset()
    (tmp_path / "t").rename(tmp_path / "old")
    other = lakehand.create_table(tmp_path / "t", rows(1).schema, properties=FEED)

    with pytest.raises(ChangeFeedError, match="replaced"):
        next_batch(start(other), begin)


def test_a_feed_that_is_turned_off_ends_the_stream(table):
    table.append(rows(1))
    begin = start(table).initialOffset()
    table.unset_properties(["delta.enableChangeDataFeed"])
    table.set_properties(FEED)
    reader = start(table)

    with pytest.raises(ChangeFeedError, match="version 2"):
        next_batch(reader, begin)


def test_a_stream_may_begin_with_the_next_commit(table):
    table.append(rows(1))
    reader = start(table, startingVersion="latest")
    begin = reader.initialOffset()
    assert next_batch(reader, begin) == begin
    table.append(rows(2))
    assert [row["id"] for row in read(reader, begin, next_batch(reader, begin))] == [2]


@pytest.mark.parametrize(
    "options",
    [
        {"readChangeFeed": "false"},
        {"readChangeFeed": "perhaps"},
        {"startingVersion": "soon"},
        {"maxFilesPerTrigger": "0"},
        {"maxBytesPerTrigger": "many"},
        {"unknown": "1"},
    ],
)
def test_wrong_options_are_errors(table, options):
    with pytest.raises(ValidationError):
        start(table, **options)


def test_a_batch_of_changes_is_read_as_well(table):
    table.append(rows(1, 2))
    table.delete(where="id = 1", engine="local")
    source = LakehandSource(
        {"path": table.url, "readChangeFeed": "true", "startingVersion": "1", "endingVersion": "1"}
    )
    reader = source.reader(source.schema())
    found = [
        row for piece in reader.partitions() for b in reader.read(piece) for row in b.to_pylist()
    ]
    assert sorted(map(key, found)) == [(1, "insert", 1), (1, "insert", 2)]
