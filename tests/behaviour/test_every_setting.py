"""Every setting changes something that can be seen: none is accepted and ignored.

A new setting needs an entry: what is looked at with two values of it, or the test that shows what
it does where that takes a scenario of its own.
"""

from __future__ import annotations

import ast
import itertools
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakehand
from lakehand.cli.main import run
from lakehand.engine import choose_engine
from lakehand.errors import LakehandError
from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.retention.vacuum_tasks import VacuumTasks
from lakehand.runs import Heartbeat
from lakehand.runs.operation import Call
from lakehand.settings import SETTINGS, Settings
from lakehand.sink import TableSink
from lakehand.sink.staging import write_spec
from lakehand.storage import open_store
from support.busy_tables import Busy
from support.compactions import leave_dead_run, tasks_inline
from support.copyable_tables import append_file, create
from support.hot_tables import hot_table
from support.hot_tables import rows as hot_rows
from support.sinks import SCHEMA, batch_of
from support.small_tables import make_table, rows

TESTS = Path(__file__).parents[1]
NOW = {"automatic": True, "dry_run": True}


@dataclass
class Scene:
    """A place for tables, fresh for every look."""

    root: Path
    _numbers: Any = field(default_factory=itertools.count)

    def new(self) -> Path:
        return self.root / f"t{next(self._numbers)}"

    def small_files(self, **settings: Any) -> lakehand.Table:
        path = make_table(self.new(), commits=4)
        return lakehand.open_table(path, **{"engine": "local", **settings})

    def empty(self, **properties: str) -> Path:
        path = self.new()
        named = {name.replace("__", "."): value for name, value in properties.items()}
        lakehand.create_table(path, SCHEMA, properties=named)
        return path


def planned(scene, asked, **others):
    """The files of each group that `plan` makes."""
    plan = scene.small_files(**others, **asked).plan()
    return sorted(len(group.paths) for group in plan.groups)


def planned_automatically(scene, asked, **others):
    """The groups of an automatic run."""
    settings = {"quiet_period": "0s", "automatic_min_files": 2, **others, **asked}
    return scene.small_files().compact(**NOW, **settings).groups.planned


def worn(scene, asked):
    path = scene.empty(delta__enableDeletionVectors="true")
    table = lakehand.open_table(path)
    table.append(batch_of(list(range(100))))
    table.delete(where="id < 10")
    return len(table.plan(target_file_bytes=1, oversized_file_ratio=1e9, **asked).groups)


def mixed_sizes(scene, asked):
    path = scene.new()
    for number, count in enumerate([10, 3000, 10, 3000, 10, 3000, 10, 3000]):
        write_deltalake(str(path), rows(number * 10_000, count), mode="append")
    files = lakehand.open_table(path).snapshot().files
    counts = dict(zip(files["path"].to_pylist(), files["rows"].to_pylist(), strict=True))
    target = 2 * max(files["bytes"].to_pylist())
    table = lakehand.open_table(path, target_file_bytes=target, min_files=2, **asked)
    groups = table.plan(small_file_ratio=0.9).groups
    return sorted(sorted(counts[path] for path in group.paths) for group in groups)


def copied(scene, asked):
    path = scene.new()
    table = create(path, rows(0, 1).schema)
    for number in range(4):
        append_file(table, rows(number * 100_000, 100_000))
    return [group.method for group in lakehand.open_table(path, **asked).plan().groups]


def sorted_by_many(scene, asked):
    called = []
    with pytest.MonkeyPatch.context() as patch, tasks_inline():
        patch.setattr("lakehand.rewrite.execute.shuffle_group", lambda *_, **__: called.append(1))
        with suppress(LakehandError, AttributeError):
            scene.small_files(**asked).cluster(by=["id"])
    return bool(called)


def versions_of_a_run(scene, asked):
    table = scene.small_files(**asked)
    with tasks_inline():
        return table.compact().version


def compacted(scene, asked):
    table = scene.small_files(**asked)
    with tasks_inline():
        return table.compact().proof.kind


def engine_of(scene, asked, **others):
    del scene
    settings = Settings({**others, **asked}, environment={})
    return choose_engine(settings, read_bytes=1000, moved_bytes=0, spark=None)


