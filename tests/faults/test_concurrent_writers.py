"""Other engines write while lakehand rewrites: no acknowledged row is lost, none is doubled."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from lakehand.observe.steps import Step
from support.compactions import COMPACT
from support.pausing import PausedProcess
from support.rows import assert_same_rows, delta_rs_rows, lakehand_rows, spark_rows
from support.table_writers import (
    DeltaRsEngine,
    Model,
    SparkEngine,
    Write,
    Writer,
    create_table,
    marks_in,
)
from support.tasks import wait_for
from support.writing_beside_rewrites import CLUSTER_WRITTEN, rewrite_to_file

# Three engines and up to ten commits of delta-spark for each shape.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Everything is rewritten and proved; the commit comes next.
BEFORE_COMMIT = (Step.RUN_COMMITTING, 1)
BLOCK_ROWS = 600
SHAPES = {
    "partitions": {"partitioned": True, "vectors": False},
    "partitions-with-vectors": {"partitioned": True, "vectors": True},
    "whole": {"partitioned": False, "vectors": False},
    "whole-with-vectors": {"partitioned": False, "vectors": True},
}


class Contest:
    """A table, its writers, and the list of what they were told has happened."""

    def __init__(self, oracle, folder, delta_rs, *, partitioned):
        self.partitioned = partitioned
        self.oracle, self.place, self.folder = oracle, folder / "table", folder
        self.log, self.gate = self.place / "_delta_log", folder / "gate"
        self.delta_rs = delta_rs
        self.spark = Writer(engine=SparkEngine(oracle, self.place), log=self.log)
        self.other = Writer(engine=delta_rs, log=self.log) if delta_rs else self.spark
        self.marks = (f"write-{number}" for number in itertools.count())
        self.acknowledged = []

    def write(self, writer, kind, block, **more):
        """Write to the ids of a block, which were appended together."""
        ids = {"first": block * BLOCK_ROWS, "last": (block + 1) * BLOCK_ROWS}
        write = Write(kind=kind, mark=next(self.marks), **ids, **more)
        effort = writer.write(write)
        self.acknowledged.append(write)
        return effort

    def rewrite(self, *steps, rewrite=COMPACT):
        """Start lakehand in a process of its own, which stops itself at `steps`."""
        written = sum(path.stat().st_size for path in self.place.rglob("part-*.parquet"))
        # Half of it in one file, so that there are several groups without partitions, too.
        work = partial(rewrite_to_file, rewrite, target_file_bytes=written // 2)
        return PausedProcess(list(steps), work, self.place, self.folder / "report.json")

    def compact(self):
        with self.rewrite() as lakehand:
            assert lakehand.end() is None
        return self.groups()

    def groups(self):
        return json.loads((self.folder / "report.json").read_text())["groups"]

    def assert_nothing_lost(self):
        expected = Model(self.acknowledged).rows()
        assert_same_rows(lakehand_rows(self.place), expected)
        assert_same_rows(spark_rows(self.oracle, self.place), expected)
        assert_same_rows(delta_rs_rows(self.place), expected)
        assert Counter(marks_in(self.log)) == Counter(write.mark for write in self.acknowledged)


# Of both choices each is made once here, and with the other one in the soak.
@pytest.fixture(
    params=[
        "partitions",
        "whole-with-vectors",
        pytest.param("partitions-with-vectors", marks=pytest.mark.soak),
        pytest.param("whole", marks=pytest.mark.soak),
    ]
)
def contest(request, oracle, tmp_path):
    shape = SHAPES[request.param]
    create_table(oracle, tmp_path / "table", **shape)
    with contextlib.ExitStack() as stack:
        # delta-rs writes as if deletion vectors were not there.
        can_write = not shape["vectors"]
        engine = stack.enter_context(DeltaRsEngine(tmp_path / "table")) if can_write else None
        started = Contest(oracle, tmp_path, engine, partitioned=shape["partitioned"])
        for block in range(6):
            started.write((started.spark, started.other)[block % 2], "append", block, value=block)
        yield started


@pytest.mark.one_in(2)
def test_concurrent_write_and_compact(contest):
    """Conflicts on both sides, at points that barriers choose: 46 commits over the four shapes."""
    lose_a_group(contest, COMPACT, deleted=0, appended=6)
    if contest.partitioned:
        lose_a_group(contest, CLUSTER_WRITTEN, deleted=1, appended=9)
    assert merge_across_a_commit(contest).lost_to_lakehand == 1
    if contest.delta_rs:
        assert update_across_a_commit(contest).lost == 1

    contest.assert_nothing_lost()
    assert len(contest.acknowledged) >= 9 + 3 * bool(contest.delta_rs)


def lose_a_group(contest, rewrite, *, deleted, appended):
    """Let a writer delete rows of one group after it was rewritten, and append beside it."""
    with contest.rewrite(BEFORE_COMMIT, rewrite=rewrite) as lakehand:
        lakehand.wait_until_stopped()
        contest.write(contest.other, "delete", deleted, part="p0")
        contest.write(contest.spark, "append", appended, value=appended)
        assert lakehand.end() is None
    assert contest.groups()["dropped"] == 1
    assert contest.groups()["committed"] >= 1


def merge_across_a_commit(contest):
    """Let delta-spark read, lakehand commit, and delta-spark find out when it wants to commit."""
    held = Writer(
        engine=SparkEngine(contest.oracle, contest.place, gate=contest.gate), log=contest.log
    )
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(contest.write, held, "merge", 3, value=33)
        wait_for(contest.gate.with_suffix(".reached"))
        try:
            assert contest.compact()["committed"] >= 1
        finally:
            contest.gate.with_suffix(".open").touch()
        return merging.result(timeout=120)


def update_across_a_commit(contest):
    """Let delta-rs read, lakehand commit, and delta-rs find out when it wants to commit."""
    for block in (7, 8):
        contest.write(contest.other, "append", block, value=block)
    contest.delta_rs.read()
    assert contest.compact()["committed"] >= 1
    return contest.write(contest.other, "update", 7, value=77)
