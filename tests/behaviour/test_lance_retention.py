"""Vacuum, pins, restore and purge of Lance tables."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pytest

import lakehand
from lakehand.cli.main import run as run_command
from lakehand.errors import CommitConflictError, ObjectNotFoundError, RefusedError, ValidationError
from lakehand.formats.lance.table import LanceTable
from lakehand.observe.clock import ManualClock
from lakehand.observe.steps import Step, listen
from lakehand.retention import candidates
from lakehand.retention.vacuum import vacuum
from lakehand.runs import Run
from lakehand.runs.leftovers import note_written
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline
from support.lance_tables import (
    ROWS,
    add_indices,
    compact_lance,
    data_sizes,
    make_lance,
    rows_of,
    searches,
    some_rows,
    unknown_files,
)


@pytest.fixture
def path(tmp_path):
    path = make_lance(tmp_path / "t")
    add_indices(path)
    lance.dataset(path).delete("id % 10 = 3")
    return path


def vacuum_later(path, *, days=30, dry_run=False, **settings):
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    chosen = Settings({"grace": "0", **settings}, environment={})
    return vacuum(LanceTable(open_store(path)), settings=chosen, dry_run=dry_run, clock=clock)


def stored(path):
    root = Path(path)
    files = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    return {file for file in files if not file.startswith(("_lakehand/", "_refs/"))}


def needed_by(path, *versions):
    tracked = lance.dataset(path).tracked_files().read_all().to_pylist()
    return {row["path"] for row in tracked if row["version"] in versions}


def test_vacuum_leaves_exactly_what_the_newest_version_needs(path):
    compact_lance(path)
    rows, found = rows_of(path), searches(path)
    newest = lance.dataset(path).version
    needed = needed_by(path, newest)

    report = vacuum_later(path)

    assert (report.outcome, report.oldest_version) == ("committed", newest)
    assert {name for name in stored(path) if "hint" not in name} == needed
    assert [entry["version"] for entry in lance.dataset(path).versions()] == [newest]
    assert (rows_of(path), searches(path)) == (rows, found)
    lance.dataset(path).validate()


def test_a_dry_run_lists_what_would_go_and_deletes_nothing(path):
    compact_lance(path)
    before = stored(path)

    listed = vacuum_later(path, dry_run=True)

    assert stored(path) == before
    vacuum_later(path)
    assert before - stored(path) == set(listed.files_to_delete)
    assert len(listed.files_to_delete) == listed.files_deleted > 0


def test_what_is_set_aside_stays_readable_until_its_grace_is_over(path):
    compact_lance(path)

    report = vacuum_later(path, grace="24h")

    assert (report.files_deleted, report.files_quarantined > 0) == (0, True)
    assert lance.dataset(path, version=2).count_rows() == 2 * ROWS


def test_young_files_of_writers_that_have_not_committed_stay(path):
    orphan = lance.fragment.LanceFragment.create(path, some_rows(5000))
    (name,) = (f"data/{file.path}" for file in orphan.files)

    assert vacuum_later(path, days=0).files_deleted == 0
    vacuum_later(path)

    assert unknown_files(path) == set()
    assert not (Path(path) / name).exists()


@pytest.mark.parametrize("is_noted", [True, False])
def test_old_files_stay_as_long_as_a_living_run_has_noted_them(path, is_noted):
    run = Run.start(open_store(path), {})
    stem = run.reserve(0, directory="data")
    orphan = lance.fragment.LanceFragment.create(path, some_rows(5000))
    file = Path(path) / "data" / orphan.files[0].path
    os.utime(file, (0, 0))
    if is_noted:
        note_written(run, stem, [f"data/{file.name}"])

    report = vacuum_later(path, days=0)

    assert (file.exists(), report.files_deleted) == (is_noted, int(not is_noted))


def test_a_tag_keeps_its_version_and_is_named_as_what_holds_bytes_back(path):
    lance.dataset(path).tags.create("golden", 3)
    compact_lance(path)

    report = vacuum_later(path)

    assert [(item.name, item.kind, item.version) for item in report.holders] == [
        ("golden", "tag", 3)
    ]
    assert report.kept.pinned > 0
    assert lance.dataset(path, version="golden").count_rows() == 3 * ROWS


@pytest.mark.parametrize("batches", [0, 2])
def test_a_tag_that_is_made_while_files_go_is_heard(path, monkeypatch, batches):
    """Two go at a time, the manifests of the newest versions first."""
    monkeypatch.setattr(candidates, "FILES_AT_A_TIME", 2)
    before = lance.dataset(path)
    for number in range(5):
        lance.write_dataset(some_rows(9000 + number, 1), path, mode="append")
    compact_lance(path)
    rows, needed, seen = before.to_table(), needed_by(path, before.version), []
    assert any(key.startswith("_deletions/") for key in needed)

    def tag(step):
        if step is (Step.VACUUM_DELETING if batches else Step.VACUUM_ANNOUNCED):
            seen.append(step)
            if len(seen) == max(1, batches):
                lance.dataset(path).tags.create("late", before.version)

    listen(tag)
    try:
        report = vacuum_later(path)
    finally:
        listen(None)

    assert report.files_deleted > 2 * batches
    assert needed <= stored(path)
    assert lance.dataset(path, version="late").to_table() == rows


@pytest.mark.parametrize("files_at_a_time", [2, 1000])
def test_every_version_that_can_be_opened_has_all_of_its_files_while_others_go(
    path, monkeypatch, files_at_a_time
):
    monkeypatch.setattr(candidates, "FILES_AT_A_TIME", files_at_a_time)
    compact_lance(path)
    seen = []

    def look(step):
        if step is Step.VACUUM_DELETING:
            known = lance.dataset(path).tracked_files().read_all()["path"].to_pylist()
            seen.append(set(known) <= stored(path))

    listen(look)
    try:
        vacuum_later(path)
    finally:
        listen(None)

    assert len(seen) > 1
    assert all(seen)


def test_what_killed_writers_of_lance_had_begun_goes_when_it_is_old(path):
    newest = max(lance.dataset(path).versions(), key=lambda entry: entry["version"])["version"]
    begun = (
        "data/.tmpNm8zrW",
        "data/1001.lance#1",
        "_transactions/7-a.txn#2",
        f"_versions/{newest + 1}.manifest#1",
    )
    for key in begun:
        (Path(path) / key).write_bytes(b"begun")
    others = ("data/.tmpfile.txt", "data/#1", "_versions/notes#1")
    for key in others:
        (Path(path) / key).write_bytes(b"somebody's")

    vacuum_later(path, days=0)
    assert {*begun, *others} <= stored(path)
    vacuum_later(path)
    assert not stored(path) & {*begun}
    assert stored(path) >= {*others}


@pytest.fixture
def reading(tmp_path):
    """Return a table, and a read of it that has begun when all of its files are replaced."""
    path = str(tmp_path / "r")
    for number in range(40):
        lance.write_dataset(some_rows(number * 5_000, 5_000), path, mode="append")
    read = lakehand.open_table(path).to_batches()
    first = read.read_next_batch()
    compact_lance(path)
    return path, first, read


def test_a_read_has_its_files_as_long_as_the_retention_says(reading):
    path, first, read = reading
    vacuum_later(path, days=6)
    rows = first.num_rows + sum(batch.num_rows for batch in read)
    assert rows == lance.dataset(path).count_rows()


def test_a_read_that_lasts_longer_fails_and_never_ends_early(reading):
    path, _, read = reading
    vacuum_later(path, days=8)
    with pytest.raises(ObjectNotFoundError, match="a file is gone"):
        read.read_all()


def test_the_screen_names_the_tag(path, capsys):
    lance.dataset(path).tags.create("kept", 2)
    assert run_command(["vacuum", path, "--dry-run"]) == 0
    assert "tag 'kept': version 2" in capsys.readouterr().out


def test_a_pin_is_a_tag_that_lance_itself_respects(path):
    table = lakehand.open_table(path)
    table.pin("before", version=2)
    assert lance.dataset(path).tags.get_version("before") == 2

    lance.dataset(path).cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert lance.dataset(path, version="before").count_rows() == 2 * ROWS

    table.unpin("before")
    assert lance.dataset(path).tags.list() == {}


def test_a_pin_does_not_take_over_a_tag_of_another_version(path):
    lance.dataset(path).tags.create("mine", 3)
    with pytest.raises(ValidationError, match="mine"):
        lakehand.open_table(path).pin("mine", version=2)
    assert lance.dataset(path).tags.get_version("mine") == 3
    assert lakehand.open_table(path).pins() == []


def branch_rows(path, name):
    return lance.dataset(path).checkout_version((name, None)).to_table().sort_by("id")


def test_vacuum_keeps_what_branches_need_and_names_them(path):
    lance.dataset(path).create_branch("dev", 3)
    branch = lance.dataset(path).checkout_version(("dev", None))
    branch.insert(some_rows(9000, 2))
    branch.delete("id = 1")
    branch.create_branch("dev/more", ("dev", branch.version)).insert(some_rows(9100, 1))
    before = {name: branch_rows(path, name) for name in ("dev", "dev/more")}
    compact_lance(path)

    report = vacuum_later(path)

    assert {(item.name, item.kind, item.version) for item in report.holders} == {
        ("dev", "branch", 3),
        ("dev/more", "branch", None),
    }
    assert report.files_deleted > 0
    assert {name: branch_rows(path, name) for name in before} == before
    assert lance.dataset(path, version=3).count_rows() == 3 * ROWS
    assert rows_of(path).num_rows == 8 * ROWS - 51
    assert vacuum_later(path).files_deleted == 0


def test_the_screen_names_the_branch(path, capsys):
    lance.dataset(path).create_branch("dev", 3)
    assert run_command(["vacuum", path, "--dry-run"]) == 0
    assert "branch 'dev'" in capsys.readouterr().out


def test_files_of_a_branch_go_once_it_is_deleted(path):
    lance.dataset(path).create_branch("dev", 3)
    compact_lance(path)
    vacuum_later(path)
    lance.dataset(path).branches.delete("dev")
    assert vacuum_later(path).files_deleted > 0
    assert needed_by(path, lance.dataset(path).version) <= stored(path)


@pytest.mark.parametrize("batches", [0, 2])
def test_a_branch_that_is_made_while_files_go_is_heard(path, monkeypatch, batches):
    monkeypatch.setattr(candidates, "FILES_AT_A_TIME", 2)
    before = lance.dataset(path)
    for number in range(5):
        lance.write_dataset(some_rows(9000 + number, 1), path, mode="append")
    compact_lance(path)
    rows, seen = before.to_table().sort_by("id"), []

    def branch(step):
        if step is (Step.VACUUM_DELETING if batches else Step.VACUUM_ANNOUNCED):
            seen.append(step)
            if len(seen) == max(1, batches):
                lance.dataset(path).create_branch("late", before.version)

    listen(branch)
    try:
        assert vacuum_later(path).files_deleted > 2 * batches
    finally:
        listen(None)

    assert branch_rows(path, "late") == rows


def test_purge_says_that_a_branch_keeps_rows(path):
    lance.dataset(path).create_branch("dev", 3)
    with tasks_inline():
        report = lakehand.open_table(path).purge()
    assert any("dev" in remains.message for remains in report.remaining)


def test_unpin_leaves_a_tag_that_was_there_before_the_pin(path):
    lance.dataset(path).tags.create("mine", 2)
    table = lakehand.open_table(path)
    assert not table.pin("mine", version=2).tagged
    table.unpin("mine")
    assert lance.dataset(path).tags.get_version("mine") == 2


def test_unpin_leaves_a_tag_that_was_moved_to_another_version(path):
    table = lakehand.open_table(path)
    assert table.pin("mine", version=2).tagged
    lance.dataset(path).tags.update("mine", 3)
    table.unpin("mine")
    assert lance.dataset(path).tags.get_version("mine") == 3


def test_a_pin_that_has_expired_gives_up_its_version_and_its_tag(path):
    table = lakehand.open_table(path)
    table.pin("audit", version=2, expires="7d")
    would = vacuum_later(path, days=30, dry_run=True)
    assert (would.kept.pinned, would.holders) == (0, ())
    report = vacuum_later(path, days=30)
    assert (report.holders, report.files_deleted) == ((), would.files_deleted)
    assert lance.dataset(path).tags.list() == {}
    assert [pin.tagged for pin in table.pins()] == [False]


def test_a_pin_in_force_keeps_its_tag(path):
    lakehand.open_table(path).pin("audit", version=2, expires="60d")
    assert [holder.name for holder in vacuum_later(path, days=30).holders] == ["audit"]
    assert lance.dataset(path).tags.get_version("audit") == 2


def test_a_tag_that_was_made_after_a_pin_of_its_name_expired_stays(path):
    lakehand.open_table(path).pin("audit", version=2, expires="7d")
    vacuum_later(path, days=8, retention="60d")
    lance.dataset(path).tags.create("audit", 2)
    vacuum_later(path, days=30)
    assert lance.dataset(path).tags.get_version("audit") == 2


def test_vacuum_is_refused_beside_detached_versions(path):
    dataset = lance.dataset(path)
    operation = lance.LanceOperation.Overwrite(dataset.lance_schema, [])
    lance.LanceDataset.commit(dataset, operation, detached=True)
    before = stored(path)

    with pytest.raises(RefusedError, match="outside of its history"):
        vacuum_later(path)
    assert stored(path) == before


def test_restore_gives_back_rows_and_columns(path):
    wanted = lance.dataset(path, version=2).to_table()
    lance.dataset(path).drop_columns(["word"])

    report = lakehand.open_table(path).restore(version=2)

    assert (report.outcome, report.metadata_restored) == ("committed", True)
    assert lance.dataset(path).to_table() == wanted
    again = lakehand.open_table(path).restore(version=2)
    assert (again.outcome, again.version) == ("nothing_to_do", report.version)


def test_rows_that_come_while_a_version_is_restored_are_not_lost(path):
    def append_once(step):
        if step is Step.COMMIT_PREPARED:
            listen(None)
            lance.write_dataset(some_rows(9000), path, mode="append")

    listen(append_once)
    try:
        with pytest.raises(CommitConflictError, match="has changed since"):
            lakehand.open_table(path).restore(version=1)
    finally:
        listen(None)

    assert set(range(9000, 9000 + ROWS)) <= set(rows_of(path)["id"].to_pylist())
    lance.dataset(path).validate()
    assert lakehand.open_table(path).restore(version=1).outcome == "committed"
    assert rows_of(path) == lance.dataset(path, version=1).to_table()


def test_restore_is_refused_when_files_are_gone(path):
    compact_lance(path)
    (name, _), *_ = data_sizes(path)
    old = lance.dataset(path, version=2).get_fragments()[0].metadata.files[0].path
    (Path(path) / "data" / old).unlink()

    with pytest.raises(RefusedError, match="are gone"):
        lakehand.open_table(path).restore(version=2)
    assert (Path(path) / name).exists()


def test_purge_takes_deleted_rows_out_of_every_fragment(path):
    rows = rows_of(path)
    with tasks_inline():
        report = lakehand.open_table(path).purge()

    assert (report.outcome, report.deleted_row_count) == ("committed", 0)
    assert all(f.num_deletions == 0 for f in lance.dataset(path).get_fragments())
    assert rows_of(path) == rows


def test_purge_takes_dropped_columns_out_of_every_fragment(tmp_path):
    path = make_lance(tmp_path / "t")
    lance.dataset(path).drop_columns(["word"])
    with tasks_inline():
        report = lakehand.open_table(path).purge()

    assert report.files_with_dropped_columns == 0
    fields = {
        field for f in lance.dataset(path).get_fragments() for field in f.data_files()[0].fields
    }
    assert fields == {0, 2}
    assert rows_of(path)["id"].to_pylist() == list(range(8 * ROWS))
