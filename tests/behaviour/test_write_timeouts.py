"""Writes that take longer than `write_timeout`: they go on, and the next call waits for them."""

from __future__ import annotations

import logging
import threading
import time

import pytest

import lakehand
from lakehand.errors import SinkStateError, WriteTimeoutError
from lakehand.sink import TableSink
from lakehand.sink.staging import FileStaging
from lakehand.sink.upserting import UpsertStaging
from support.hot_tables import cold_pairs, hot_table, pairs, rows
from support.sinks import SCHEMA, batch_of, ids_in

UPSERT = {"write_mode": "upsert", "merge_key": "id"}
MODES = pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])


class SlowWrites:
    """Ends of files that wait until they may go on, and how often one was asked for."""

    def __init__(self, monkeypatch):
        self.may_go_on, self.calls = threading.Event(), 0
        for kind in (FileStaging, UpsertStaging):
            monkeypatch.setattr(kind, "finish", self._slowly(kind.finish))

    def _slowly(self, finish):
        def slowly(staging):
            self.calls += 1
            assert self.may_go_on.wait(100)
            return finish(staging)

        return slowly

    def go_on_soon(self):
        threading.Timer(0.1, self.may_go_on.set).start()


@pytest.fixture
def slow(monkeypatch):
    return SlowWrites(monkeypatch)


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def impatient(sink):
    sink._opened_context.writer_thread._timeout_seconds = 0.01
    return sink


def begun(place, **options):
    sink = TableSink(place, writer_id="w", **options).open()
    sink.begin_epoch(1)
    sink.write(batch_of([1, 2]))
    return impatient(sink)


@MODES
def test_a_commit_that_takes_too_long_says_what_and_which_setting(place, slow, options):
    sink = begun(place, **options)
    with pytest.raises(WriteTimeoutError, match=r"write of epoch 1 is not done after 0.01 s") as at:
        sink.commit_epoch()
    assert (at.value.epoch, at.value.writer_id, at.value.retryable) == (1, "w", True)
    assert "write_timeout" in at.value.hint
    slow.go_on_soon()
    receipt = None
    while receipt is None:
        try:
            receipt = sink.commit_epoch()
        except WriteTimeoutError:
            time.sleep(0.01)
    sink.close()
    assert (receipt.version, slow.calls, ids_in(place)) == (1, 1, [1, 2])


@MODES
def test_a_sink_that_is_closed_waits_for_the_epoch_that_it_gives_up(place, slow, options):
    sink = begun(place, **options)
    with pytest.raises(WriteTimeoutError):
        sink.commit_epoch()
    slow.go_on_soon()
    sink.close()
    assert ids_in(place) == []


def test_an_epoch_whose_rollback_takes_too_long_is_not_committed_without_its_files(place, slow):
    sink = begun(place)
    with pytest.raises(WriteTimeoutError, match="write of epoch 1"):
        sink.commit_epoch()
    with pytest.raises(WriteTimeoutError, match="rollback of epoch 1"):
        sink.rollback_epoch()
    slow.may_go_on.set()
    with pytest.raises(SinkStateError, match="is being rolled back"):
        sink.commit_epoch()
    sink._opened_context.writer_thread.lift_limit()
    sink.rollback_epoch()
    assert sink.begin_epoch(1)
    sink.close()
    assert list(place.glob("*.parquet")) == []


def test_a_flush_at_least_once_is_waited_for_again(place, slow):
    sink = impatient(TableSink(place).open())
    sink.write(batch_of([1]))
    with pytest.raises(WriteTimeoutError, match="commit of the rows that wait"):
        sink.flush()
    slow.go_on_soon()
    sink.close()
    assert (slow.calls, ids_in(place)) == (1, [1])


def slow_hot_table(tmp_path, **options):
    hot = hot_table(tmp_path, **options).open()
    hot._parts.writer()._timeout_seconds = 0.01
    return hot


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "keyed"])
def test_a_flush_that_takes_too_long_goes_on_and_does_not_start_over(tmp_path, slow, key):
    hot = slow_hot_table(tmp_path, key=key)
    hot.append(rows([1, 2]))
    for _ in range(3):
        with pytest.raises(WriteTimeoutError, match="flush of epoch 0"):
            hot.flush()
    hot.append(rows([3]))
    assert pairs(hot.read()) == [(1, "a"), (2, "a"), (3, "a")]
    slow.go_on_soon()
    hot.close()
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a"), (3, "a")]
    assert (slow.calls, hot.flush_failures) == (2, 0)


def test_a_slow_flush_in_the_background_is_no_failure(tmp_path, slow, caplog):
    hot = slow_hot_table(tmp_path, hot_flush_age="20ms")
    with caplog.at_level(logging.WARNING):
        hot.append(rows([1]))
        deadline = time.monotonic() + 60
        while "flush of epoch 0" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    slow.may_go_on.set()
    hot.close()
    assert "are flushed later" not in caplog.text
    assert (slow.calls, hot.flush_failures, cold_pairs(tmp_path)) == (1, 0, [(1, "a")])


def test_an_epoch_takes_no_rows_once_it_is_being_written(place, slow):
    sink = begun(place)
    with pytest.raises(WriteTimeoutError):
        sink.pre_commit()
    with pytest.raises(SinkStateError, match="is being written"):
        sink.write(batch_of([3]))
    slow.may_go_on.set()
    sink._opened_context.writer_thread.lift_limit()
    sink.commit_epoch()
    sink.begin_epoch(2)
    sink.commit_epoch()
    sink.close()
    assert ids_in(place) == [1, 2]
