"""Indices of Lance tables: searches find the same rows before and after each operation."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lakehand.errors import CommitConflictError
from lakehand.formats.lance import commit, row_commits
from support.formats import open_here, tasks_inline, vacuum_later
from support.lance_tables import (
    add_indices,
    fragment_count,
    make_lance,
    rows_of,
    searches,
    some_rows,
    unknown_files,
)


@pytest.fixture(autouse=True)
def _inline():
    with tasks_inline():
        yield


@pytest.fixture(params=[False, True], ids=["plain ids", "stable ids"])
def path(request, tmp_path):
    """A table with deleted rows, a column more and one less, and rows that no index knows."""
    path = make_lance(tmp_path / "t", stable_row_ids=request.param)
    lance.dataset(path).add_columns({"twice": "id * 2", "gone": "id"})
    lance.dataset(path).drop_columns(["gone"])
    add_indices(path)
    lance.dataset(path).delete("id % 10 = 3")
    for start in (7000, 7005):
        lance.write_dataset(rows_to_append(start), path, mode="append")
    return path


def rows_to_append(start, count=5):
    rows = some_rows(start, count)
    twice = pa.array([2 * number for number in rows["id"].to_pylist()], pa.int64())
    return rows.append_column("twice", twice)


def unknown_to_indices(path):
    """Return how many rows each index does not know."""
    dataset = lance.dataset(path)
    names = {index.name for index in dataset.describe_indices()}
    return {name: dataset.stats.index_stats(name)["num_unindexed_rows"] for name in names}


def deduplicate(path):
    open_here(path).append(rows_of(path).slice(0, 50))
    assert open_here(path).deduplicate(key=["id"], keep="first").duplicates_removed == 50


def delete_and_restore(path):
    version = open_here(path).snapshot().version
    open_here(path).delete(where="id < 100")
    assert open_here(path).restore(version=version).outcome == "committed"


def compact_and_vacuum(path):
    open_here(path).compact()
    assert vacuum_later(path).files_deleted > 0


def only_look(path):
    table = open_here(path)
    assert table.verify().outcome == "sound"
    assert table.plan().groups
    table.pin("looked")
    table.unpin("looked")
    table.health()
    assert table.repair().outcome == "nothing_to_do"


OPERATIONS = {
    "compact": lambda path: open_here(path).compact(),
    "compact and update indices": lambda path: open_here(path).compact(update_indices=True),
    "purge": lambda path: open_here(path).purge(),
    "deduplicate": deduplicate,
    "restore": delete_and_restore,
    "vacuum": compact_and_vacuum,
    "look": only_look,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_and_searches_are_the_same_after_each_operation(path, operation):
    rows, found = rows_of(path), searches(path)
    OPERATIONS[operation](path)
    assert rows_of(path) == rows
    assert searches(path) == found
    lance.dataset(path).validate()


def test_indices_learn_of_rows_that_came_after_them(path):
    assert set(unknown_to_indices(path).values()) == {10}
    rows = rows_of(path)

    report = open_here(path).compact(update_indices=True)

    assert report.indices_updated == ("id_idx", "vector_idx", "word_idx")
    assert set(unknown_to_indices(path).values()) == {0}
    # Fragments that the same indices know can be merged.
    assert open_here(path).compact(min_files=2).outcome == "committed"
    assert (fragment_count(path), rows_of(path)) == (1, rows)
    assert open_here(path).compact(update_indices=True).indices_updated == ()


def test_indices_are_left_alone_unless_that_is_asked_for(path):
    assert open_here(path).compact().indices_updated == ()
    assert set(unknown_to_indices(path).values()) == {10}


def before_commit(monkeypatch, module, action):
    """Have something happen right before a commit reaches Lance for the first time."""
    put, done = module._put, []

    def racing_put(*args):
        if not done:
            done.append(True)
            action()
        return put(*args)

    monkeypatch.setattr(module, "_put", racing_put)


@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["plain ids", "stable ids"])
def test_indices_that_are_built_while_fragments_are_merged_come_along(
    tmp_path, monkeypatch, stable_row_ids
):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    lance.dataset(path).create_scalar_index("id", "BTREE", name="first")
    lance.dataset(path).delete("id % 10 = 3")
    rows = rows_of(path)
    found = []

    def build():
        add_indices(path)
        found.append(searches(path))

    before_commit(monkeypatch, commit, build)
    report = open_here(path).compact()

    assert (report.outcome, fragment_count(path)) == ("committed", 1)
    assert rows_of(path) == rows
    assert [searches(path)] == found
    assert set(unknown_to_indices(path).values()) == {0}
    assert open_here(path).verify(version=report.version).proofs[0].outcome == "equal"


def test_the_first_index_of_a_table_wins_if_it_is_built_while_fragments_are_merged(
    tmp_path, monkeypatch
):
    path = make_lance(tmp_path / "t")
    before_commit(monkeypatch, commit, lambda: add_indices(path))
    rows = rows_of(path)
    with pytest.raises(CommitConflictError):
        open_here(path).compact()
    found = searches(path)
    assert (rows_of(path), unknown_files(path)) == (rows, set())
    assert open_here(path).compact().outcome == "committed"
    assert (rows_of(path), searches(path)) == (rows, found)


def test_indices_that_are_updated_while_fragments_are_merged_win(path, monkeypatch):
    found = searches(path)
    update = lance.dataset(path).optimize.optimize_indices
    before_commit(monkeypatch, commit, update)
    try:
        open_here(path).compact()
    except CommitConflictError:
        open_here(path).compact()
    assert searches(path) == found
    assert set(unknown_to_indices(path).values()) == {0}
    assert unknown_files(path) == set()


def test_an_index_that_is_built_while_rows_are_put_in_order_wins(tmp_path, monkeypatch):
    path = make_lance(tmp_path / "t")
    before_commit(monkeypatch, commit, lambda: add_indices(path))
    rows = rows_of(path)
    with pytest.raises(CommitConflictError):
        open_here(path).cluster(by=["word"])
    assert (rows_of(path), unknown_files(path)) == (rows, set())
    assert lance.dataset(path).to_table(filter="id = 70")["id"].to_pylist() == [70]


@pytest.mark.parametrize("verb", ["append", "overwrite", "deduplicate"])
def test_indices_that_are_built_while_rows_come_or_go_answer_rightly(path, monkeypatch, verb):
    def build():
        lance.dataset(path).create_scalar_index("id", "BTREE", name="new")

    before_commit(monkeypatch, row_commits, build)
    table = open_here(path)
    if verb == "deduplicate":
        lance.write_dataset(rows_of(path).slice(0, 50), path, mode="append")
        table.deduplicate(key=["id"], keep="first")
    else:
        getattr(table, verb)(rows_to_append(9000))
    ids = rows_of(path)["id"].to_pylist()
    for number in (0, 70, 7002, 9002):
        answer = lance.dataset(path).to_table(filter=f"id = {number}")["id"].to_pylist()
        assert answer == [one for one in ids if one == number]
    assert len(ids) == len(set(ids))
