"""Which files the versions within a promise need."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from lakehand.errors import CorruptLogError, LakehandError, RefusedError
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.formats.delta.retention.references import protected_files, protected_since
from lakehand.observe.clock import ManualClock
from lakehand.storage import MemoryStore
from support.checkpoints import put_checkpoint
from support.hand_written_logs import add, metadata, protocol, put_commit, remove

START = (protocol(), metadata())
#: Each version of `daily_log` is committed at noon of the day with its number.
DAY_ZERO = datetime(2026, 1, 1, 12, tzinfo=UTC)
_DAY_SECONDS = 24 * 60 * 60
_names = itertools.count()


def day(number: float) -> datetime:
    return DAY_ZERO + timedelta(days=number)


def milliseconds(number: float) -> int:
    return int(day(number).timestamp() * 1000)


def daily_log(*commits) -> MemoryStore:
    clock = ManualClock(DAY_ZERO)
    store = MemoryStore(f"daily-{next(_names)}", clock=clock)
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
        clock.advance(_DAY_SECONDS)
    return store


def keys(protection) -> set[str]:
    return set(protection.keys.to_pylist())


#: a lives on days 0 to 2, b from day 1 on, c on day 2 only, d from day 3 on.
CHURN = (
    [*START, add("a")],
    [add("b")],
    [add("c")],
    [remove("a", at_ms=milliseconds(3)), remove("c", at_ms=milliseconds(3)), add("d")],
    [remove("d", at_ms=milliseconds(4)), add("e")],
)


@pytest.mark.parametrize(
    ("since", "oldest", "expected"),
    [
        (-5, 0, {"a", "b", "c", "d", "e"}),
        (2.5, 2, {"a", "b", "c", "d", "e"}),
        (3.0, 3, {"a", "b", "c", "d", "e"}),
        (3.5, 3, {"b", "d", "e"}),
        (9, 4, {"b", "e"}),
    ],
)
def test_files_of_all_versions_since_a_moment_are_protected(since, oldest, expected):
    protection = protected_files(daily_log(*CHURN), since=day(since))
    assert (protection.oldest_version, protection.newest_version) == (oldest, 4)
    assert keys(protection) == expected


def test_a_file_that_came_and_went_within_the_promise_is_protected_without_its_tombstone():
    store = daily_log(*CHURN)
    put_checkpoint(store, 4, [*START, add("b"), add("e")])
    assert {"c", "d"} <= keys(protected_files(store, since=day(2)))


def test_a_pinned_version_keeps_its_files():
    protection = protected_files(daily_log(*CHURN), since=day(9), pinned_versions=[2])
    assert keys(protection) == {"b", "e"}
    assert set(protection.pinned_keys.to_pylist()) == {"a", "b", "c"}


def test_vectors_and_change_data_are_protected_like_the_files_they_belong_to():
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    change = {"cdc": {"path": "_change_data/c%201.parquet", "partitionValues": {}, "size": 1}}
    store = daily_log([*START, add("a")], [add("b", deletionVector=vector), change])
    assert keys(protected_files(store, since=day(0))) == {
        "a",
        "b",
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "_change_data/c 1.parquet",
    }


@pytest.mark.parametrize("spelling", ["p=a%20b/f%25.parquet", "p=a b/f%25.parquet"])
def test_paths_are_compared_decoded(spelling):
    store = daily_log([*START, add(spelling)])
    assert keys(protected_files(store, since=day(0))) == {"p=a b/f%.parquet"}


def test_absolute_paths_protect_the_key_inside_and_the_bare_name_everywhere():
    store = daily_log(START)
    put_commit(store, 1, add(f"{store.url}/x/inside"), add("memory://other/y/outside"))
    protection = protected_files(store, since=day(0))
    assert keys(protection) == {"x/inside"}
    assert protection.names.to_pylist() == ["inside", "outside"]


def test_a_path_that_cannot_be_placed_is_no_reason_to_go_on():
    store = daily_log([*START, add("dbfs:/mnt/x/f.parquet")])
    with pytest.raises(LakehandError):
        protected_files(store, since=day(0))


def test_a_gap_in_the_log_refuses():
    store = daily_log(*CHURN)
    store.delete([commit_key(2)])
    with pytest.raises(CorruptLogError, match="version 2 is missing"):
        protected_files(store, since=day(0))


def test_a_gap_refuses_even_if_the_newest_version_can_be_read_without_it():
    store = daily_log(*CHURN)
    put_checkpoint(store, 4, [*START, add("b"), add("e")])
    store.delete([commit_key(2)])
    with pytest.raises(CorruptLogError, match="version 2 is missing"):
        protected_files(store, since=day(1.5))


def cleaned_log() -> MemoryStore:
    """Return a table whose first days are only remembered by a checkpoint of version 3."""
    store = daily_log(*CHURN)
    old = [remove("a", at_ms=milliseconds(3)), remove("c", at_ms=milliseconds(3))]
    put_checkpoint(store, 3, [*START, add("b"), add("d"), *old])
    store.delete([commit_key(version) for version in range(3)])
    return store


def test_tombstones_stand_in_for_commits_that_were_cleaned_away():
    protection = protected_files(cleaned_log(), since=day(1))
    assert protection.oldest_version == 3
    assert keys(protection) == {"a", "b", "c", "d", "e"}


def test_tombstones_that_the_newest_checkpoint_has_forgotten_still_stand_in():
    store = cleaned_log()
    put_checkpoint(store, 4, [*START, add("b"), add("e")])
    assert keys(protected_files(store, since=day(1))) == {"a", "b", "c", "d", "e"}


def test_a_promise_beyond_what_tombstones_remember_is_refused():
    with pytest.raises(RefusedError, match="log begins with version 3"):
        protected_files(cleaned_log(), since=day(-5))


def test_a_tombstone_without_a_time_is_protected():
    store = daily_log([*START, add("a")], [])
    timeless = remove("a", at_ms=0)
    del timeless["remove"]["deletionTimestamp"]
    put_commit(store, 2, timeless)
    assert keys(protected_files(store, since=day(9))) == {"a"}


def test_a_second_look_sees_what_came_since_the_first():
    store = daily_log(*CHURN)
    assert keys(protected_since(store, version=4)) == set()
    put_commit(store, 5, add("c"))
    protection = protected_since(store, version=4)
    assert (protection.newest_version, keys(protection)) == (5, {"c"})
