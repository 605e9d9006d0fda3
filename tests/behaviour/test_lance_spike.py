"""`formats/base.py` is tried with a second format before it is frozen."""

from __future__ import annotations

import pickle

import lance
import pyarrow as pa
import pytest

from lakehand.errors import CommitConflictError
from lakehand.model.work import Change, Group, Replacement
from lakehand.storage import open_store
from support.lance_spike import LanceFormat


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "points")
    for start in range(0, 60, 10):
        rows = pa.table({"a": range(start, start + 10)})
        lance.write_dataset(rows, path, mode="append" if start else "create")
    lance.dataset(path).delete("a = 13")
    return LanceFormat().open(open_store(path))


def _run(table, snapshot, group):
    """Run a group as a task would: from values that went through JSON and pickle."""
    worker = pickle.loads(pickle.dumps(table.worker(snapshot)))
    outputs = worker.run_native(Group.from_json(group.to_json()), stem="unused")
    before = worker.read(group.inputs).read_all().sort_by("a")
    after = worker.read_staged(outputs).read_all().sort_by("a")
    assert after == before
    return Replacement(group=group.id, removes=group.inputs, adds=outputs)


def _rewrite(snapshot, replacements):
    return Change(
        kind="rewrite",
        base_version=snapshot.version,
        operation="OPTIMIZE",
        replacements=tuple(replacements),
    )


def test_lance_plans_runs_proves_and_commits_through_the_protocol(table):
    snapshot = table.snapshot()
    groups = table.native_groups(snapshot, {"target_rows_per_fragment": 100})
    replacements = [_run(table, snapshot, group) for group in groups]

    receipt = table.commit(_rewrite(snapshot, replacements), token="t")

    after = table.snapshot()
    assert (receipt.version, after.file_count, snapshot.file_count) == (after.version, 1, 6)
    rows = lance.dataset(table.store.url).to_table()["a"].to_pylist()
    assert sorted(rows) == [a for a in range(60) if a != 13]


def test_lance_commit_that_lost_is_a_typed_conflict(table):
    snapshot = table.snapshot()
    (group,) = table.native_groups(snapshot, {"target_rows_per_fragment": 100})
    replacement = _run(table, snapshot, group)
    lance.dataset(table.store.url).delete("a = 20")

    with pytest.raises(CommitConflictError):
        table.commit(_rewrite(snapshot, [replacement]), token="t")

    assert lance.dataset(table.store.url).count_rows() == 58
