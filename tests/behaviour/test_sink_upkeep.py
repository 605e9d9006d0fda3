"""What a sink does for its table beside its commits, and never at their cost."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.sink import DeltaSink
from support.compactions import tasks_inline
from support.sinks import SCHEMA, batch_of, ids_in

ON = {"sink_maintenance": True, "maintenance_commits": 5, "automatic_min_files": 4}


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
    with tasks_inline(), DeltaSink(place, writer_id="w", **ON) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context
    assert context.metrics.compactions == 1
    assert context.metrics.files_compacted >= 4
    assert file_count(place) < 5
    assert ids_in(place) == [1, 2, 3, 4, 5]


def test_compaction_is_on_by_default_and_leaves_busy_partitions_alone(place):
    options = {name: value for name, value in ON.items() if name != "sink_maintenance"}
    with tasks_inline(), DeltaSink(place, writer_id="w", **options) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context
    assert (context.metrics.compactions, file_count(place)) == (0, 5)

    with tasks_inline(), DeltaSink(place, writer_id="v", quiet_period="0s", **options) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context
    assert context.metrics.compactions == 1
    assert file_count(place) < 10
    assert ids_in(place) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_compaction_is_not_triggered_by_files_that_are_large_enough(place):
    with tasks_inline(), DeltaSink(place, writer_id="w", target_file_bytes=100, **ON) as sink:
        write_epochs(sink, 5)
        context = sink._opened_context

    assert context.metrics.compactions == 0
    assert file_count(place) == 5


def test_compaction_disabled_leaves_files_and_still_writes_checkpoints(place):
    options = {"compaction.enabled": "false", "checkpoint.interval": 3, **ON}
    with DeltaSink(place, writer_id="w", **options) as sink:
        write_epochs(sink, 6)
        context = sink._opened_context

    assert (context.metrics.compactions, context.metrics.checkpoints) == (0, 2)
    assert file_count(place) == 6
    assert list((place / "_delta_log").glob("*.checkpoint.parquet"))


def test_upkeep_that_fails_fails_no_commit(place, monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("no room for a compaction")

    monkeypatch.setattr("lakehand.due.steps.compact", fail)
    with DeltaSink(place, writer_id="w", **ON) as sink:
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

    monkeypatch.setattr("lakehand.due.steps.compact", endless)
    sink = DeltaSink(place, writer_id="w", **ON).open()
    write_epochs(sink, 5)
    assert begun.wait(100)
    sink.close(timeout=timedelta(0))

    assert ids_in(place) == [1, 2, 3, 4, 5]


def test_a_table_in_order_is_kept_in_order(place):
    with tasks_inline():
        table = lakehand.open_table(place, engine="local")
        table.append(batch_of(list(range(1000, 50_000)), 0))
        table.cluster(by="id", curve="linear")
        with DeltaSink(place, writer_id="w", **ON) as sink:
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
        with tasks_inline(), DeltaSink(place, writer_id=writer, **options) as sink:
            write_epochs(sink, 10)
            context = sink._opened_context
        vacuums.append(context.metrics.vacuums)
    assert vacuums == [1, 0]


def test_a_retention_that_a_vacuum_would_refuse_is_refused_at_once(place):
    with pytest.raises(ValidationError, match="shorter than readers may count on"):
        DeltaSink(place, **{"vacuum.retention.hours": 24})
