"""Rows put in order by many tasks, with Spark's own shuffle in between."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehand.errors import CorruptFileError
from lakehand.runs import list_runs, sweep
from lakehand.temporary import held_directory
from support import spark_compactions
from support.rows import delta_table
from support.watched_tasks import FIRST_SPLIT, Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.in_turn("kind"),
    pytest.mark.timeout(400),
]


@pytest.fixture
def place(tmp_path):
    """Points in no order, in four files."""
    for seed in range(4):
        lot = np.random.default_rng(seed)
        x, y = (lot.integers(0, 10_000, 4_000) for _ in "xy")
        write_deltalake(tmp_path / "table", pa.table({"x": x, "y": y}), mode="append")
    return tmp_path / "table"


def rows_of(place):
    return DeltaTable(place).to_pyarrow_table().sort_by([("x", "ascending"), ("y", "ascending")])


@pytest.mark.only_on("spark", "cluster", "connect")
def test_rows_that_were_shuffled_are_the_same_and_in_order(host, place):
    rows = rows_of(place)

    report = host.call(spark_compactions.cluster_by_shuffle, place, "x, y", seconds=240)

    assert (report["methods"]["sort"], report["proof"]["rows"]) == (1, 16_000)
    assert report["files_after"] > 4
    assert report["overlap_depth"]["after"] < 2.5
    assert rows_of(place).equals(rows)


@pytest.mark.only_on("spark", "cluster")
def test_a_file_that_cannot_be_read_stops_it_and_leaves_nothing(host, place):
    broken = next(place.glob("*.parquet"))
    content = bytearray(broken.read_bytes())
    content[50:5_000] = bytes(4_950)
    broken.write_bytes(content)
    version = delta_table(place).snapshot().version

    with pytest.raises(CorruptFileError):
        host.call(spark_compactions.cluster_by_shuffle, place, "x, y", seconds=240)

    assert delta_table(place).snapshot().version == version
    assert len(list(place.glob("*.parquet"))) == 4


@pytest.fixture
def board(tmp_path):
    (tmp_path / "board").mkdir()
    return Board(folder=tmp_path / "board")


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def assert_clustered_once(place, report, *, rows):
    """All rows are there, by one version, and nothing else is left of the run after a sweep."""
    assert (report["outcome"], report["proof"]["rows"]) == ("committed", 16_000)
    assert report["version"] == delta_table(place).snapshot().version == 4
    assert rows_of(place).equals(rows)
    sweep(delta_table(place), takeover_after=timedelta(0))
    assert list_runs(delta_table(place).store) == []
    live = delta_table(place).snapshot().files["path"].to_pylist()
    assert len({path.name for path in place.glob("*.parquet")} - set(live)) == 4


#: Who is held, and whose process is then killed.
HELD = {"first stage": FIRST_SPLIT + 3, "second stage": 0}


def let_each_executor_split(board):
    """Hold the executor of the first split until another one has done the other splits."""
    board.wait_for("held", count=1)
    board.wait_for("split", count=4)
    board.release(FIRST_SPLIT)


@pytest.mark.only_on("cluster")
@pytest.mark.parametrize("victim", ["java", pytest.param("pid", marks=pytest.mark.soak)])
@pytest.mark.parametrize("stage", HELD)
def test_what_a_killed_process_had_read_or_sorted_is_done_again(
    host, place, board, scratch, stage, victim
):
    rows = rows_of(place)
    board.hold(HELD[stage])
    if stage == "second stage":
        board.hold(FIRST_SPLIT)
    host.begin(spark_compactions.watched_cluster, place, board, scratch)
    if stage == "second stage":
        let_each_executor_split(board)
        board.wait_for("joined", count=1)
    held = board.wait_for("held", count=1 if stage == "first stage" else 2)[-1]

    os.kill(held[victim], signal.SIGKILL)
    board.release(HELD[stage])
    report = host.answer(seconds=240)

    # With the executor goes what it had to hand out; a Python process has handed it over.
    is_read_again = stage == "first stage" or victim == "java"
    assert (len(board.notes("split")) > 4) == is_read_again
    # Whoever was at work on files before may be so still: those names are known to the next sweep.
    assert len(list_runs(delta_table(place).store)) == (1 if stage == "second stage" else 0)
    assert_clustered_once(place, report, rows=rows)
    assert_swept_by_the_next(scratch)


def assert_swept_by_the_next(scratch):
    """What a killed process had on disk goes as soon as others work there, a minute later."""
    for left in scratch.iterdir():
        os.utime(left, (0, 0))
    with held_directory(str(scratch), purpose="scan"):
        pass
    assert list(scratch.iterdir()) == []
