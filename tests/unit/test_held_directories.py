"""Directories for pieces that wait: those of killed processes go, others stay."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from lakehand.storage.scratch import held_directory


@pytest.fixture
def there(tmp_path):
    """Return a function that makes a directory of somebody else, long ago or just now."""

    def make(name, *, is_old):
        directory = tmp_path / f"lakehand-exchange-{name}"
        directory.mkdir()
        (directory / "rows").touch()
        if is_old:
            os.utime(directory, (0, 0))
        return directory

    return make


def test_what_killed_processes_left_goes(tmp_path, there):
    left = there("left", is_old=True)
    new = there("new", is_old=False)

    with held_directory(str(tmp_path), purpose="exchange") as mine:
        assert not left.exists()
        assert (new / "rows").exists()
        assert Path(mine).is_dir()

    assert not Path(mine).exists()


def test_what_another_process_uses_stays(tmp_path, there):
    in_use = there("in-use", is_old=True)
    descriptor = os.open(in_use, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with held_directory(str(tmp_path), purpose="exchange") as mine:
        os.utime(mine, (0, 0))
        with held_directory(str(tmp_path), purpose="exchange"):
            assert (in_use / "rows").exists()
            assert Path(mine).is_dir()

    os.close(descriptor)