def limits(scene, asked):
    del scene
    settings = Settings(asked, environment={})
    return TaskLimits.of(settings), WriteSpec.of_tasks(settings)


def heartbeats(scene, asked):
    intervals = []

    class Told(Heartbeat):
        def __init__(self, run, *, interval, **options):
            intervals.append(interval)
            super().__init__(run, interval=interval, **options)

    with pytest.MonkeyPatch.context() as patch, tasks_inline():
        patch.setattr("lakehand.runs.operation.Heartbeat", Told)
        scene.small_files(**asked).compact()
    return intervals


def dead_runs_left(scene, asked):
    path = make_table(scene.new(), commits=4)
    leave_dead_run(path)
    with tasks_inline():
        lakehand.open_table(path, engine="local", **asked).compact()
    return len([file for file in (path / "_lakehand").rglob("*") if file.is_file()])


def partition_times(scene, asked):
    path = scene.new()
    moments = pa.array([0], pa.timestamp("us", tz="UTC"))
    write_deltalake(str(path), pa.table({"id": [1], "at": moments}), partition_by=["at"])
    log = next((path / "_delta_log").glob("*.json"))
    text = log.read_text().replace("1970-01-01T00:00:00.000000Z", "1970-01-01 00:00:00")
    log.write_text(text.replace("1970-01-01 00:00:00.000000", "1970-01-01 00:00:00"))
    return lakehand.open_table(path, **asked).to_arrow()["at"].to_pylist()


def logging_of_the_command(scene, asked):
    del scene
    with pytest.MonkeyPatch.context() as patch:
        for name, value in asked.items():
            patch.setenv(f"LAKEHAND_{name.upper()}", value)
        run(["settings", "--json"])
    logger = logging.getLogger("lakehand")
    return logger.level, type(logger.handlers[0].formatter).__name__


def checkpoints(scene, asked):
    path = scene.empty()
    for number in range(3):
        lakehand.open_table(path, **asked).append(batch_of([number]))
    return len(list((path / "_delta_log").glob("*.checkpoint.parquet")))


def vacuumed(scene, asked, **others):
    table = lakehand.open_table(scene.empty(), **others, **asked)
    try:
        report = table.vacuum(dry_run=True)
    except LakehandError as error:
        return error.code
    return report.retention_seconds


def healthy(scene, asked, **others):
    return scene.small_files(**others, **asked).health().healthy


def sunk(scene, asked, epochs=2, **others):
    """The metrics and the newest files of a sink that has written some epochs."""
    path = scene.empty()
    options = {"quiet_period": "0s", "automatic_min_files": 2, "writer_id": "w", **others, **asked}
    with tasks_inline(), TableSink(path, **options) as sink:
        for epoch in range(1, epochs + 1):
            sink.begin_epoch(epoch)
            sink.write(batch_of([epoch, epoch + 100], epoch))
            sink.commit_epoch()
        context = sink._opened_context
    return context, lakehand.open_table(path)


def compactions(scene, asked, **others):
    return sunk(scene, asked, epochs=4, **others)[0].metrics.compactions


def written_file(scene, asked, **others):
    path = scene.empty()
    lakehand.open_table(path, **others, **asked).append(batch_of(list(range(1000))))
    [file] = [pq.ParquetFile(file).metadata for file in path.glob("*.parquet")]
    column = file.row_group(0).column(0)
    found = column.compression, file.num_row_groups, column.bloom_filter_length
    parts = [file.row_group(0).column(number) for number in range(file.num_columns)]
    has_dictionary = any(part.has_dictionary_page for part in parts)
    return *found, has_dictionary, column.has_column_index


def written_bytes(scene, asked):
    path = scene.empty()
    lakehand.open_table(path, **asked).append(batch_of(list(range(1000))))
    return [file.stat().st_size for file in path.glob("*.parquet")]


def tasks_of_vacuum(scene, asked):
    settings = Settings({"engine": "spark", **asked}, environment={})
    table = SimpleNamespace(store=open_store(scene.empty()))
    return VacuumTasks(Call(operation="vacuum", table=table, settings=settings)).is_needed(10)


