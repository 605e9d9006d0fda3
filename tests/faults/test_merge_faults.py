"""Merges that are killed, or that race for the same rows: old or new, and no update is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CorruptFileError
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.damage import rewrite_commit
from support.merges import SOURCE, TARGET, in_order, in_table, make_target

VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}
BEFORE = (
    Step.SINK_STAGED,
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.ROWS_ARRIVED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
)
AFTER = (Step.COMMIT_PUT, Step.RUN_COMMITTED, Step.RUN_SETTLED, Step.RUN_CLEANED)


def row(id_, n=0):
    return {"id": id_, "part": "a", "n": n, "note": None}


FILES = [row(1), row(2)], [row(3), row(4, 4)]
OLD = in_order([one for rows in FILES for one in rows])
NEW = in_order([row(1, 1), row(2), row(4, 4), row(9, 9)])


def count_up(path):
    """Change each of the rows once, however often this is called."""
    given = [{**row(1, 1), "kind": "u"}, {**row(3), "kind": "d"}, {**row(9, 9), "kind": "i"}]
    table = lakehand.open_table(path, engine="local", takeover_after="0s")
    merge = table.merge(
        pa.Table.from_pylist(given, SOURCE), on="t.id = s.id", writer_id="w", epoch=1
    )
    merge = merge.when_matched_delete(condition="s.kind = 'd'")
    merge = merge.when_matched_update({"n": "t.n + s.n"})
    merge.when_not_matched_insert_all().execute()


@pytest.mark.one_in(3)
@kill_at(*BEFORE, *AFTER)
def test_a_killed_merge_leaves_old_or_new_and_the_next_one_ends_it(tmp_path, step):
    make_target(tmp_path / "t", FILES, **VECTORS, **FEED)
    assert_ended_by_the_next(tmp_path / "t", step)


@kill_at(Step.TASK_WRITTEN, Step.ROWS_ARRIVED)
def test_so_does_one_that_rewrites_files(tmp_path, step):
    make_target(tmp_path / "t", FILES)
    assert_ended_by_the_next(tmp_path / "t", step)


def assert_ended_by_the_next(path, step):
    run_and_kill(step, count_up, str(path))

    assert in_table(path) == (NEW if step in AFTER else OLD)
    count_up(path)
    count_up(path)
    assert in_table(path) == NEW
    assert lakehand.open_table(path).transactions() == {"w": 1}


#: A writer that says it is ready, waits for a word, and counts up; in a process of its own.
WRITER = """
import sys
import lakehand, pyarrow as pa
table = lakehand.open_table(sys.argv[1], engine="local")
ids = pa.table({"id": [1, 2, 3, 4, 5]})
print("ready", flush=True)
sys.stdin.readline()
for _ in range(2):
    merge = table.merge(ids, on=["id"]).when_matched_update({"n": "t.n + 1"})
    merge.when_not_matched_insert({"id": "s.id", "n": "1"}).execute()
"""


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
@pytest.mark.one_in(2)
def test_no_update_of_concurrent_merges_is_lost(tmp_path, properties):
    make_target(tmp_path / "t", [[row(1), row(2)], [row(3), row(4)]], **properties)
    writers = [start_writer(tmp_path / "t") for _ in range(3)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=250)

    assert [writer.returncode for writer in writers] == [0, 0, 0]
    found = lakehand.open_table(tmp_path / "t").to_arrow().to_pylist()
    assert sorted((one["id"], one["n"]) for one in found) == [(n, 6) for n in range(1, 6)]


def start_writer(path):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def merge_one(table):
    rows = pa.Table.from_pylist([{**row(1, 1), "kind": "u"}], SOURCE)
    table.merge(rows, on="t.id = s.id").when_matched_update({"n": "s.n"}).execute()


def delete_others(table):
    rows = pa.Table.from_pylist([{**row(1, 1), "kind": "u"}], SOURCE)
    table.merge(rows, on="t.id = s.id").when_not_matched_by_source_delete().execute()


def upsert_one(table):
    table.upsert(pa.Table.from_pylist([row(1, 1)], TARGET), key=["id"])


@pytest.mark.parametrize("change", [merge_one, delete_others, upsert_one])
@pytest.mark.parametrize("properties", [VECTORS, {}], ids=["vectors", "copies"])
def test_a_file_with_other_rows_than_the_log_says_stops_it(tmp_path, change, properties):
    """A reader that left out rows of a file would have it rewritten without them."""

    def say_that_there_are_more(line):
        if "add" in line:
            counted = {**json.loads(line["add"]["stats"]), "numRecords": 3}
            line["add"]["stats"] = json.dumps(counted)

    make_target(tmp_path / "t", FILES, **properties)
    rewrite_commit(tmp_path / "t", 1, say_that_there_are_more)

    with pytest.raises(CorruptFileError, match="2 visible rows, and 3 by the table"):
        change(lakehand.open_table(tmp_path / "t", engine="local"))

    assert lakehand.open_table(tmp_path / "t").snapshot().version == 2
