"""A process that dies while it commits leaves the old version or the new one, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import NotATableError
from lakehand.formats.delta.table import DeltaFormat, DeltaTable
from lakehand.model.work import Change, Replacement, StagedFile
from lakehand.observe.steps import Step
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.crash import kill_at, run_and_kill, run_to_end

SCHEMA = pa.schema([("id", pa.int64())])
STEPS = (Step.COMMIT_PREPARED, Step.COMMIT_PUT, Step.COMMIT_CONFIRMED)
TOKEN = "the-token-of-this-commit"


def write_file(store, path, ids) -> StagedFile:
    with store.open_writer(path) as sink:
        pq.write_table(pa.table({"id": ids}, schema=SCHEMA), sink)
        size = sink.tell()
    native = {"partitionValues": {}, "stats": f'{{"numRecords":{len(ids)}}}'}
    return StagedFile(path=path, bytes=size, rows=len(ids), native=native)


def append(table, path, ids, *, token) -> None:
    file = write_file(table.store, path, ids)
    base = table.snapshot().version
    change = Change(kind="append", base_version=base, operation="WRITE", adds=(file,))
    table.commit(change, token=token)


def new_table(place) -> DeltaTable:
    """Return a table of two files, at version 2."""
    table = DeltaFormat().create(open_store(place), SCHEMA)
    append(table, "one.parquet", [1, 2], token="first")
    append(table, "two.parquet", [3], token="second")
    return table


def rewrite(place: str) -> None:
    """Replace both files by one."""
    table = DeltaTable(open_store(place))
    snapshot = table.snapshot(version=2)
    inputs = table.data_files(snapshot, [0, 1])
    output = write_file(table.store, "both.parquet", [1, 2, 3])
    group = Replacement(group=0, removes=inputs, adds=(output,))
    change = Change(kind="rewrite", base_version=2, operation="OPTIMIZE", replacements=(group,))
    table.commit(change, token=TOKEN)


@kill_at(*STEPS)
def test_a_commit_that_is_killed_leaves_the_old_version_or_the_new(oracle, tmp_path, step):
    table = new_table(tmp_path)

    run_and_kill(step, rewrite, str(tmp_path))

    landed = step is not Step.COMMIT_PREPARED
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.file_count) == ((3, 1) if landed else (2, 2))
    assert table.find_commit(TOKEN, after=2) == (3 if landed else None)
    assert oracle.rows(tmp_path) == ['{"id":1}', '{"id":2}', '{"id":3}']


@kill_at(*STEPS)
def test_a_commit_that_was_killed_is_not_made_twice(tmp_path, step):
    table = new_table(tmp_path)
    run_and_kill(step, rewrite, str(tmp_path))
    append(table, "three.parquet", [4], token="other")

    run_to_end(rewrite, str(tmp_path))

    tokens = [entry.token for entry in table.history()]
    assert tokens.count(TOKEN) == 1
    assert sorted(table.snapshot().files["path"].to_pylist()) == ["both.parquet", "three.parquet"]


def create(place: str) -> None:
    DeltaFormat().create(open_store(place), SCHEMA)


@kill_at(Step.COMMIT_PUT, Step.COMMIT_CONFIRMED)
def test_a_table_whose_creation_is_killed_is_complete_once_it_is_put(tmp_path, step):
    run_and_kill(step, create, str(tmp_path))

    assert DeltaFormat().open(open_store(tmp_path)).snapshot().version == 0


@kill_at(Step.COMMIT_PREPARED)
def test_a_table_whose_creation_is_killed_before_does_not_exist(tmp_path, step):
    run_and_kill(step, create, str(tmp_path))

    with pytest.raises(NotATableError):
        DeltaFormat().open(open_store(tmp_path))
    create(str(tmp_path))


def lossy(place, *, kind=FaultKind.LOST_ANSWER) -> DeltaTable:
    """Return a table on a store that loses the answer to the first commit."""
    fault = Fault(kind=kind, operation="put_if_absent", key="*.json")
    return DeltaTable(FaultStore(open_store(place), [fault]))


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.FAIL_AFTER])
def test_a_put_that_lands_while_its_answer_is_lost_is_ours(tmp_path, kind):
    table = new_table(tmp_path)

    append(lossy(tmp_path, kind=kind), "three.parquet", [4], token=TOKEN)

    assert table.find_commit(TOKEN, after=0) == 3
    assert [entry.token for entry in table.history()].count(TOKEN) == 1


class Overtaken(FaultStore):
    """A store that loses our answer, and in which others commit before we can look."""

    def __init__(self, store, overtake):
        super().__init__(store, [Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent")])
        self._overtake = overtake

    def put_if_absent(self, key, data):
        try:
            super().put_if_absent(key, data)
        finally:
            self._overtake()


def test_a_lost_answer_is_recognised_although_others_commit_right_behind(tmp_path):
    table = new_table(tmp_path)

    def overtake():
        for number in range(3):
            append(table, f"other-{number}.parquet", [number], token=f"other-{number}")

    late = DeltaTable(Overtaken(open_store(tmp_path), overtake))
    append(late, "mine.parquet", [9], token=TOKEN)

    tokens = [entry.token for entry in table.history()]
    assert tokens[:4] == ["other-2", "other-1", "other-0", TOKEN]