def changes_put_together(scene, asked):
    with hot_table(scene.new(), key=["id"], **asked) as hot:
        for number in range(3):
            hot.append(hot_rows([number]))
        deadline = time.monotonic() + 3  # Twelve looks of the thread that merges changes.
        while hot.storage_stats().delta_entries > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        is_merged = hot.storage_stats().delta_entries <= 1
        hot.close(flush=False)
    return is_merged


def context_of_sink(scene, asked, **others):
    context = sunk(scene, asked, epochs=0, **others)[0]
    spec = write_spec(context.target.in_force(context.settings))
    return context.options, spec, type(context.background).__name__


def outcome(scene, asked, *, data=None, path=None, **others):
    """What comes of a sink that writes one batch: an error, or what the table then is."""
    path = path or scene.new()
    try:
        with TableSink(path, **others, **asked) as sink:
            sink.write(data if data is not None else batch_of([1]))
    except LakehandError as error:
        return error.code
    table = lakehand.open_table(path)
    snapshot = table.snapshot()
    return snapshot.schema, snapshot.partition_columns, sorted(table.transactions())


def outcome_on_a_table(scene, asked, *, data=None, **others):
    path = scene.empty()
    lakehand.open_table(path).append(batch_of([1]))
    found = outcome(scene, asked, data=data, path=path, **others)
    return found, lakehand.open_table(path).to_arrow().num_rows


WIDER = pa.record_batch({"id": [1], "epoch": pa.array([1], pa.int32()), "part": ["a"], "new": [1]})


def gap(scene, asked):
    path = scene.empty()
    try:
        with TableSink(path, writer_id="w", **asked) as sink:
            for epoch in (1, 5):
                sink.begin_epoch(epoch)
                sink.write(batch_of([epoch], epoch))
                sink.commit_epoch()
    except LakehandError as error:
        return error.code
    return None


def busy(scene, asked):
    table = Busy(scene.new())
    for minute in range(15):
        table.append(minute)
    table.delete(14, "id = 0")
    table.append(69)
    table.delete(70, "id = 100000")
    return table.maintain(70.5, **asked).outcome


def clustered(scene, asked, **others):
    table = Busy(scene.new())
    for minute in range(11):
        table.append(minute)
    report = table.maintain(60, **others, **asked)
    return report.operation, getattr(report, "curve", None)


