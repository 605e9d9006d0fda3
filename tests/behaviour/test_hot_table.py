"""Hot tables: changes are seen at once, kept over a restart, and each row is there once."""

from __future__ import annotations

import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    BackpressureError,
    HotLogError,
    HotLogLockedError,
    HotTierError,
    NotATableError,
    RefusedError,
    SchemaMismatchError,
    TableError,
    UnknownColumnError,
    ValidationError,
    WriterCollisionError,
)
from lakehand.hot import HotTable, HotTier
from support.hot_tables import SCHEMA, cold_pairs, hot_table, pairs, rows, segments, wait_until


def test_rows_are_seen_before_they_are_flushed(tmp_path):
    with hot_table(tmp_path) as hot:
        assert hot.append(rows([1, 2])) == 1
        assert hot.append(rows([3], "b")) == 2

        assert pairs(hot.read()) == [(1, "a"), (2, "a"), (3, "b")]
        assert cold_pairs(tmp_path) == []


def test_hot_and_cold_rows_are_read_together(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1, 2]))
        report = hot.flush()
        hot.append(rows([3]))

        assert (report.outcome, report.rows_written, report.version) == ("committed", 2, 1)
        assert pairs(hot.read()) == [(1, "a"), (2, "a"), (3, "a")]
        assert pairs(hot.read(where="id >= 2")) == [(2, "a"), (3, "a")]
        assert hot.read(columns=["value", "id"]).schema.names == ["value", "id"]
        assert hot.read().schema == lakehand.open_table(tmp_path / "table").schema()
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a"), (3, "a")]


def test_a_flush_without_changes_commits_nothing(tmp_path):
    with hot_table(tmp_path) as hot:
        assert hot.append(rows([])) == 0
        assert hot.flush().outcome == "nothing_to_do"
        assert hot.flush().version == 0


