"""Vacuum with real tasks: listing and deleting on executors, some of which die or come late."""

from __future__ import annotations

import os
import shutil
import signal
import time

import psutil
import pytest

from lakehand.storage import open_store
from lakehand.storage.fault_injection import Fault, FaultKind
from lakehand.table import open_table
from support import spark_vacuums
from support.hand_written_logs import add, field, metadata, protocol, put_commit
from support.runner_host import RunnerHost
from support.small_tables import commit_by_hand
from support.spark_vacuums import LISTING
from support.tables_with_orphans import all_files, kept_files, make_table_with_orphans
from support.watched_tasks import Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.in_turn("kind"),
    pytest.mark.timeout(400),
]


@pytest.fixture
def place(tmp_path):
    return make_table_with_orphans(tmp_path / "table")


@pytest.fixture
def board(tmp_path):
    (tmp_path / "board").mkdir()
    return Board(folder=tmp_path / "board")


def assert_vacuumed(place, report, *, kept, garbage):
    """Exactly the garbage is gone, and the report says so."""
    assert all_files(place) == kept
    assert (report["files_deleted"], len(report["errors"])) == (len(garbage), 0)


@pytest.mark.only_on("cluster", "connect")
def test_tasks_delete_the_same_files_as_the_process_itself(host, place, tmp_path):
    twin = shutil.copytree(place, tmp_path / "twin")
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)

    report = host.call(spark_vacuums.vacuum, place)

    assert_vacuumed(place, report, kept=kept, garbage=garbage)
    here = open_table(twin).vacuum(grace="0", vacuum_entries="never").to_json()
    assert all_files(twin) == kept
    volatile = {"table", "duration_ms"}
    assert {k: v for k, v in report.items() if k not in volatile} == {
        k: v for k, v in here.items() if k not in volatile
    }


@pytest.mark.only_on("cluster")
def test_two_executors_list_and_delete(host, place, board):
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)
    both = (LISTING, LISTING + 1), (0, 1)
    for tasks in both:
        board.hold(*tasks)
    host.begin(spark_vacuums.watched_vacuum, place, board)

    for count, tasks in zip((2, 4), both, strict=True):
        held = board.wait_for("held", count=count)[-2:]
        assert len({note["java"] for note in held}) == 2
        board.release(*tasks)
    report = host.answer()

    assert len(board.notes("listed")) > 2
    assert len(board.notes("deleted")) == 3
    assert_vacuumed(place, report, kept=kept, garbage=garbage)


@pytest.mark.only_on("cluster")
def test_what_a_killed_executor_has_half_deleted_is_finished_by_the_other(host, place, board):
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)
    board.hold(0)
    host.begin(spark_vacuums.watched_vacuum, place, board)
    [held] = board.wait_for("held", count=1)
    half = len(all_files(place))

    os.kill(held["java"], signal.SIGKILL)
    board.release(0)
    report = host.answer()

    assert len(kept) < half < len(kept) + len(garbage)
    # The Python of the killed executor may live a little longer than its JVM, and do no harm.
    finished = {note["java"] for note in board.notes("deleted") if note["group"] == 0}
    assert finished - {held["java"], None}
    assert_vacuumed(place, report, kept=kept, garbage=garbage)


@pytest.mark.only_on("spark")
def test_a_task_that_comes_too_late_deletes_nothing_before_the_table_was_looked_at_again(
    host, place, board
):
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)
    revived = min(garbage)
    board.hold(0)
    host.begin(spark_vacuums.hurried_vacuum, place, board, 4.0)
    [held] = board.wait_for("held", count=1)
    time.sleep(4.5)
    commit_by_hand(place, add(revived, size=0))

    board.release(0)
    report = host.answer()

    tried = [note["tried"] for note in board.notes("deleted") if note["pid"] == held["pid"]]
    assert 0 in tried
    assert_vacuumed(place, report, kept=kept | {revived}, garbage=garbage - {revived})


@pytest.mark.only_on("cluster")
def test_files_that_cannot_be_deleted_are_reported_and_the_others_go(host, place):
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="delete", key="d=000/*", times=None)

    report = host.call(spark_vacuums.vacuum_with_faults, place, fault)

    left = all_files(place) - kept
    assert {error["path"] for error in report["errors"]} == left
    assert {error["code"] for error in report["errors"]} == {"STORE_UNREACHABLE"}
    assert 0 < len(left) < len(garbage)
    assert report["files_deleted"] == len(garbage) - len(left)
    again = open_table(place).vacuum(grace="0", vacuum_entries="never")
    assert_vacuumed(place, again.to_json(), kept=kept, garbage=left)


@pytest.mark.only_on("cluster")
def test_objects_of_a_store_are_listed_and_deleted_by_executors(host, s3_server, board):
    uri = s3_server.new_uri()
    store = open_store(uri, s3_server.options)
    files = {f"d={number:02}/{part}.parquet" for number in range(40) for part in range(5)}
    live = {"d=00/0.parquet", "d=39/4.parquet"}
    for key in files:
        store.put(key, b"")
    adds = [add(key, size=0) for key in sorted(live)]
    put_commit(store, 0, protocol(), metadata(field("id", "long")), *adds)

    report = host.call(spark_vacuums.vacuum_objects, uri, dict(s3_server.options), board)

    assert {info.key for info in store.list() if info.key.endswith(".parquet")} == live
    assert (report["files_deleted"], len(report["errors"])) == (len(files - live), 0)
    assert board.notes("listed")
    assert sum(note["tried"] for note in board.notes("deleted")) == len(files - live)


def test_a_vacuum_whose_driver_is_killed_between_batches_is_finished_by_the_next(
    place, board, tmp_path
):
    kept, garbage = kept_files(place), all_files(place) - kept_files(place)
    with RunnerHost({"master": "local[2,3]"}, folder=tmp_path) as host:
        host.begin(spark_vacuums.vacuum_until_batch, place, board, 2)
        board.wait_for("held", count=1)
        _, alive = psutil.wait_procs(host.kill(), timeout=60)
    left = all_files(place) - kept

    report = open_table(place).vacuum(grace="0", vacuum_entries="never")

    assert not alive
    assert len(left) == len(garbage) - 3000
    assert_vacuumed(place, report.to_json(), kept=kept, garbage=left)