#: What is looked at, two values, and further settings of the scenario.
EFFECTS: dict[str, tuple[Any, ...]] = {
    "target_file_bytes": (planned, 1, "1gb"),
    "small_file_ratio": (planned, 0.1, 0.9, {"target_file_bytes": 3000}),
    "small_file_bytes": (planned, "100b", "2000b", {"target_file_bytes": 3000}),
    "oversized_file_ratio": (planned, 2, 1000, {"target_file_bytes": 300}),
    "deleted_row_ratio": (worn, 0.05, 0.5),
    "min_files": (planned, 2, 100),
    "auto_compact": (planned_automatically, True, False),
    "automatic_min_files": (planned_automatically, 2, 100),
    "quiet_period": (planned_automatically, "0s", "1h"),
    "quiet_period_max": (busy, "1h", "2h"),
    "cluster_by": (clustered, "id", None),
    "auto_cluster": (clustered, True, False, {"cluster_by": "id"}),
    "cluster_curve": (clustered, "zorder", "linear", {"cluster_by": "id,part"}),
    "strategy": (mixed_sizes, "greedy", "sort-by-size"),
    "max_bytes_per_run": (planned, 1, None),
    "max_files_per_run": (planned, 1, None),
    "max_groups_per_run": (planned, 1, None),
    "max_surveyed_files": (copied, 0, 100),
    "sort_task_bytes": (sorted_by_many, 0, "1gb"),
    "prove": (compacted, "digest", "counts"),
    "checkpoint_interval": (checkpoints, 2, 100),
    "commit_every_groups": (versions_of_a_run, 1, None),
    "commit_every": (versions_of_a_run, "0s", None),
    "engine": (engine_of, "spark", "local"),
    "master": (engine_of, "local[1]", None),
    "remote": (engine_of, "sc://host", None),
    "spark_above_bytes": (engine_of, 10, "1gb"),
    "task_memory_bytes": (limits, "64MiB", "1GiB"),
    "heartbeat_interval": (heartbeats, "1s", "9s"),
    "takeover_after": (dead_runs_left, "0s", "1h"),
    "partition_time_zone": (partition_times, "UTC", "Asia/Tokyo"),
    "log_level": (logging_of_the_command, "error", "debug"),
    "log_format": (logging_of_the_command, "text", "json"),
    "retention": (vacuumed, "8d", "30d"),
    "allow_short_retention": (vacuumed, True, False, {"retention": "1h"}),
    "vacuum_tasks_above": (tasks_of_vacuum, 5, 500),
    "max_small_file_ratio": (
        healthy,
        0.1,
        1.0,
        {"automatic_min_files": 2, "quiet_period": "0s"},
    ),
    "max_commits_since_checkpoint": (healthy, 1, 100, {"max_small_file_ratio": 1.0}),
    "writer_id": (outcome, "w", None),
    "delivery": (outcome, "exactly-once", "at-least-once"),
    "write_mode": (outcome_on_a_table, "overwrite", "append"),
    "merge_key": (outcome_on_a_table, "id", None, {"write_mode": "upsert"}),
    "partition_by": (outcome, "part", None),
    "create_table": (outcome, True, False),
    "schema_evolution": (outcome_on_a_table, True, False, {"data": WIDER}),
    "catalog_type": (outcome, "none", "glue"),
    "epoch_gaps": (gap, "allow", "refuse"),
    "codec": (written_file, "gzip", "zstd"),
    "compression_level": (written_bytes, 1, 22),
    "dictionary_encoding": (written_file, True, False),
    "parquet_statistics": (written_file, "page", "chunk"),
    "row_group_rows": (written_file, 1, 100),
    "bloom_columns": (written_file, "id", None),
    "bloom_fpp": (written_file, 0.9, 0.0001, {"bloom_columns": "id"}),
    "write_memory_bytes": (context_of_sink, "1MiB", "9MiB"),
    "write_threads": (context_of_sink, 1, 2),
    "write_timeout": (context_of_sink, "5s", "9s"),
    "sink_maintenance": (compactions, True, False, {"maintenance_commits": 2}),
    "maintenance_commits": (compactions, 2, 100),
    "hot_delta_age": (changes_put_together, "1ms", "1h"),
}

