"""Workers that move row groups start while the plan is made, and only where there is work."""

from __future__ import annotations

import os
import shutil
from functools import partial

import numpy as np
import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehand import open_table
from lakehand.engine.local_worker import end_idle_workers
from lakehand.engine.runner_contract import usable_cores
from lakehand.rewrite.prepare import Request, make_plan
from lakehand.rewrite.prestart import start_movers_ahead, start_rewriter_ahead
from lakehand.settings import Settings
from support.rows import delta_table

LOCAL = {"engine": "local", "min_files": 2, "target_file_bytes": 11_500_000}


@pytest.fixture
def new_workers():
    """Return a function for the processes that were started since."""
    end_idle_workers()
    there = psutil.Process().children()
    yield lambda: [child for child in psutil.Process().children() if child not in there]
    end_idle_workers()


@pytest.fixture(scope="module")
def large_files(tmp_path_factory):
    """Return a table of five files of 5 MB that cannot be compressed."""
    path = tmp_path_factory.mktemp("ahead") / "table"
    numbers = np.random.default_rng(1)
    for _ in range(5):
        rows = pa.table({"a": numbers.integers(0, 2**62, 640_000)})
        write_deltalake(path, rows, mode="append")
    return path


def plan(path, settings):
    return make_plan(
        delta_table(path),
        Settings(settings, environment={}),
        Request(),
        on_survey=partial(start_movers_ahead, spark=None),
    ).plan


def test_as_many_start_as_there_will_be_files(large_files, new_workers):
    assert plan(large_files, LOCAL).groups
    assert len(new_workers()) == min(2, usable_cores())


def test_those_that_wait_are_used(large_files, new_workers):
    plan(large_files, LOCAL)
    waiting = new_workers()
    plan(large_files, LOCAL)

    assert new_workers() == waiting


def test_those_that_have_ended_are_replaced(large_files, new_workers):
    plan(large_files, LOCAL)
    for worker in new_workers():
        worker.kill()
        psutil.wait_procs([worker], timeout=20)
    plan(large_files, LOCAL)

    assert len(new_workers()) == min(2, usable_cores())


def test_none_starts_where_spark_is_asked_for(large_files, new_workers):
    plan(large_files, {**LOCAL, "engine": "spark"})

    assert not new_workers()


def test_none_starts_for_files_that_are_too_small_to_be_moved(tmp_path, new_workers):
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"a": [number]}), mode="append")

    assert plan(tmp_path / "table", LOCAL).groups
    assert not new_workers()


def test_none_starts_for_a_plan_alone(large_files, new_workers):
    table = open_table(large_files, **LOCAL)

    assert table.plan().groups
    assert table.compact(dry_run=True).outcome == "dry_run"
    assert not new_workers()


def test_bytes_that_are_only_moved_start_no_spark(large_files, tmp_path):
    path = tmp_path / "table"
    shutil.copytree(large_files, path)
    wish = {"min_files": 2, "target_file_bytes": 11_500_000, "spark_above_bytes": 5_000_000}

    report = open_table(path).compact(**wish)

    assert report.bytes_before > 25_000_000
    assert report.methods.copy
    assert report.ran_on == "local"


@pytest.fixture
def small_table(tmp_path):
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"a": [number]}), mode="append")
    return tmp_path / "table"


@pytest.mark.parametrize(("engine", "started"), [("auto", 0), ("local", 1)])
def test_a_small_rewrite_needs_no_process_but_one_that_is_asked_for(
    small_table, new_workers, engine, started
):
    report = open_table(small_table, engine=engine, min_files=2).compact()

    assert (report.outcome, report.ran_on) == ("committed", "local")
    assert len(new_workers()) == started


def test_a_rewrite_of_more_than_a_little_runs_in_a_process(small_table, new_workers, monkeypatch):
    monkeypatch.setattr("lakehand.rewrite.run.INLINE_REWRITE_BYTES", 1000)

    open_table(small_table, min_files=2).compact()

    assert len(new_workers()) == 1


@pytest.mark.parametrize(
    ("settings", "started"), [({}, 0), ({"engine": "local"}, 1), ({"engine": "spark"}, 0)]
)
def test_a_command_starts_no_worker_for_a_small_directory(
    small_table, new_workers, settings, started
):
    start_rewriter_ahead(Settings(settings, environment={}), str(small_table))

    assert len(new_workers()) == started


@pytest.mark.parametrize("change", ["large", "partitioned", "missing"])
def test_a_command_starts_a_worker_where_a_table_may_be_large(small_table, new_workers, change):
    if change == "large":
        (small_table / "x.parquet").write_bytes(b"")
        os.truncate(small_table / "x.parquet", 2**30)
    elif change == "partitioned":
        (small_table / "day=1").mkdir()
    place = "s3://bucket/table" if change == "missing" else str(small_table)

    start_rewriter_ahead(Settings({}, environment={}), place)

    assert len(new_workers()) == 1
