"""A long local file goes to the disk while it is written, and a failure of that is not lost."""

from __future__ import annotations

import errno
import os

import pytest

from lakehand.errors import StorageError
from lakehand.storage import local_files, open_store

BLOCK = bytes(range(256)) * 16


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(local_files, "_SYNCED_BYTES", 2 * len(BLOCK))


def _write(store, blocks: int) -> None:
    with store.open_writer("long") as writer:
        for _ in range(blocks):
            writer.write(BLOCK)


def test_a_long_file_is_synced_before_its_end_and_holds_every_byte(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.fstat(file).st_size))
    store = open_store(tmp_path)
    _write(store, 9)
    assert synced
    assert store.get("long") == BLOCK * 9


def test_a_failure_on_the_way_is_told_and_leaves_no_file(tmp_path, monkeypatch):
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    store = open_store(tmp_path)
    with pytest.raises(StorageError, match="Input/output error"):
        _write(store, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_after_a_file_was_published_is_told_when_it_is_closed(tmp_path, monkeypatch):
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    writer = open_store(tmp_path).open_writer("short")
    writer.write(b"abc")
    writer.publish()
    with pytest.raises(StorageError, match="Input/output error"):
        writer.close()