# ruff: noqa: E501  names of tests
#: Settings whose effect takes a scenario of its own, and the test that shows it.
SHOWN_BY = {
    "server_side_copy": "faults/test_server_side_copy.py::test_a_file_without_a_checksum_is_streamed_and_the_report_says_why",
    "notify_url": "service/test_commit_notifications.py::test_a_service_that_cannot_be_told_is_logged_once_and_slows_nothing",
    "notify_token": "service/test_commit_notifications.py::test_a_token_that_is_wrong_is_logged_and_never_shown",
    "update_indices": "behaviour/test_lance_indices.py::test_indices_learn_of_rows_that_came_after_them",
    "rehearsed_bytes": "behaviour/test_plan_of_an_order.py::test_nothing_is_tried_where_that_is_not_wanted",
    "max_retries": "storage/test_retry_settings.py::test_max_retries_bounds_the_requests_of_a_table",
    "retry_base_delay": "storage/test_retry_settings.py::test_waits_between_retries_follow_the_settings",
    "retry_max_delay": "storage/test_retry_settings.py::test_waits_between_retries_follow_the_settings",
    "commit_attempts": "unit/test_delta_commit.py::test_a_writer_that_always_loses_gives_up_and_says_so",
    "commit_timeout": "unit/test_delta_commit.py::test_a_writer_gives_up_when_its_time_is_over",
    "scratch_bytes": "behaviour/test_cluster.py::test_too_little_disk_is_said_and_nothing_is_changed",
    "scratch_directory": "behaviour/test_decoders.py::test_remote_files_are_fetched_ahead_and_deleted_after_use",
    "keep_versions": "behaviour/test_every_format.py::test_as_many_versions_stay_as_are_asked_for",
    "grace": "faults/test_vacuum_on_s3.py::test_objects_are_set_aside_and_deleted_when_their_grace_is_over",
    "vacuum_entries": "behaviour/test_vacuum_verbs.py::test_history_tells_of_a_deletion_where_that_is_wanted",
    "vacuum_stale_metadata": "behaviour/test_vacuum_guards.py::test_tables_with_metadata_of_other_formats_are_refused_unless_forced",
    "max_deleted_row_ratio": "behaviour/test_health.py::test_deleted_rows_are_unhealthy_above_their_threshold",
    "max_checkpoint_age": "behaviour/test_health.py::test_a_checkpoint_that_is_due_for_long_is_unhealthy_and_one_that_is_not_due_never",
    "max_overlap_depth": "behaviour/test_health.py::test_files_over_one_another_are_unhealthy_in_columns_that_the_table_is_clustered_by",
    "max_orphan_bytes": "behaviour/test_health.py::test_orphans_are_counted_only_where_asked_for_those_set_aside_included",
    "type_widening": "faults/test_schema_evolution_races.py::test_the_same_column_of_a_narrower_type_is_widened_where_that_is_allowed",
    "max_buffer_records": "behaviour/test_acceptance_sink.py::test_write_multiple_batches",
    "max_buffer_age": "behaviour/test_sink.py::test_at_least_once_commits_rows_that_have_waited_long_enough",
    "on_backpressure": "behaviour/test_sink.py::test_the_pressure_of_waiting_rows_may_be_waited_out",
    "maintenance_interval": "behaviour/test_sink_upkeep.py::test_the_table_of_an_idle_sink_is_looked_at_by_time",
    "vacuum_interval": "behaviour/test_sink_upkeep.py::test_a_table_is_vacuumed_at_the_interval_of_all_its_sinks",
    "hot_durability": "behaviour/test_hot_table.py::test_a_lazy_log_is_there_after_the_process",
    "hot_sync_interval": "behaviour/test_hot_table.py::test_a_lazy_log_is_there_after_the_process",
    "hot_segment_bytes": "behaviour/test_hot_table.py::test_the_log_holds_only_what_is_not_in_the_cold_table",
    "hot_delta_entries": "behaviour/test_hot_table.py::test_many_small_changes_are_put_together",
    "hot_flush_rows": "behaviour/test_hot_table.py::test_flush_threshold",
    "hot_flush_bytes": "behaviour/test_hot_table.py::test_all_tables_are_flushed_for_who_needs_their_memory",
    "hot_flush_age": "faults/test_hot_interrupts.py::test_a_flush_that_is_interrupted_is_made_again",
    "hot_memory_bytes": "behaviour/test_hot_table.py::test_a_writer_is_refused_when_no_flush_makes_room",
    "hot_append_timeout": "behaviour/test_hot_table.py::test_a_writer_is_refused_when_no_flush_makes_room",
    "hot_refresh_interval": "behaviour/test_hot_table.py::test_visibility",
}


def test_every_setting_has_an_entry():
    assert {setting.name for setting in SETTINGS} == {*EFFECTS, *SHOWN_BY}


@pytest.mark.parametrize("name", EFFECTS)
def test_two_values_of_a_setting_come_out_differently(name, tmp_path):
    observe, one, other, *rest = EFFECTS[name]
    scene, others = Scene(tmp_path), rest[0] if rest else {}
    values = (one, other, one)
    seen = [observe(scene, {} if v is None else {name: v}, **others) for v in values]
    assert seen[0] != seen[1]
    assert seen[0] == seen[2]  # Else it would be something else that differs.


@pytest.mark.parametrize("name", SHOWN_BY)
def test_the_test_that_shows_what_a_setting_does_is_there_and_names_it(name):
    path, _, test = SHOWN_BY[name].partition("::")
    source = (TESTS / path).read_text()
    [found] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == test
    ]
    setting = next(one for one in SETTINGS if one.name == name)
    assert any(spelling in ast.unparse(found) for spelling in setting.spellings) or name in source