def test_changes_are_taken_up_after_a_restart(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        hot.flush()
        hot.append(rows([2, 3]))
        hot.close(flush=False)

    with hot_table(tmp_path) as hot:
        assert pairs(hot.read()) == [(1, "a"), (2, "a"), (3, "a")]
        assert hot.append(rows([4])) == 3
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a"), (3, "a"), (4, "a")]


def test_the_log_holds_only_what_is_not_in_the_cold_table(tmp_path):
    with hot_table(tmp_path, hot_segment_bytes=4096) as hot:
        for number in range(40):
            hot.append(rows([number]))
        assert len(segments(tmp_path)) > 3
        hot.flush()

        assert len(segments(tmp_path)) == 1
        assert hot.storage_stats().log_bytes < 100


def test_snapshot_isolation(tmp_path):
    """REQUIREMENTS 1.C: what a reader has seen stays, whatever is written and flushed."""
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.append(rows([1, 2]))
        before = hot.snapshot()
        hot.upsert(rows([2, 3], "b"))
        between = hot.snapshot()
        hot.delete([1])
        hot.merge_changes()

        assert pairs(before.read()) == [(1, "a"), (2, "a")]
        assert pairs(between.read()) == [(1, "a"), (2, "b"), (3, "b")]
        assert pairs(hot.read()) == [(2, "b"), (3, "b")]
        assert (before.sequence, between.sequence) == (1, 2)
        hot.close(flush=False)


def test_old_names_of_merged_changes_work_and_warn(tmp_path):
    with HotTier(tmp_path / "logs") as tier:
        hot = tier.open("one", tmp_path / "table", schema=SCHEMA, key=["id"])
        hot.append(rows([1]))
        hot.append(rows([1], "b"))

        with pytest.warns(DeprecationWarning, match="unmerged_changes"):
            assert hot.delta_count == 2
        with pytest.warns(DeprecationWarning, match="HotTable.merge_changes"):
            assert hot.flush_delta() == 2
        with pytest.warns(DeprecationWarning, match="HotTier.merge_changes"):
            assert tier.flush_delta("one") == 0


def test_snapshots_stay_over_a_flush(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        hot.flush()
        hot.append(rows([2]))
        before = hot.snapshot()
        hot.append(rows([3]))
        hot.flush()

        assert pairs(before.read()) == [(1, "a"), (2, "a")]
        assert pairs(hot.read()) == [(1, "a"), (2, "a"), (3, "a")]


def test_visibility(tmp_path):
    """REQUIREMENTS 1.C: a reader sees what was acknowledged before it began, and in order."""
    seen: list[int] = []
    with hot_table(tmp_path, hot_refresh_interval="1h") as hot:
        done = threading.Event()

        def look():
            while not done.is_set():
                seen.append(hot.read().num_rows)

        reader = threading.Thread(target=look)
        reader.start()
        for number in range(40):
            hot.append(rows([number]))
            assert hot.snapshot().sequence == number + 1
        done.set()
        reader.join()
        assert hot.read().num_rows == 40
    assert seen == sorted(seen)


@pytest.mark.parametrize("batches", [0, 1, 7])
def test_merge_batches(tmp_path, batches):
    """REQUIREMENTS 1.C (merge_batches, empty, single): put together, nothing is lost or doubled."""
    with hot_table(tmp_path) as hot:
        for number in range(batches):
            hot.append(rows([number, number]))
        expected = pairs(hot.read())

        assert hot.merge_changes() == batches
        assert hot.storage_stats().delta_entries == 0
        assert pairs(hot.read()) == expected
        assert len(expected) == 2 * batches
    assert cold_pairs(tmp_path) == expected


def test_the_newest_row_of_a_key_wins(tmp_path):
    lakehand.create_table(tmp_path / "table", SCHEMA).append(
        pa.Table.from_batches([rows(range(10), "cold")])
    )
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.upsert(rows([3, 4, 20], "new"))
        hot.upsert(rows([4], "newer"))
        hot.delete([5, 20, 99])
        hot.upsert(rows([5], "again"))

        expected = dict.fromkeys(range(10), "cold") | {3: "new", 4: "newer", 5: "again"}
        assert pairs(hot.read()) == sorted(expected.items())
        assert pairs(hot.read(key=4)) == [(4, "newer")]
        assert pairs(hot.read(key=9)) == [(9, "cold")]
        assert pairs(hot.read(key={"id": 20})) == []
        assert pairs(hot.read(where="value = 'cold' AND id > 2 AND id < 7")) == [(6, "cold")]
        assert hot.read(columns=["value"], where="id < 5").num_rows == 5
        hot.close(flush=False)

    with hot_table(tmp_path, key=["id"]) as hot:
        assert pairs(hot.read()) == sorted(expected.items())
        hot.close(flush=False)


def test_of_equal_keys_in_one_change_the_last_one_counts(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.append(pa.table({"id": [1, 2, 1], "value": ["a", "b", "c"]}))
        assert pairs(hot.read()) == [(1, "c"), (2, "b")]
        hot.close(flush=False)


def test_keys_are_compared_as_deduplication_does(tmp_path):
    """Nulls equal each other, NaN equals NaN, and both zeros are one."""
    schema = pa.schema(
        [("x", pa.float64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.int32())]
    )
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    nan = float("nan")
    folder = HotTable(tmp_path / "t", log=tmp_path / "l", schema=schema, key=["x", "at"])
    with folder as hot:
        hot.append(
            pa.table({"x": [0.0, nan, None], "at": [moment] * 3, "v": [1, 2, 3]}, schema=schema)
        )
        hot.append(
            pa.table({"x": [-0.0, nan, None], "at": [moment] * 3, "v": [4, 5, 6]}, schema=schema)
        )
        assert sorted(hot.read()["v"].to_pylist()) == [4, 5, 6]
        assert hot.read(key={"x": None, "at": moment})["v"].to_pylist() == [6]
        hot.delete(
            pa.table({"x": [None, 0.0], "at": [moment, moment]}, schema=pa.schema(list(schema)[:2]))
        )
        assert hot.read()["v"].to_pylist() == [5]
        hot.close(flush=False)


def test_rows_that_do_not_fit_are_refused_before_they_are_logged(tmp_path):
    with hot_table(tmp_path) as hot:
        with pytest.raises(SchemaMismatchError):
            hot.append(pa.table({"id": ["x"]}))
        assert (hot.storage_stats().sequence, hot.read().num_rows) == (0, 0)


def test_rows_that_replace_others_are_whole(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        with pytest.raises(SchemaMismatchError, match="'value' is missing"):
            hot.upsert(pa.table({"id": [1]}))
        hot.delete(pa.table({"id": [1], "value": ["is of no interest"]}))
        with pytest.raises(UnknownColumnError):
            hot.delete(pa.table({"value": ["a"]}))


def test_tables_that_may_lose_no_rows_get_no_key(tmp_path):
    lakehand.create_table(tmp_path / "table", SCHEMA, properties={"delta.appendOnly": "true"})
    with pytest.raises(RefusedError):
        hot_table(tmp_path, key=["id"]).open()
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
    assert cold_pairs(tmp_path) == [(1, "a")]


def test_what_others_write_is_seen(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        lakehand.open_table(tmp_path / "table").append(pa.Table.from_batches([rows([2], "other")]))

        assert pairs(hot.read()) == [(1, "a"), (2, "other")]
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "other")]


def test_cold_files_without_a_match_are_not_read(tmp_path):
    table = lakehand.create_table(tmp_path / "table", SCHEMA)
    table.append(pa.Table.from_batches([rows([1])]))
    table.append(pa.Table.from_batches([rows([100])]))
    first = table.snapshot(statistics=["id"])
    low = [f for f in first.files.to_pylist() if f["bounds"]["id"]["max"] == 1]
    (tmp_path / "table" / low[0]["path"]).write_bytes(b"no Parquet")

    with hot_table(tmp_path) as hot:
        hot.append(rows([101]))
        assert pairs(hot.read(where="id >= 100")) == [(100, "a"), (101, "a")]


def test_flush_threshold(tmp_path):
    """REQUIREMENTS 1.C: so many rows flush themselves."""
    with hot_table(tmp_path, hot_flush_rows=10) as hot:
        for number in range(25):
            hot.append(rows([number]))
        wait_until(lambda: hot.storage_stats().hot_rows < 10)
        assert len(pairs(hot.read())) == 25
        assert len(cold_pairs(tmp_path)) > 15


@pytest.mark.parametrize("setting", [{"hot_flush_bytes": 300}, {"hot_flush_age": "50ms"}])
def test_bytes_and_age_flush_too(tmp_path, setting):
    with hot_table(tmp_path, **setting) as hot:
        hot.append(rows([1]))
        wait_until(lambda: hot.storage_stats().hot_rows == 0)

        assert cold_pairs(tmp_path) == pairs(hot.read()) == [(1, "a")]


def test_many_small_changes_are_put_together(tmp_path):
    with hot_table(tmp_path, hot_delta_entries=10, key=["id"]) as hot:
        for number in range(25):
            hot.append(rows([number % 3], str(number)))
        wait_until(lambda: hot.storage_stats().delta_entries < 10)
        assert pairs(hot.read()) == [(0, "24"), (1, "22"), (2, "23")]
        hot.close(flush=False)


def test_tables_of_a_tier_share_thresholds_and_flush_the_largest(tmp_path):
    with HotTier(tmp_path / "logs", hot_flush_rows=100, hot_refresh_interval="0s") as tier:
        small = tier.open("small", tmp_path / "small", schema=SCHEMA)
        large = tier.open("large", tmp_path / "large", schema=SCHEMA)
        small.append(rows(range(20)))
        large.append(rows(range(90)))
        wait_until(lambda: tier.storage_stats("large").hot_rows == 0)

        assert tier.storage_stats("small").hot_rows == 20
        assert tier.bypass_flush("small").rows_written == 20
        assert tier.merge_changes("small") == 0
        assert lakehand.open_table(tmp_path / "small").to_arrow().num_rows == 20
        with pytest.raises(HotTierError, match="open already"):
            tier.open("small", tmp_path / "small")
        with pytest.raises(ValidationError, match="no hot table"):
            tier.bypass_flush("other")
        with pytest.raises(ValidationError, match="name"):
            tier.open("../x", tmp_path / "x")


def test_a_writer_waits_until_a_flush_has_made_room(tmp_path):
    with hot_table(tmp_path, hot_memory_bytes=1000) as hot:
        for number in range(10):
            hot.append(rows([number]))

        stats = hot.storage_stats()
        assert hot.read().num_rows == 10
        assert stats.shared_peak_bytes <= 1000
        assert stats.waits > 1


def test_a_writer_is_refused_when_no_flush_makes_room(tmp_path, monkeypatch):
    with hot_table(tmp_path, hot_memory_bytes=1000, hot_append_timeout="50ms") as hot:
        monkeypatch.setattr(hot, "flush", lambda: None)
        hot.append(rows([1]))
        hot.append(rows([2]))
        with pytest.raises(BackpressureError, match="no room"):
            hot.append(rows([3]))

        assert pairs(hot.read()) == [(1, "a"), (2, "a")]
        monkeypatch.undo()
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a")]


def test_a_change_larger_than_memory_is_taken_alone(tmp_path):
    with hot_table(tmp_path, hot_memory_bytes=1000) as hot:
        hot.append(rows(range(1000)))
        hot.append(rows(range(1000, 2000)))
        assert hot.read().num_rows == 2000


def test_all_tables_are_flushed_for_who_needs_their_memory(tmp_path):
    with HotTier(tmp_path / "logs", hot_memory_bytes=5000, hot_flush_bytes="1GiB") as tier:
        tables = [tier.open(name, tmp_path / name, schema=SCHEMA) for name in ("a", "b")]
        for table in tables:
            table.append(rows([1]))
        tables[0].append(rows(range(1000)))  # is larger than all memory: it must be alone

        assert tier.storage_stats("a").hot_rows == 1000
        assert lakehand.open_table(tmp_path / "b").to_arrow().num_rows == 1


def test_compaction_below_a_hot_table(tmp_path):
    with hot_table(tmp_path) as hot:
        for number in range(5):
            hot.append(rows([number]))
            hot.flush()
        hot.append(rows([99]))
        before = hot.snapshot()
        report = hot.compact(min_files=2)

        assert (report.outcome, hot.storage_stats().cold_files) == ("committed", 1)
        assert pairs(hot.read()) == pairs(before.read()) == [(n, "a") for n in (0, 1, 2, 3, 4, 99)]


def test_a_table_that_was_created_anew_is_another_one(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        hot.close(flush=False)
    shutil.rmtree(tmp_path / "table")
    lakehand.create_table(tmp_path / "table", SCHEMA)

    with pytest.raises(HotLogError, match="was at"):
        hot_table(tmp_path).open()


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
def test_no_other_table_gets_rows_however_often_it_is_tried(tmp_path, key):
    hot = hot_table(tmp_path, key=key).open()
    hot.append(rows([1]))
    hot.flush()
    hot.append(rows([2]))
    shutil.rmtree(tmp_path / "table")
    lakehand.create_table(tmp_path / "table", SCHEMA).append(pa.Table.from_batches([rows([9])]))

    for _ in range(3):
        with pytest.raises(TableError, match="another table"):
            hot.flush()
    hot.close(flush=False)
    assert cold_pairs(tmp_path) == [(9, "a")]


@pytest.mark.parametrize("ended", [False, True], ids=["going on", "ended"])
def test_two_hot_tables_with_one_name_lose_no_rows(tmp_path, ended):
    """The second one's epoch is in the table, but not with its rows."""
    options = {"schema": SCHEMA, "writer_id": "orders", "hot_durability": "none"}
    first, second = (HotTable(tmp_path / "table", **options).open() for _ in range(2))
    first.append(rows([1]))
    second.append(rows([2]))
    if ended:
        second._parts.freeze()
    first.flush()
    for _ in range(2):
        with pytest.raises(WriterCollisionError, match="'orders'"):
            second.flush()
    assert second.storage_stats().hot_rows == 1
    assert second._parts.layers.memtables[0].entries[0].rows["id"].to_pylist() == [2]
    second.close(flush=False)
    first.close()
    assert cold_pairs(tmp_path) == [(1, "a")]


def test_rows_of_an_epoch_that_another_has_committed_can_be_read(tmp_path):
    options = {"schema": SCHEMA, "writer_id": "orders", "hot_durability": "none"}
    hot = HotTable(tmp_path / "table", hot_refresh_interval="0s", **options).open()
    hot.append(rows([2]))
    with HotTable(tmp_path / "table", **options) as other:
        other.append(rows([1]))

    assert pairs(hot.read()) == [(1, "a"), (2, "a")]
    hot.close(flush=False)


def test_a_name_is_that_of_one_log(tmp_path):
    """Opened again, a log would drop what another one has committed under its name."""
    options = {"schema": SCHEMA, "writer_id": "orders"}
    with HotTable(tmp_path / "table", log=tmp_path / "log", **options) as hot:
        hot.append(rows([1]))
    for other in ({"log": tmp_path / "log2"}, {"hot_durability": "none"}):
        with pytest.raises(WriterCollisionError, match="another hot table's log"):
            HotTable(tmp_path / "table", **other, **options).open()
    with HotTable(tmp_path / "table", log=tmp_path / "log", **options) as hot:
        hot.append(rows([2]))
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a")]


def test_a_log_that_has_lost_its_name_is_refused(tmp_path):
    """Under another name all that it holds would be committed once more."""
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        hot.close(flush=False)
    (tmp_path / "log" / "hot.json").unlink()

    with pytest.raises(HotLogError, match="does not say which table"):
        hot_table(tmp_path).open()


def test_a_log_has_one_owner(tmp_path):
    with hot_table(tmp_path) as hot:
        hot.append(rows([1]))
        with pytest.raises(HotLogLockedError):
            hot_table(tmp_path).open()
    with hot_table(tmp_path) as hot:
        assert hot.read().num_rows == 1


def test_without_a_log_rows_live_as_long_as_the_process(tmp_path):
    with HotTable(tmp_path / "table", schema=SCHEMA, hot_durability="none") as hot:
        hot.append(rows([1]))
        assert hot.storage_stats().log_bytes == 0
    assert cold_pairs(tmp_path) == [(1, "a")]


def test_a_lazy_log_is_there_after_the_process(tmp_path):
    with hot_table(tmp_path, hot_durability="lazy", hot_sync_interval="10ms") as hot:
        hot.append(rows([1]))
        time.sleep(0.05)
        hot.append(rows([2]))
        hot.close(flush=False)
    with hot_table(tmp_path) as hot:
        assert pairs(hot.read()) == [(1, "a"), (2, "a")]


def test_what_cannot_be(tmp_path):
    with pytest.raises(ValidationError, match="log"):
        HotTable(tmp_path / "table")
    with pytest.raises(NotATableError):
        HotTable(tmp_path / "table", log=tmp_path / "log").open()
    with pytest.raises(UnknownColumnError):
        hot_table(tmp_path, key=["nothing"]).open()
    with hot_table(tmp_path) as hot:
        with pytest.raises(ValidationError, match="needs a key"):
            hot.delete([1])
        with pytest.raises(ValidationError, match="no key"):
            hot.read(key=1)
        with pytest.raises(UnknownColumnError):
            hot.read(columns=["nothing"])
    with pytest.raises(HotTierError, match="not open"):
        hot.append(rows([1]))
    with pytest.raises(ValidationError, match="was begun with the key"):
        hot_table(tmp_path, key=["id"]).open()


@pytest.mark.parametrize(
    "url", ["s3://lake/log", Path("s3://lake/log"), "dbfs:/log", "file://host/x"]
)
def test_a_log_is_on_a_local_disk(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match="is not a local path"):
        HotTable(tmp_path / "table", log=url, schema=SCHEMA)
    with pytest.raises(ValidationError, match="is not a local path"):
        HotTier(url)
    with pytest.raises(ValidationError, match="scratch_directory"):
        lakehand.open_table(tmp_path, scratch_directory=url)
    assert list(tmp_path.iterdir()) == []


def test_a_log_may_be_named_by_a_file_url(tmp_path):
    with HotTable(tmp_path / "table", log=f"file://{tmp_path}/a%20log", schema=SCHEMA) as hot:
        hot.append(rows([1]))
        assert list((tmp_path / "a log").glob("*.wal"))


def append_well_and_badly(hot):
    hot.append(rows([1]))
    hot.append(pa.table({"id": ["x"]}))


def test_an_error_in_the_block_is_not_hidden_and_nothing_is_lost(tmp_path):
    with pytest.raises(SchemaMismatchError), hot_table(tmp_path) as hot:
        append_well_and_badly(hot)
    assert cold_pairs(tmp_path) == []
    with hot_table(tmp_path):
        pass
    assert cold_pairs(tmp_path) == [(1, "a")]


@pytest.mark.parametrize("key", [(), ("id",)])
def test_rows_of_a_lance_table_are_hot_too(tmp_path, key):
    pytest.importorskip("lance")
    lakehand.create_table(tmp_path / "table", SCHEMA, format="lance")
    with hot_table(tmp_path, key=key) as hot:
        hot.append(rows([1]))
        hot.flush()
        hot.append(rows([2]))
        assert pairs(hot.read()) == [(1, "a"), (2, "a")]
        hot.close(flush=False)
    with hot_table(tmp_path, key=key) as hot:
        assert pairs(hot.read(where="id > 1")) == [(2, "a")]
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a")]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_round_trip_per_codec(tmp_path, codec):
    """REQUIREMENTS 1.C: what was taken is what the cold table gives back, bit for bit."""
    data = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "tags": pa.array([["a", None], []], pa.list_(pa.string())),
            "x": pa.array([-0.0, float("inf")], pa.float64()),
            "raw": pa.array([b"\x00", None], pa.binary()),
        }
    )
    hot = HotTable(tmp_path / "t", log=tmp_path / "log", schema=data.schema, codec=codec)
    with hot:
        hot.append(data)
        assert hot.read().equals(data)
    assert lakehand.open_table(tmp_path / "t").to_arrow().equals(data)


def test_rows_that_grow_when_they_are_fitted_wait_for_memory(tmp_path):
    """A few columns may become many: the limit is about what is kept."""
    schema = pa.schema([("id", pa.int64()), *((f"c{n}", pa.int64()) for n in range(60))])
    options = {"schema": schema, "hot_memory_bytes": 1_000_000, "hot_append_timeout": "0s"}
    with hot_table(tmp_path, **options) as hot:
        narrow = pa.table({"id": pa.array(range(1_900), pa.int64())})
        hot.append(narrow)
        used = hot.storage_stats().shared_bytes
        assert used > 500_000
        with pytest.raises(BackpressureError):
            hot.append(narrow)
        assert hot.storage_stats().shared_bytes <= used


def test_a_change_that_waits_for_memory_while_its_table_is_closed_keeps_none(tmp_path):
    with HotTier(hot_memory_bytes=4096, hot_append_timeout="60s", hot_flush_age="1h") as tier:
        second = tier.open("b", tmp_path / "b", log=tmp_path / "log", schema=SCHEMA)
        budget = second._flusher.budget
        budget.force(4096)
        told = []

        def append():
            try:
                second.append(rows([1]))
            except HotTierError as error:
                told.append(error)

        waiting = threading.Thread(target=append)
        waiting.start()
        wait_until(lambda: budget.waiting)
        second.close(flush=False)
        budget.release(4096)
        waiting.join()

        assert told
        assert budget.used_bytes == 0
