"""Verification with real tasks, on executors of their own."""

from __future__ import annotations

import pytest

from lakehand.table import open_table
from support import damage, spark_verifications
from support.watched_tasks import Board

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]


@pytest.mark.only_on("cluster")
def test_two_executors_look_at_the_files_and_find_what_the_process_itself_finds(host, tmp_path):
    place = damage.make_whole_table(tmp_path / "table")
    damage.data_file(place, 1).unlink()
    damage.narrow_bounds(place)
    (tmp_path / "board").mkdir()
    board = Board(folder=tmp_path / "board")
    board.hold(0, 1)
    host.begin(spark_verifications.verify_deeply, place, board)

    held = board.wait_for("held", count=2)
    board.release(0, 1)
    report = host.answer()

    assert len({note["java"] for note in held}) == 2
    assert len(board.notes("FileTask")) == damage.VERSIONS
    assert board.notes("RowTask")
    here = open_table(place, engine="local").verify(deep=True)
    assert list(report["findings"]) == list(here.to_json()["findings"])
    assert {finding["name"] for finding in report["findings"]} == {
        "missing_file",
        "wrong_statistics",
    }
