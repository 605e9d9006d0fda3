"""Rows that are put in order by tasks on other machines: their pieces are carried, in no order."""

from __future__ import annotations

import json
import random

import pytest

from lakehand.engine.spark_exchange import join_packed, pack_exchange, read_exchanged, split_packed
from lakehand.errors import ProofError
from support.compactions import CLUSTER_BY_MANY_TASKS, InlineRunner, open_table
from support.small_tables import make_table, read_sorted
from support.unharmed import assert_unharmed


class CarryingRunner(InlineRunner):
    """Does what a shuffle of Spark does with pieces, in this process."""

    is_elsewhere = True
    lost = 0
    carried_bytes = 0

    def exchange(self, split, payloads, join, *, parts, run, cancel):
        work = pack_exchange(split, payloads, join, parts=parts)
        rows = [row for index in range(len(payloads)) for row in split_packed(work, index)]
        self.carried_bytes = sum(row["piece"].nbytes for row in rows)
        del rows[: self.lost]
        random.Random(5).shuffle(rows)
        by_part = {}
        for row in rows:
            by_part.setdefault(row["part"][0].as_py(), []).append(row)
        found = [told for some in by_part.values() for told in join_packed(work, iter(some))]
        outcomes = {
            told["index"][0].as_py(): json.loads(told["outcome"][0].as_py()) for told in found
        }
        return read_exchanged(outcomes, parts=parts, mismatch=ValueError)


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture
def runner(monkeypatch):
    """Let all tasks run as if they were elsewhere, whoever asks for a runner."""
    runner = CarryingRunner()
    monkeypatch.setattr("support.compactions.InlineRunner", lambda: runner)
    return runner


def test_rows_whose_pieces_come_in_no_order_are_the_same(place, runner):
    before = read_sorted(place)

    report = CLUSTER_BY_MANY_TASKS(place)

    assert runner.carried_bytes
    assert report.methods.sort == report.groups.committed == 2
    assert read_sorted(place).equals(before)


def test_a_piece_that_is_lost_on_its_way_is_noticed(place, runner):
    before, version = read_sorted(place), open_table(str(place)).snapshot().version
    runner.lost = 1

    with pytest.raises(ProofError):
        CLUSTER_BY_MANY_TASKS(place)

    assert open_table(str(place)).snapshot().version == version
    assert_unharmed(place, before)
