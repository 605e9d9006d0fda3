"""Compaction with real tasks: on local Spark, on two executor processes and over Spark Connect."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import timedelta

import psutil
import pytest

from lakehand.runs import list_runs, sweep
from support import spark_compactions
from support.rows import delta_table
from support.small_tables import make_table, read_sorted
from support.watched_tasks import Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

AT_ONCE = timedelta(0)


@pytest.fixture
def place(tmp_path):
    """Two groups, one for each region."""
    return make_table(tmp_path / "table")


@pytest.fixture
def board(tmp_path):
    (tmp_path / "board").mkdir()
    return Board(folder=tmp_path / "board")


def data_files(place):
    paths = (path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path.relative_to(place).as_posix() for path in paths}


def live_files(place):
    return set(delta_table(place).snapshot().files["path"].to_pylist())


def assert_compacted(place, *, rows, files):
    """Two live files hold the rows, and nothing else was left in the table's directory."""
    assert read_sorted(place).equals(rows)
    assert len(live_files(place)) == 2
    sweep(delta_table(place), takeover_after=AT_ONCE)
    assert data_files(place) == files | live_files(place)
    assert list_runs(delta_table(place).store) == []


def wait_until_gone(pid):
    """Spark ends the processes of tasks that were stopped a little later."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)


@pytest.mark.only_on("spark", "cluster", "connect")
def test_a_session_passed_in_is_used_and_left_as_it_was(host, place):
    rows, files = read_sorted(place), data_files(place)

    before, after = host.call(spark_compactions.session_around_compaction, place)

    assert_compacted(place, rows=rows, files=files)
    assert after == before
    assert after["tags"] == ["of-the-user"]


@pytest.mark.only_on("spark", "connect")
def test_progress_is_told_group_by_group_while_the_job_runs(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(1)

    seen = host.call(spark_compactions.compact_and_release, place, board)

    assert seen == [(1, 2), (2, 2)]
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("cluster")
def test_two_executor_processes_rewrite_the_table(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(0, 1)
    host.begin(spark_compactions.compact, place, board)

    held = board.wait_for("held", count=2)
    board.release(0, 1)
    report = host.answer()

    done = board.notes("done")
    assert len({note["java"] for note in held}) == 2
    assert {note["java"] for note in done} == {note["java"] for note in held}
    assert {path for note in done for path in note["outputs"]} == live_files(place)
    assert {note["cores"] for note in done} == {1}
    assert report["groups"]["committed"] == 2
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("cluster")
def test_the_task_of_a_killed_executor_is_finished_by_the_other(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(0)
    host.begin(spark_compactions.compact, place, board)
    [held] = board.wait_for("held", count=1)
    [other] = board.wait_for("done", count=1)
    assert (held["group"], other["group"]) == (0, 1)

    os.kill(held["java"], signal.SIGKILL)
    board.release(0)
    report = host.answer()

    last = board.notes("done")[-1]
    assert last["group"] == 0
    assert last["java"] == other["java"] != held["java"]
    assert report["groups"]["committed"] == 2
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("spark", "cluster", "connect")
def test_the_task_of_a_killed_python_worker_is_finished_by_another(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(0)
    host.begin(spark_compactions.compact, place, board)
    [held] = board.wait_for("held", count=1)

    os.kill(held["pid"], signal.SIGKILL)
    board.release(0)
    report = host.answer()

    last = [note for note in board.notes("done") if note["group"] == 0]
    assert [note["pid"] == held["pid"] for note in last] == [False]
    assert report["groups"]["committed"] == 2
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("spark", "cluster", "connect")
def test_raising_from_progress_stops_the_job_and_leaves_the_table_as_it_was(host, place, board):
    rows, files, live = read_sorted(place), data_files(place), live_files(place)
    board.hold(1)

    with pytest.raises(InterruptedError, match="1 of 2"):
        host.call(spark_compactions.compact_until_progress, place, board)

    [held] = board.notes("held")
    wait_until_gone(held["pid"])
    board.release(1)
    sweep(delta_table(place), takeover_after=AT_ONCE)
    assert live_files(place) == live
    assert read_sorted(place).equals(rows)
    assert data_files(place) == files
    assert list_runs(delta_table(place).store) == []
