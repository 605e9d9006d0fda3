"""Compaction with real tasks: on local Spark, on two executor processes and over Spark Connect."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import psutil
import pytest

from lakehand.runs import list_runs, sweep
from lakehand.table import open_table
from support import spark_compactions
from support.rows import delta_table
from support.runner_host import MODULES, RunnerHost
from support.small_tables import make_table, read_sorted
from support.watched_tasks import Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.in_turn("kind"),
    pytest.mark.timeout(400),
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


@pytest.mark.only_on("spark", "cluster")
def test_a_stored_plan_its_proof_and_statistics_are_tasks_like_others(host, place):
    rows, files = read_sorted(place), data_files(place)

    plan, compacted, verified, refreshed = host.call(spark_compactions.carry_out_stored_plan, place)

    planned = {path for group in plan["groups"] for path in group["paths"]}
    assert planned == files
    assert compacted["files_removed"] == len(planned)
    assert [proof["outcome"] for proof in verified["proofs"]] == ["equal"]
    assert (refreshed["files_chosen"], refreshed["rows_read"]) == (2, rows.num_rows)
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("spark", "connect")
def test_progress_is_told_group_by_group_while_the_job_runs(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(1)

    seen = host.call(spark_compactions.compact_and_release, place, board)

    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("cluster", "connect")
def test_a_compaction_that_is_wound_down_commits_what_is_proved(host, place, board):
    rows, files = read_sorted(place), data_files(place)
    board.hold(1)

    report = host.call(spark_compactions.compact_and_wind_down, place, board)

    assert (report["outcome"], report["stopped_early"]) == ("committed", True)
    assert report["groups"]["committed"] == 1
    assert read_sorted(place).equals(rows)
    board.release(1)
    again = host.call(spark_compactions.compact, place, board)
    assert (again["stopped_early"], again["groups"]["committed"]) == (False, 1)
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
    rows, files = read_sorted(place), data_files(place)
    board.hold(1)

    with pytest.raises(InterruptedError, match="1 of 2"):
        host.call(spark_compactions.compact_until_progress, place, board)

    [held] = board.notes("held")
    wait_until_gone(held["pid"])
    assert data_files(place) == files == live_files(place)
    assert read_sorted(place).equals(rows)
    # Until then Spark might have let the stopped task write, so its names are still known.
    assert len(list_runs(delta_table(place).store)) == 1
    sweep(delta_table(place), takeover_after=AT_ONCE)
    assert list_runs(delta_table(place).store) == []


@pytest.mark.only_on("connect")
def test_the_command_line_compacts_on_a_server_of_spark_connect(host, place):
    rows, files = read_sorted(place), data_files(place)
    url, token = host.call(spark_compactions.address)

    report = run_command("compact", str(place), "--remote", url, token=token)

    assert (report["outcome"], report["groups"]["committed"]) == ("committed", 2)
    assert_compacted(place, rows=rows, files=files)


@pytest.mark.only_on("connect")
def test_a_process_that_was_on_a_server_of_spark_connect_can_start_spark_again(host, place):
    url, token = host.call(spark_compactions.address)
    program = (
        "import os, sys, lakehand\n"
        "report = lakehand.open_table(sys.argv[1], remote=sys.argv[2]).compact()\n"
        "print(report.outcome, 'SPARK_CONNECT_MODE_ENABLED' in os.environ)\n"
    )
    variables = {"PYTHONPATH": MODULES, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    done = subprocess.run(
        [sys.executable, "-c", program, str(place), url],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "committed False\n", done.stderr


@pytest.mark.soak  # two executors for one command
def test_the_command_line_compacts_on_a_cluster_that_it_starts(place):
    rows, files = read_sorted(place), data_files(place)

    report = run_command("compact", str(place), "--master", "local-cluster[2,1,1024]")

    assert (report["outcome"], report["groups"]["committed"]) == ("committed", 2)
    assert_compacted(place, rows=rows, files=files)


def run_command(*arguments, token=""):
    """Run lakehand as a process and return its JSON document."""
    done = subprocess.run(
        [sys.executable, "-m", "lakehand", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": MODULES, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_next_compaction_goes_on_where_a_killed_driver_stopped(place, board, tmp_path):
    rows, files = read_sorted(place), data_files(place)
    board.hold(0)
    with RunnerHost({"master": "local[2,3]"}, folder=tmp_path) as host:
        host.begin(spark_compactions.compact, place, board)
        board.wait_for("held", count=1)
        [done] = board.wait_for("done", count=1)

        _, alive = psutil.wait_procs(host.kill(), timeout=60)
    report = open_table(place, engine="local", takeover_after="0s").compact()

    assert not alive
    assert (report.groups.adopted, report.groups.committed) == (1, 2)
    assert set(done["outputs"]) < live_files(place)
    assert_compacted(place, rows=rows, files=files)
