"""Deduplication with real tasks: keys move between them through the ledger, which then is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.runs import list_runs, sweep
from support import spark_deduplications
from support.compactions import open_table
from support.deduplications import PROPERTIES, append, contents, kept, rows
from support.watched_tasks import Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.in_turn("kind"),
    pytest.mark.timeout(400),
]

BATCHES = [[(i % 40, b, 100 * b + i) for i in range(50)] for b in range(3)]


@pytest.mark.only_on("spark", "cluster")
@pytest.mark.parametrize("way", PROPERTIES)
def test_tasks_on_spark_leave_one_row_of_each_key(host, tmp_path, way):
    path = tmp_path / "t"
    for batch in BATCHES:
        append(path, rows(*batch), configuration=PROPERTIES[way])

    report = host.call(spark_deduplications.deduplicate, path, seconds=300)

    assert contents(path) == kept(BATCHES, keep="latest")
    assert (report["outcome"], report["duplicates_removed"]) == ("committed", 110)
    assert list_runs(open_table(str(path)).store) == []


@pytest.mark.only_on("cluster")
@pytest.mark.parametrize("way", ["vectors", pytest.param("copies", marks=pytest.mark.soak)])
def test_rows_that_a_killed_executor_was_taking_out_are_gone_and_no_others(host, tmp_path, way):
    path, board = tmp_path / "t", Board(folder=tmp_path / "board")
    board.folder.mkdir()
    for batch in BATCHES:
        append(path, rows(*batch), configuration=PROPERTIES[way])
    board.hold(0)
    host.begin(spark_deduplications.watched_deduplicate, path, board)
    [held] = board.wait_for("held", count=1)

    board.kill_executor_of(held)
    board.release(0)
    report = host.answer(seconds=300)

    assert report["duplicates_removed"] == 110
    assert len(list_runs(open_table(str(path)).store)) == 1
    swept = sweep(open_table(str(path)), takeover_after=timedelta(0))
    assert (swept.kept, list_runs(open_table(str(path)).store)) == ({}, [])
    assert contents(path) == kept(BATCHES, keep="latest")
    [done] = board.notes("done")
    files = {file.relative_to(path).as_posix() for file in path.rglob("*lakehand-*/*.bin")}
    files |= {file.name for file in path.glob("lakehand-*.parquet")}
    assert files == set(done["outputs"])
