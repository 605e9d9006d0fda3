"""One file under two spellings of its path: its rows are read, rewritten and removed once."""

from __future__ import annotations

import pytest

from lakehand import open_table
from support.damage import actions, data_file, delete_by_vectors, ids_of, make_whole_table, read_ids
from support.deduplications import deduplicate_inline, delete_inline
from support.forced_compactions import compact_here
from support.small_tables import commit_by_hand

ALL = ids_of(0, 1, 2, 3, 4)
SPELLINGS = ["{}", "file://{}", "file:{}", "file://localhost{}"]


@pytest.fixture
def path(tmp_path):
    return make_whole_table(tmp_path / "table")


def add_again(path, version=4, spelling="{}"):
    """Add the file of a version once more, by its absolute path."""
    [live] = [line["add"] for line in actions(path, version) if "add" in line]
    commit_by_hand(path, {"add": {**live, "path": spelling.format(data_file(path, version))}})
    return path


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_its_rows_are_read_once(path, spelling):
    table = open_table(add_again(path, spelling=spelling))
    assert read_ids(path) == ALL
    assert (table.inspect().row_count, table.inspect().file_count) == (150, 5)


@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("method", ["copy", "recode"])
def test_a_rewrite_leaves_its_rows_once(path, method, checkpointed):
    add_again(add_again(path), version=0, spelling="file:{}")
    if checkpointed:
        open_table(path).checkpoint()
    assert compact_here(path, method=method).outcome == "committed"
    assert read_ids(path) == ALL
    assert open_table(path).inspect().file_count == 1


@pytest.mark.parametrize("vectors", [True, False])
def test_rows_that_are_deleted_do_not_come_back_under_the_other_name(path, vectors):
    if vectors:
        delete_by_vectors(path)
    add_again(path)
    delete_inline(path, "id = 121")
    assert read_ids(path) == [i for i in ALL if i != 121]


def test_they_are_no_duplicates(path):
    assert deduplicate_inline(add_again(path), key=["id"]).duplicates_removed == 0


def test_it_is_found_and_repaired_without_loss(path):
    add_again(path)
    [found] = open_table(path).verify(proofs=False).findings
    assert (found.name, found.path) == ("duplicate_entry", data_file(path, 4).name)
    done = open_table(path).repair()
    assert [repair.name for repair in done.repairs] == ["remove_duplicate_entries"]
    assert (done.remaining, read_ids(path)) == ((), ALL)
    [remove] = [line["remove"] for line in actions(path, 6) if "remove" in line]
    assert remove["path"] == str(data_file(path, 4))
