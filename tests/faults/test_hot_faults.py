"""A store that fails while a hot table is flushed: nothing is lost, nothing is there twice."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import BackpressureError, LakehandError, StoreQuotaError
from lakehand.hot import HotTable
from lakehand.observe.steps import Step, listen
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from lakehand.storage.retry import RetryPolicy
from support.hot_tables import SCHEMA, cold_pairs, hot_table, pairs, rows
from support.small_disk import small_disk

FLUSHED = [(1, "new"), (2, "old"), (4, "new")]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    """Ask for a version that cannot be read once more, at once, and then say that nobody knows."""
    policy = RetryPolicy(max_retries=1, base_delay=timedelta(0))
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", policy)


def filled(folder, *, key):
    """Return the place of a table, and what is to be read there when `change` was flushed."""
    table = lakehand.create_table(folder / "table", SCHEMA)
    table.append(pa.Table.from_batches([rows([2, 3], "old")]))
    if key:
        return FLUSHED
    return [(1, "new"), (2, "old"), (3, "old"), (4, "new")]


def change(hot):
    hot.append(rows([1, 4], "new"))
    if hot.key:
        hot.upsert(rows([5], "never"))
        hot.delete([3, 5])


def open_faulty(folder, fault, key):
    store = FaultStore(open_store(folder / "table"), [fault])
    options = {"hot_refresh_interval": "0s", "hot_flush_age": "1h"}
    return HotTable(store, log=folder / "log", key=key, **options)


@pytest.mark.parametrize(
    ("key", "stride"),
    [
        pytest.param((), 1, id="appended"),
        pytest.param(("id",), 4, id="keyed"),
        pytest.param(("id",), 1, id="keyed, all of them", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("operation", ["put", "put_if_absent", "close_writer"])
def test_drain_table(tmp_path, operation, key, stride):
    """REQUIREMENTS 1.C, where a drained batch was lost: one write of a flush after the other fails.

    By turns the store does nothing, or does what was asked and does not answer.
    """
    for turn in range(1000):
        folder = tmp_path / str(turn)
        expected = filled(folder, key=key)
        kind = (FaultKind.FAIL_BEFORE, FaultKind.LOST_ANSWER)[turn % 2]
        fault = Fault(kind=kind, operation=operation, skip=10**6)
        with open_faulty(folder, fault, key) as hot:
            change(hot)
            fault.skip = fault._seen + turn // 2 * stride
            failed = not flushed(hot)
            assert pairs(hot.read()) == expected
            assert (hot.storage_stats().last_error is not None) == failed
            hot.flush()
            assert pairs(hot.read()) == expected
            assert hot.storage_stats().hot_rows == 0
        assert cold_pairs(folder) == expected
        if not fault.hits:
            return


def flushed(hot) -> bool:
    try:
        hot.flush()
    except LakehandError:
        return False
    return True


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
def test_every_row_is_seen_once_at_every_step_of_a_flush(tmp_path, key):
    expected = filled(tmp_path, key=key)
    seen: dict[Step, list] = {}

    def look(step: Step) -> None:
        listen(None)
        seen[step] = pairs(hot.read())
        listen(look)

    with hot_table(tmp_path, key=key) as hot:
        change(hot)
        listen(look)
        try:
            hot.flush()
        finally:
            listen(None)

    assert {Step.HOT_FROZEN, Step.COMMIT_PUT, Step.SINK_COMMITTED, Step.HOT_FLUSHED} <= seen.keys()
    assert {step: found for step, found in seen.items() if found != expected} == {}
    assert cold_pairs(tmp_path) == expected


def test_tombstones_and_stale_versions_are_not_written_as_rows(tmp_path):
    filled(tmp_path, key=("id",))
    with hot_table(tmp_path, key=["id"]) as hot:
        for number in range(20):
            hot.upsert(rows([1], str(number)))
        change(hot)
        report = hot.flush()

    assert cold_pairs(tmp_path) == FLUSHED
    assert (report.changes, report.rows_written, report.keys_deleted) == (25, 2, 2)
    assert lakehand.open_table(tmp_path / "table").inspect().row_count == 3


def test_a_flush_that_fails_in_the_background_is_told_and_tried_again(tmp_path, caplog):
    filled(tmp_path, key=())
    fault = full_disk()
    store = FaultStore(open_store(tmp_path / "table"), [fault])
    options = {"hot_memory_bytes": 1000, "hot_append_timeout": "3s"}
    with HotTable(store, log=tmp_path / "log", **options) as hot:
        with pytest.raises(BackpressureError) as refused:
            fill(hot)
        taken = hot.storage_stats().hot_rows
        assert isinstance(refused.value.__cause__, LakehandError)
        assert "the disk is full" in hot.storage_stats().last_error
        assert "are flushed later" in caplog.text
        fault.times = 0
        hot.flush()
        assert hot.storage_stats().last_error is None
    assert len(cold_pairs(tmp_path)) == 2 + taken


def full_disk() -> Fault:
    """Let no more rows be written, until `times` is set to 0."""
    error = StoreQuotaError("the disk is full")
    return Fault(kind=FaultKind.FAIL_BEFORE, key="*.parquet", times=None, error=error)


def fill(hot) -> None:
    for number in range(100):
        hot.append(rows([number]))


def test_a_table_whose_flush_fails_at_its_end_keeps_its_changes_in_the_log(tmp_path):
    expected = filled(tmp_path, key=())
    fault = full_disk()
    hot = open_faulty(tmp_path, fault, ()).open()
    change(hot)
    with pytest.raises(LakehandError):
        hot.close()
    assert hot.is_closed

    with hot_table(tmp_path) as hot:
        assert pairs(hot.read()) == expected
    assert cold_pairs(tmp_path) == expected


def fill_disk(hot, start=0):
    """Append until the disk of the log is full, and return what was taken."""
    taken = []
    for number in range(start, start + 10_000):
        try:
            hot.append(rows([number], "x" * 20_000))
        except StoreQuotaError:
            return taken
        taken.append(number)
    raise AssertionError("the disk never was full")


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
@pytest.mark.parametrize("again", [False, True], ids=["open", "opened again"])
def test_a_full_disk_of_the_log_is_freed_by_a_flush(tmp_path, key, again):
    with small_disk(tmp_path / "log", 1024):
        hot = hot_table(tmp_path, key=key).open()
        first = fill_disk(hot)
        (tmp_path / "log" / "filler").write_bytes(bytes(shutil.disk_usage(tmp_path / "log").free))
        if again:
            hot.close(flush=False)
            hot = hot_table(tmp_path, key=key).open()
        assert hot.flush().rows_written == len(first) > 40
        second = fill_disk(hot, 10_000)
        hot.close()
    assert [number for number, _ in cold_pairs(tmp_path)] == [*first, *second]
