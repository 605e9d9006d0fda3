"""Compaction of Lance tables: the same rows, and the same answers to every search."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitConflictError
from lakehand.observe.steps import Step, listen
from support.lance_tables import (
    ROWS,
    add_indices,
    compact_in_halves,
    compact_lance,
    fragment_count,
    make_lance,
    rows_of,
    rows_of_every_kind,
    searches,
    some_rows,
    unknown_files,
)


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_rows_and_searches_are_the_same_after_compaction(tmp_path, stable_row_ids):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    add_indices(path)
    lance.dataset(path).delete("id % 10 = 3")
    rows, found = rows_of(path), searches(path)

    report = compact_lance(path)

    assert (report.outcome, report.files_before, report.files_after) == ("committed", 8, 1)
    assert (report.proof.kind, report.proof.rows) == ("digest", rows.num_rows)
    assert fragment_count(path) == 1
    assert rows_of(path) == rows
    assert searches(path) == found


def test_ids_of_rows_survive_compaction_where_they_are_stable(tmp_path):
    path = make_lance(tmp_path / "t", stable_row_ids=True)
    lance.dataset(path).delete("id < 5")
    before = lance.dataset(path).to_table(columns=["id"], with_row_id=True).sort_by("id")

    compact_lance(path)

    after = lance.dataset(path).to_table(columns=["id"], with_row_id=True).sort_by("id")
    assert after == before


def test_added_and_dropped_columns_survive_compaction(tmp_path):
    path = make_lance(tmp_path / "t")
    lance.dataset(path).add_columns({"twice": "id * 2"})
    lance.dataset(path).drop_columns(["word"])
    lance.dataset(path).update({"twice": "-1"}, where="id = 9")
    rows = rows_of(path)

    compact_lance(path)

    assert rows_of(path) == rows
    assert rows_of(path).column_names == ["id", "vector", "twice"]
    assert rows_of(path)["twice"].to_pylist()[9:11] == [-1, 20]


def test_rows_stay_in_the_order_of_the_table(tmp_path):
    path = make_lance(tmp_path / "t")
    ids = lance.dataset(path).to_table(columns=["id"])

    compact_lance(path)

    assert lance.dataset(path).to_table(columns=["id"]) == ids


@pytest.mark.parametrize("is_indexed", [False, True], ids=["by lakehand", "by Lance"])
def test_new_fragments_survive_a_power_cut_before_their_result_counts(
    tmp_path, monkeypatch, is_indexed
):
    path = make_lance(tmp_path / "t")
    if is_indexed:
        add_indices(path)
    synced, known, sync = set(), [], os.fsync

    def note(descriptor):
        # As slow as a disk that has other work: who does not wait for it does not see it.
        time.sleep(0.2)
        sync(descriptor)
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    listen(lambda step: known.append(set(synced)) if step is Step.TASK_PROVED else None)
    try:
        compact_lance(path)
    finally:
        listen(None)

    [fragment] = lance.dataset(path).get_fragments()
    assert {*(Path(file.path).name for file in fragment.data_files()), "data"} <= known[0]


@pytest.mark.parametrize("is_indexed", [False, True], ids=["by lakehand", "by Lance"])
def test_fragments_that_the_disk_does_not_take_are_not_committed(tmp_path, monkeypatch, is_indexed):
    path = make_lance(tmp_path / "t")
    if is_indexed:
        add_indices(path)
    version, sync = lance.dataset(path).version, os.fsync

    def fail(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".lance":
            raise OSError(errno.EIO, "the disk is broken")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        compact_lance(path)
    assert lance.dataset(path).version == version


def test_a_second_compaction_has_nothing_to_do(tmp_path):
    path = make_lance(tmp_path / "t")
    compact_lance(path)
    version = lance.dataset(path).version

    assert compact_lance(path).outcome == "nothing_to_do"
    assert lance.dataset(path).version == version


def test_files_end_at_the_target_size(tmp_path):
    path = make_lance(tmp_path / "t")

    report = compact_in_halves(path)

    assert (report.groups.planned, fragment_count(path)) == (2, 2)
    assert rows_of(path)["id"].to_pylist() == list(range(8 * ROWS))


def test_the_target_of_lance_is_its_own_and_the_call_wins(tmp_path):
    path = make_lance(tmp_path / "t", fragments=1)
    assert lakehand.open_table(path).inspect().target_file_bytes == 512_000_000
    table = lakehand.open_table(path, target_file_bytes=1_000_000)
    assert table.inspect().target_file_bytes == 1_000_000


def test_columns_of_every_kind_are_proved_and_survive(tmp_path):
    path, rows = str(tmp_path / "t"), rows_of_every_kind()
    for _ in range(4):
        lance.write_dataset(rows, path, mode="append" if (tmp_path / "t").exists() else "create")
    before = lance.dataset(path).to_table()

    report = compact_lance(path)

    after = lance.dataset(path).to_table()
    assert (report.proof.kind, fragment_count(path)) == ("digest", 1)
    assert (after.schema, after.to_pylist()) == (before.schema, before.to_pylist())


@pytest.fixture
def racing(tmp_path, monkeypatch):
    """Return a table, and a way to have something happen right before a compaction commits."""
    path = make_lance(tmp_path / "t")

    def before_commit(action):
        from lakehand.formats.lance import commit

        put, done = commit._put, []

        def racing_put(*args):
            if not done:
                done.append(action())
            return put(*args)

        monkeypatch.setattr(commit, "_put", racing_put)

    return path, before_commit


def test_rows_appended_meanwhile_stay_and_the_commit_lands(racing):
    path, before_commit = racing
    before_commit(lambda: lance.write_dataset(some_rows(9000, 5), path, mode="append"))

    report = compact_lance(path)

    assert (report.outcome, fragment_count(path)) == ("committed", 2)
    assert rows_of(path)["id"].to_pylist() == [*range(8 * ROWS), *range(9000, 9005)]


def test_a_group_whose_rows_were_deleted_meanwhile_is_dropped_and_the_others_land(racing):
    path, before_commit = racing
    before_commit(lambda: lance.dataset(path).delete("id = 3"))

    report = compact_in_halves(path)

    assert (report.groups.committed, report.groups.dropped) == (1, 1)
    assert rows_of(path)["id"].to_pylist() == [n for n in range(8 * ROWS) if n != 3]
    assert unknown_files(path) == set()


def test_files_of_a_lost_race_are_gone_at_once(racing):
    path, before_commit = racing
    before_commit(lambda: lance.dataset(path).delete("id = 3"))

    with pytest.raises(CommitConflictError):
        compact_lance(path)

    assert rows_of(path)["id"].to_pylist() == [n for n in range(8 * ROWS) if n != 3]
    assert unknown_files(path) == set()


def test_long_rows_are_read_a_few_at_a_time(tmp_path):
    """A batch has about a megabyte, whether rows are long by their type or by what they hold."""
    path = str(tmp_path / "t")
    for _ in range(2):
        rows = pa.table({"text": [os.urandom(50_000) for _ in range(200)]})
        lance.write_dataset(rows, path, mode="append")
    sizes = [batch.nbytes for batch in lakehand.open_table(path).to_batches()]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 2_000_000
