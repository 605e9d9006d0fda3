"""What a sink does for its table beside its commits, and never at their cost."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

import lakehand
from lakehand.errors import CancelledError, ValidationError
from lakehand.sink import TableSink
from support.compactions import tasks_inline
from support.sinks import SCHEMA, batch_of, ids_in

#: Files of tests are written a moment ago.
ON = {"maintenance_commits": 5, "automatic_min_files": 4, "quiet_period": "0s"}


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def write_epochs(sink, count: int) -> None:
    for number in range(1, count + 1):
        sink.begin_epoch(number)
        sink.write(batch_of([number], number))
        sink.commit_epoch()


def file_count(place) -> int:
    return lakehand.open_table(place).snapshot().file_count


def test_compaction_trigger_threshold_counts_small_files(place):
    with tasks_inline(), TableSink(place, writer_id="w", **ON) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context
    assert context.metrics.compactions == 1
    assert context.metrics.files_compacted >= 4
    assert file_count(place) < 5
    assert ids_in(place) == [1, 2, 3, 4, 5]


def test_compaction_metrics_are_read_after_close(place):
    with tasks_inline(), TableSink(place, writer_id="w", **ON) as sink:
        write_epochs(sink, 5)
    metrics = sink.metrics
    sizes = [file.stat().st_size for file in place.rglob("*.parquet")]
    assert metrics.compactions == 1
    assert metrics.commits == 5
    assert metrics.bytes_before_compaction + metrics.bytes_after_compaction <= sum(sizes)
    assert metrics.bytes_before_compaction > metrics.bytes_after_compaction > 0
    assert metrics.compaction_ms > 0
    live = lakehand.open_table(place).snapshot().total_bytes
    removed = metrics.bytes_before_compaction - metrics.bytes_after_compaction
    assert live == metrics.bytes_written - removed


@pytest.mark.parametrize("asked", [{}, {"sink_maintenance": True}])
def test_maintenance_asked_for_is_the_one_by_default_and_leaves_new_files_alone(place, asked):
    options = {**ON, "quiet_period": "5m", **asked}
    with tasks_inline(), TableSink(place, writer_id="w", **options) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context
    assert (context.metrics.compactions, file_count(place)) == (0, 5)


def until(is_so, *, seconds: float = 100) -> None:
    """Wait for what another thread does."""
    for _ in range(int(seconds * 100)):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_the_table_of_an_idle_sink_is_looked_at_by_time(place):
    with tasks_inline():
        for number in range(5):
            lakehand.open_table(place).append(batch_of([number]))
        with TableSink(place, writer_id="w", **ON, maintenance_interval="50ms") as sink:
            context = sink._opened_context
            until(lambda: context.metrics.compactions)
    assert file_count(place) == 1


def test_checkpoints_do_not_wait_for_a_compaction(place, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def slow(*_arguments, **_options):
        begun.set()
        may_end.wait(100)
        raise CancelledError("enough")

    monkeypatch.setattr("lakehand.rewrite.run.compact", slow)
    with TableSink(place, writer_id="w", **ON, checkpoint_interval=3) as sink:
        write_epochs(sink, 5)
        assert begun.wait(100)
        metrics = sink._opened_context.metrics
        before = metrics.checkpoints
        for number in range(6, 10):
            sink.begin_epoch(number)
            sink.write(batch_of([number], number))
            sink.commit_epoch()
        # How many depends on how late the thread is: each is of the newest version.
        until(lambda: metrics.checkpoints > before)
        may_end.set()


def test_compaction_is_not_triggered_by_files_that_are_large_enough(place):
    with tasks_inline(), TableSink(place, writer_id="w", target_file_bytes=100, **ON) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context

    assert context.metrics.compactions == 0
    assert file_count(place) == 5


def test_compaction_disabled_leaves_files_and_still_writes_checkpoints(place):
    options = {"compaction.enabled": "false", "checkpoint.interval": 3, **ON}
    with TableSink(place, writer_id="w", **options) as sink:
        write_epochs(sink, 6)
        context = sink._opened_context

    assert (context.metrics.compactions, context.metrics.checkpoints) == (0, 2)
    assert file_count(place) == 6
    assert list((place / "_delta_log").glob("*.checkpoint.parquet"))


def test_upkeep_that_fails_fails_no_commit(place, monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("no room for a compaction")

    monkeypatch.setattr("lakehand.rewrite.run.compact", fail)
    with TableSink(place, writer_id="w", **ON) as sink:
        write_epochs(sink, 6)
        context = sink._opened_context

    assert context.metrics.upkeep_errors == 1
    assert ids_in(place) == [1, 2, 3, 4, 5, 6]


def test_a_sink_that_is_closed_in_haste_stops_what_is_under_way(place, monkeypatch):
    begun = threading.Event()

    def endless(*_arguments, on_progress, **_options):
        begun.set()
        while True:
            on_progress(None)

    monkeypatch.setattr("lakehand.rewrite.run.compact", endless)
    sink = TableSink(place, writer_id="w", **ON).open()
    write_epochs(sink, 5)
    assert begun.wait(100)
    sink.close(timeout=timedelta(0))

    assert ids_in(place) == [1, 2, 3, 4, 5]


def test_a_table_in_order_is_kept_in_order(place):
    with tasks_inline():
        table = lakehand.open_table(place, engine="local")
        table.append(batch_of(list(range(1000, 50_000)), 0))
        table.cluster(by="id", curve="linear")
        with TableSink(place, writer_id="w", **ON) as sink:
            write_epochs(sink, 5)
            context = sink._opened_context
    assert context.metrics.compactions == 1
    orders = table._handle.stored_orders(table.snapshot())
    assert orders.to_pylist() == ["linear(id)", "linear(id)"]
    assert ids_in(place) == [1, 2, 3, 4, 5, *range(1000, 50_000)]


def test_a_table_is_vacuumed_at_the_interval_of_all_its_sinks(place):
    vacuums = []
    for writer in ("w", "v"):
        options = {**ON, "vacuum_interval": "1h"}
        with tasks_inline(), TableSink(place, writer_id=writer, **options) as sink:
            write_epochs(sink, 10)
            context = sink._opened_context
        vacuums.append(context.metrics.vacuums)
    assert vacuums == [1, 0]


def test_a_retention_that_a_vacuum_would_refuse_is_refused_at_once(place):
    with pytest.raises(ValidationError, match="shorter than readers may count on"):
        TableSink(place, **{"vacuum.retention.hours": 24})
