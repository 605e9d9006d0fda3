"""What is kept of data files that were read, and for how long."""

from __future__ import annotations

import pytest

from lakehand.storage import kept_reads
from lakehand.storage.kept_reads import KeptReads

WHOLE = bytes(range(256)) * 4


@pytest.fixture
def kept():
    reads = KeptReads()
    with reads.keeping():
        yield reads


def test_a_small_file_is_kept_whole(kept):
    kept.add("a.parquet", WHOLE, len(WHOLE))

    assert kept.tail("a.parquet", 10) == (WHOLE[-10:], len(WHOLE))
    assert kept.tail("a.parquet", 10**9) == (WHOLE, len(WHOLE))
    assert kept.part("a.parquet", 3, 5) == WHOLE[3:8]
    assert kept.part("a.parquet", len(WHOLE) - 2, 5) == WHOLE[-2:]
    assert kept.part("b.parquet", 0, 1) is None


def test_of_a_large_file_the_end_is_kept(kept, monkeypatch):
    monkeypatch.setattr(kept_reads, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(kept_reads, "_END_BYTES", 16)
    size = 10_000

    kept.add("a.parquet", WHOLE[-64:], size)

    assert kept.tail("a.parquet", 16) == (WHOLE[-16:], size)
    assert kept.tail("a.parquet", 17) is None
    assert kept.part("a.parquet", size - 16, 16) == WHOLE[-16:]
    assert kept.part("a.parquet", size - 17, 17) is None


def test_a_longer_end_replaces_a_shorter_one(kept):
    kept.add("a.parquet", WHOLE[-10:], len(WHOLE))
    assert kept.tail("a.parquet", 20) is None
    kept.add("a.parquet", WHOLE[-20:], len(WHOLE))
    kept.add("a.parquet", WHOLE[-5:], len(WHOLE))
    assert kept.tail("a.parquet", 20) == (WHOLE[-20:], len(WHOLE))


@pytest.mark.parametrize(
    "key", ["_delta_log/1.checkpoint.parquet", "_lakehand/quarantine/x/files.parquet", "x.bin"]
)
def test_only_files_that_never_change_are_kept(kept, key):
    kept.add(key, WHOLE, len(WHOLE))
    assert kept.tail(key, 1) is None


def test_no_more_than_the_limit_is_kept(kept, monkeypatch):
    monkeypatch.setattr(kept_reads, "_MOST_BYTES", 2 * len(WHOLE))
    for name in "abc":
        kept.add(f"{name}.parquet", WHOLE, len(WHOLE))
    assert [kept.tail(f"{name}.parquet", 1) is None for name in "abc"] == [False, False, True]
    kept.forget("a.parquet")
    kept.add("c.parquet", WHOLE, len(WHOLE))
    assert kept.tail("a.parquet", 1) is None
    assert kept.tail("c.parquet", 1) is not None


def test_all_is_forgotten_at_the_end_of_the_outermost_block():
    reads = KeptReads()
    reads.add("a.parquet", WHOLE, len(WHOLE))
    assert reads.tail("a.parquet", 1) is None, "nothing is kept outside of a block"
    with reads.keeping():
        with reads.keeping():
            reads.add("a.parquet", WHOLE, len(WHOLE))
        assert reads.tail("a.parquet", 1) is not None
    assert reads.tail("a.parquet", 1) is None


def test_an_empty_file_is_not_kept(kept):
    kept.add("a.parquet", b"", 0)
    assert kept.tail("a.parquet", 1) is None
    assert kept.part("a.parquet", 0, 1) is None
