"""Verifying a table that others write to: a healthy one is sound, and damage is still found."""

from __future__ import annotations

import os
import time

import pytest
from deltalake import write_deltalake

from lakehand import open_table
from lakehand.formats.delta.repair import examination
from lakehand.formats.delta.worker import DeltaWorker
from support import damage
from support.damage import VERSIONS, checkpoint_file, make_whole_table, pointer, rows_of
from support.forced_compactions import compact_here
from support.small_tables import commit_by_hand


@pytest.fixture
def path(tmp_path):
    return make_whole_table(tmp_path / "table")


def write_and_checkpoint(path) -> None:
    write_deltalake(str(path), rows_of(VERSIONS), mode="append")
    open_table(path).checkpoint()


def before_each(monkeypatch, owner, name, action) -> None:
    """Have `action` happen right before each call of a function."""
    real = getattr(owner, name)

    def after_action(*args, **options):
        action()
        return real(*args, **options)

    monkeypatch.setattr(owner, name, after_action)


def findings(path) -> list[str]:
    return [found.name for found in open_table(path).verify(proofs=False).findings]


def test_checkpoints_that_are_written_between_two_reads_are_no_damage(path, monkeypatch):
    before_each(
        monkeypatch, examination, "read_last_checkpoint", lambda: write_and_checkpoint(path)
    )
    assert findings(path) == []


def test_a_pointer_that_is_wrong_at_every_look_is_found_beside_writers(path, monkeypatch):
    damage.point_nowhere(path)
    commit = lambda: commit_by_hand(path, {"commitInfo": {"operation": "x"}})  # noqa: E731
    before_each(monkeypatch, examination, "read_last_checkpoint", commit)
    assert findings(path) == ["stale_last_checkpoint"]


def test_a_writer_may_take_a_moment_from_a_checkpoint_to_its_pointer(path):
    content = pointer(path).read_bytes()
    write_and_checkpoint(path)
    pointer(path).write_bytes(content)
    assert findings(path) == []
    then = time.time() - 2 * 60
    os.utime(checkpoint_file(path, VERSIONS), (then, then))
    assert findings(path) == ["stale_last_checkpoint"]


def test_a_pointer_that_cannot_be_read_is_found_however_young_the_checkpoint_is(path):
    os.utime(checkpoint_file(path))
    damage.break_pointer(path)
    assert findings(path) == ["corrupt_last_checkpoint"]


def test_files_that_were_replaced_and_deleted_since_are_not_missed(path, monkeypatch):
    old = [damage.data_file(path, version) for version in range(VERSIONS)]

    def rewrite_and_delete() -> None:
        monkeypatch.undo()
        compact_here(path)
        for file in old:
            file.unlink()

    before_each(monkeypatch, DeltaWorker, "check_files", rewrite_and_delete)
    assert findings(path) == []


def test_a_lost_file_is_found_beside_writers(path, monkeypatch):
    damage.lose_file(path)
    append = lambda: write_deltalake(str(path), rows_of(VERSIONS), mode="append")  # noqa: E731
    before_each(monkeypatch, DeltaWorker, "check_files", append)
    assert findings(path) == ["missing_file"]
