"""A directory, or a dead link, where the next commit belongs."""

from __future__ import annotations

import time

import pytest

import lakehand
from lakehand.errors import ObjectExistsError, StorageError
from lakehand.storage import open_store
from support.compactions import compact_inline
from support.small_tables import make_table, read_sorted, rows


def put_directory(path):
    path.mkdir()


def put_dead_link(path):
    path.symlink_to(path.with_name("nothing"))


@pytest.mark.parametrize("put", [put_directory, put_dead_link])
def test_a_commit_whose_name_is_taken_by_no_file_fails_at_once(tmp_path, put):
    place = make_table(tmp_path / "t", commits=4)
    before = read_sorted(place)
    put(place / "_delta_log" / f"{4:020d}.json")
    started = time.monotonic()
    with pytest.raises(StorageError, match=f"{4:020d}.json exists and is not a file"):
        lakehand.open_table(place).append(rows(100, 1))
    with pytest.raises(StorageError, match="exists and is not a file"):
        compact_inline(str(place), min_files=2)
    assert time.monotonic() - started < 60
    assert read_sorted(place) == before


def test_a_key_that_is_a_directory_is_told_from_an_object(tmp_path):
    store = open_store(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match="not a file") as error:
        store.put_if_absent("a", b"x")
    assert not isinstance(error.value, ObjectExistsError)
    store.put_if_absent("b", b"x")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("b", b"x")
