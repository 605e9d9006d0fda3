"""Rows that come into Lance tables and leave them: searches, ids and other writers unharmed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitConflictError, ProofError, RefusedError
from lakehand.formats.lance import row_commits
from lakehand.model.work import Change
from lakehand.storage import open_store
from support.formats import open_here, tasks_inline, vacuum_later
from support.lance_tables import (
    ROWS,
    add_indices,
    make_lance,
    rows_of,
    rows_of_every_kind,
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
    path = make_lance(tmp_path / "t", stable_row_ids=request.param)
    add_indices(path)
    lance.dataset(path).delete("id % 10 = 3")
    return path


def ids_of_rows(path):
    found = lance.dataset(path).to_table(columns=["id"], with_row_id=True)
    return dict(zip(*found.to_pydict().values(), strict=True))


def deleted_by_lance(path, where, tmp_path):
    """Return what searches find where Lance itself deletes the same rows."""
    import shutil

    copy = str(tmp_path / "judge")
    shutil.copytree(path, copy)
    lance.dataset(copy).delete(where)
    return searches(copy)


def test_searches_find_what_they_find_when_lance_deletes(path, tmp_path):
    expected = deleted_by_lance(path, "id < 100", tmp_path)
    report = open_here(path).delete(where="id < 100")
    assert (report.outcome, report.proof.kind) == ("committed", "digest")
    assert searches(path) == expected
    lance.dataset(path).validate()


def test_searches_are_the_same_after_duplicates_went(path):
    before, rows = searches(path), rows_of(path)
    open_here(path).append(rows.slice(0, 50))
    report = open_here(path).deduplicate(key=["id"], keep="first")
    assert report.duplicates_removed == 50
    assert (searches(path), rows_of(path)) == (before, rows)


def test_ids_of_rows_survive_the_deletion_of_others(path):
    before = ids_of_rows(path)
    open_here(path).delete(where="id % 2 = 1")
    assert ids_of_rows(path) == {id_: row for id_, row in before.items() if id_ % 2 == 0}


def test_appended_rows_are_found_by_searches_before_and_after_compaction(path):
    open_here(path).append(some_rows(7000, 5))
    open_here(path).append(some_rows(7005, 5), writer_id="w", epoch=1)
    found = searches(path)
    dataset = lance.dataset(path)
    assert dataset.to_table(filter="id = 7007").num_rows == 1
    assert len(set(ids_of_rows(path).values())) == dataset.count_rows()

    open_here(path).compact()

    assert searches(path) == found
    assert lance.dataset(path).to_table(filter="id = 7007").num_rows == 1


def test_numbers_of_fragments_are_never_used_twice(path):
    """An index still knows the number of a fragment that is gone."""
    lance.dataset(path).delete(f"id >= {7 * ROWS}")
    open_here(path).append(some_rows(7000, 5), writer_id="w", epoch=1)
    assert max(f.fragment_id for f in lance.dataset(path).get_fragments()) == 8
    assert lance.dataset(path).to_table(filter="id = 7003").num_rows == 1


def test_added_and_dropped_columns_survive_deletion_and_appends(path):
    lance.dataset(path).add_columns({"twice": "id * 2"})
    lance.dataset(path).drop_columns(["word"])
    table = open_here(path)
    table.delete(where="twice < 20")
    table.append(lance.dataset(path).to_table().slice(0, 3))
    found = rows_of(path)
    assert found.column_names == ["id", "vector", "twice"]
    assert found["twice"].to_pylist()[:4] == [20, 20, 22, 22]


def test_columns_of_every_kind_are_deduplicated_deleted_and_appended(tmp_path):
    path, rows = str(tmp_path / "t"), rows_of_every_kind()
    lance.write_dataset(rows, path)
    table = open_here(path)
    table.append(rows)
    assert table.deduplicate(exact=True).duplicates_removed == rows.num_rows
    found = lance.dataset(path).to_table()
    assert (found.schema, found.to_pylist()) == (rows.schema, rows.to_pylist())
    table.delete(where="flag IS NULL")
    assert lance.dataset(path).to_table().to_pylist() == [rows.to_pylist()[n] for n in (0, 2, 3)]


@pytest.mark.parametrize("name", ["half", "brief", "vector", "nested"])
def test_values_whose_bits_have_another_order_choose_no_row(tmp_path, name):
    rows = rows_of_every_kind()
    lance.write_dataset(rows.append_column("id", pa.array([1, 1, 2, 2])), str(tmp_path / "t"))
    for wish in ({"key": [name]}, {"key": ["id"], "keep": "latest", "order_by": name}):
        with pytest.raises(RefusedError, match=f"cannot be told apart by '{name}'"):
            open_here(str(tmp_path / "t")).deduplicate(**wish)


def test_blob_columns_are_not_written_by_lakehand(tmp_path):
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([pa.array([b"x"], pa.large_binary())], schema=pa.schema([field]))
    lance.write_dataset(rows, str(tmp_path / "t"))
    with pytest.raises(RefusedError, match="written by Lance alone"):
        open_here(str(tmp_path / "t")).append(rows)


def racing(monkeypatch, action):
    """Have something happen right before a commit reaches Lance."""
    put, done = row_commits._put, []

    def racing_put(*args):
        if not done:
            done.append(True)
            action()
        return put(*args)

    monkeypatch.setattr(row_commits, "_put", racing_put)


def test_an_epoch_that_another_process_commits_meanwhile_is_not_written_twice(path, monkeypatch):
    rows = some_rows(7000, 5)
    other = open_here(path)
    racing(monkeypatch, lambda: other.append(rows, writer_id="w", epoch=1))
    with pytest.raises(lakehand.LakehandError) as caught:
        open_here(path).append(rows, writer_id="w", epoch=1)
    assert caught.value.code == "WRITER_COLLISION"
    assert lance.dataset(path).to_table(filter="id >= 7000").num_rows == 5
    assert unknown_files(path) == set()


@pytest.mark.parametrize("marked", [{}, {"writer_id": "w", "epoch": 1}])
def test_rows_that_others_append_meanwhile_stay(path, monkeypatch, marked):
    racing(monkeypatch, lambda: lance.write_dataset(some_rows(8000, 3), path, mode="append"))
    open_here(path).append(some_rows(7000, 5), **marked)
    assert lance.dataset(path).to_table(filter="id >= 7000").num_rows == 8


def test_an_index_that_is_built_meanwhile_answers_after_a_deletion(path, monkeypatch):
    racing(monkeypatch, lambda: lance.dataset(path).create_scalar_index("id", "BTREE", name="new"))
    open_here(path).delete(where="id < 100")
    found = lance.dataset(path).to_table(filter="id IN (70, 200)")
    assert found["id"].to_pylist() == [200]


def test_a_compaction_that_comes_first_makes_a_deletion_look_again(path, monkeypatch):
    racing(monkeypatch, lance.dataset(path).optimize.compact_files)
    report = open_here(path).delete(where="id < 100")
    assert (report.outcome, report.retries) == ("committed", 1)
    assert rows_of(path)["id"].to_pylist() == [n for n in range(100, 8 * ROWS) if n % 10 != 3]


def test_deletion_files_of_a_lost_race_are_gone_at_once(path, monkeypatch):
    before = set(Path(path, "_deletions").iterdir())
    put, others = row_commits._put, iter([*range(4, 13), 14, 15, 16])

    def always_lost(base, transaction):
        lance.dataset(path).delete(f"id = {next(others)}")
        return put(base, transaction)

    monkeypatch.setattr(row_commits, "_put", always_lost)
    with pytest.raises(CommitConflictError):
        open_here(path).delete(where="id < 100", commit_attempts=3)
    dataset = lance.dataset(path)
    known = {row["path"] for row in dataset.tracked_files().read_all().to_pylist()}
    kept = {f"_deletions/{file.name}" for file in set(Path(path, "_deletions").iterdir()) - before}
    assert kept <= known


def test_marks_of_writers_outlive_their_versions(path):
    table = open_here(path)
    table.append(some_rows(7000, 1), writer_id="w", epoch=4)
    table.append(some_rows(7001, 1))
    table.compact()
    vacuum_later(path)
    lance.dataset(path).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert open_here(path).transactions() == {"w": 4}
    assert table.append(some_rows(7000, 1), writer_id="w", epoch=4).outcome == "nothing_to_do"


def test_marks_that_nobody_noted_are_kept_by_vacuum(path):
    open_here(path).append(some_rows(7000, 1), writer_id="w", epoch=4)
    Path(path, "_lakehand/marks.json").unlink()
    open_here(path).compact()
    vacuum_later(path)
    assert open_here(path).transactions() == {"w": 4}


def test_a_wrong_deletion_file_is_not_committed(path, monkeypatch):
    from lakehand.formats.lance import deletions

    monkeypatch.setattr(deletions, "BitMap", lambda *_: __import__("pyroaring").BitMap([0, 1]))
    rows = rows_of(path)
    with pytest.raises((ProofError, lakehand.LakehandError)):
        open_here(path).delete(where="id BETWEEN 20 AND 25")
    assert rows_of(path) == rows


def test_changes_that_lance_has_no_commit_for_are_refused(path):
    table = lakehand.formats.lance.table.LanceTable(open_store(path))
    change = Change(kind="statistics", base_version=1, operation="statistics")
    with pytest.raises(RefusedError, match="does not statistics"):
        table.commit(change, token="x")


def test_rows_leave_and_come_where_two_decoders_are_asked_for(path):
    """Nothing that was read is written again, so the one decoder that Lance has is enough."""
    table, before = lakehand.open_table(path), rows_of(path).num_rows
    kept = rows_of(path).slice(5, 1)

    table.delete(where="id = 7", prove="independent")
    table.upsert(kept, key=["id"], prove="independent")
    table.append(kept)
    table.deduplicate(key=["id"], prove="independent")

    assert rows_of(path).num_rows == before - 1
