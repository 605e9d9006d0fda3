"""Upserts that are killed, or that race for the same keys: old or new, and one row a key."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitConflictError
from lakehand.observe.steps import Step
from lakehand.rows import row_changes
from lakehand.sink import TableSink
from support.crash import kill_at, run_and_kill
from support.deduplications import PROPERTIES, contents, in_order, rows
from support.unharmed import files_in_ledgers
from support.upserts import changelog, make, upsert

BATCHES = [(1, 0, 0), (2, 0, 0), (3, 0, 0)], [(4, 0, 0), (5, 0, 0)]
OLD = in_order(row for batch in BATCHES for row in batch)
NEW = in_order([(1, 0, 0), (2, 1, 1), (3, 0, 0), (5, 0, 0), (9, 1, 1)])
BEFORE = (
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.ROWS_ARRIVED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
)
AFTER = (
    Step.COMMIT_PUT,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
    Step.RUN_CLEANED,
)


def table(path, kind):
    return make(path, *BATCHES, **PROPERTIES[kind], **{"delta.enableChangeDataFeed": "true"})


def bring_in(path):
    upsert(path, changelog(("U", (2, 1, 1)), ("D", (4, None, None)), ("I", (9, 1, 1))))


@kill_at(*BEFORE, *AFTER)
def test_a_killed_upsert_leaves_old_or_new_and_the_next_one_ends_it(tmp_path, step):
    assert_ended_by_the_next(table(tmp_path / "t", "vectors"), step)


@kill_at(Step.TASK_WRITTEN, Step.ROWS_ARRIVED)
def test_so_does_one_that_writes_files_anew(tmp_path, step):
    assert_ended_by_the_next(table(tmp_path / "t", "copies"), step)


def assert_ended_by_the_next(path, step):
    run_and_kill(step, bring_in, str(path))

    assert contents(path) == (NEW if step in AFTER else OLD)
    bring_in(path)
    assert contents(path) == NEW
    assert orphans(path) == set()


def write_epochs(place):
    """Bring three epochs in, those that are there or not; the last change of a key counts."""
    options = {"write.mode": "upsert", "merge.key.columns": "id"}
    with TableSink(place, writer_id="w", **options) as sink:
        for epoch in (1, 2, 3):
            sink.begin_epoch(epoch)
            words = ["U", "U", "D", "I"]
            ids = [1, epoch, 10 + epoch - 1, 10 + epoch]
            columns = {"id": ids, "value": [epoch] * 4, "_op": words}
            sink.write(pa.record_batch(columns))
            sink.commit_epoch()


@kill_at(Step.SINK_STAGED, Step.ROWS_ARRIVED, Step.COMMIT_PUT, Step.SINK_COMMITTED)
def test_a_killed_writer_of_changes_goes_on_where_it_stopped(tmp_path, step):
    run_and_kill(step, write_epochs, str(tmp_path), occurrence=2)

    write_epochs(str(tmp_path))

    assert contents(tmp_path) == [(1, 3), (13, 3), (2, 2), (3, 3)]
    assert lakehand.open_table(tmp_path).transactions() == {"w": 3}


def orphans(path):
    """Return files with rows that neither a version nor a ledger names."""
    handle = lakehand.open_table(path)._handle
    known = files_in_ledgers(path)
    for version in range(handle.snapshot().version + 1):
        known |= set(handle.snapshot(version=version).files["path"].to_pylist())
    found = {file.relative_to(path).as_posix() for file in path.glob("*.parquet")}
    return found - known


#: A writer that says it is ready, waits for a word, and upserts; in a process of its own.
WRITER = """
import sys
import lakehand, pyarrow as pa
path, writer = sys.argv[1], int(sys.argv[2])
table = lakehand.open_table(path, engine="local")
keys = list(range(20))
data = pa.table({"id": keys, "at": [writer] * 20, "value": [writer] * 20})
print("ready", flush=True)
sys.stdin.readline()
table.upsert(data, key=["id"])
"""


@pytest.mark.parametrize("kind", list(PROPERTIES))
def test_concurrent_inserts_of_the_same_keys_leave_one_row_a_key(tmp_path, kind):
    path = make(tmp_path / "t", [(100, 0, 0)], **PROPERTIES[kind])
    writers = [start_writer(path, number) for number in range(3)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"

    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=200)

    found = contents(path)
    assert Counter(row[0] for row in found) == Counter([*range(20), 100])
    # All rows are of the one that came last: nobody's were mixed with another's.
    assert len({row[1] for row in found if row[0] < 20}) == 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]


def start_writer(path, number):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.mark.parametrize("kind", list(PROPERTIES))
def test_a_writer_that_always_comes_first_stops_the_upsert_and_nothing_is_mixed(
    tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(row_changes, "_TRIES", 3)
    path = make(tmp_path / "t", [(1, 0, 0)], **PROPERTIES[kind])
    other = lakehand.open_table(path, engine="local")
    came = iter(range(1000, 2000))

    def append(progress):
        if progress.phase == "commit":
            other.append(rows((next(came), 0, 0)))

    with pytest.raises(CommitConflictError):
        upsert(path, [(1, 1, 1), (2, 1, 1)], on_progress=append, commit_attempts=3)

    found = contents(path)
    assert next(came) == 1003
    assert (1, 0, 0) in found
    assert not {2} & {row[0] for row in found}
    assert orphans(path) == set()
