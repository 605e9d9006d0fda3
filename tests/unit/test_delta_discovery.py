from __future__ import annotations

import pytest

from lakehand.errors import (
    CorruptLogError,
    NotATableError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from lakehand.formats.delta.log.listing import find_segment, list_commits, read_commit
from lakehand.formats.delta.protocol import names
from lakehand.storage import MemoryStore
from support.checkpoints import KINDS, put_checkpoint
from support.hand_written_logs import add, compaction_key, metadata, new_log, protocol, put_commit

START = (protocol(), metadata())


def log_of(count: int) -> MemoryStore:
    """Return a table with versions 0 to `count` - 1, each of which adds a file."""
    return new_log(START, *([add(f"f{version}")] for version in range(1, count)))


def point_to(store: MemoryStore, version: int) -> None:
    store.put(names.LAST_CHECKPOINT_KEY, f'{{"version":{version},"size":3}}'.encode())


def test_commits_alone_make_a_segment():
    segment = find_segment(log_of(3))
    assert (segment.version, segment.checkpoint, segment.commits) == (2, None, (0, 1, 2))
    assert set(segment.commit_modified_at) == {0, 1, 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hint", [None, 2, 1, 4])
def test_the_newest_complete_checkpoint_is_found_with_any_hint(kind, hint):
    store = log_of(5)
    put_checkpoint(store, 2, [*START], kind)
    if hint is not None:
        point_to(store, hint)
    segment = find_segment(store)
    assert (segment.version, segment.checkpoint_version, segment.commits) == (4, 2, (3, 4))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":"x"}', b'{"size":1}'])
def test_a_corrupt_hint_is_passed_over(text):
    store = log_of(4)
    put_checkpoint(store, 2, [*START])
    store.put(names.LAST_CHECKPOINT_KEY, text)
    assert find_segment(store).checkpoint_version == 2


def test_a_hint_beyond_the_log_is_passed_over():
    store = log_of(3)
    point_to(store, 9)
    assert find_segment(store).version == 2


def test_a_multipart_checkpoint_with_a_missing_part_does_not_exist():
    store = log_of(4)
    keys = put_checkpoint(store, 2, [*START], "multipart")
    store.delete(keys[1:])
    assert find_segment(store).checkpoint is None


def test_an_empty_checkpoint_file_does_not_exist():
    store = log_of(3)
    store.put(names.classic_checkpoint_key(2), b"")
    assert find_segment(store).checkpoint is None


def test_of_several_checkpoints_of_a_version_the_richest_kind_wins():
    store = log_of(3)
    for kind in ("v2-json", "classic", "multipart"):
        put_checkpoint(store, 2, [*START], kind)
    assert find_segment(store).checkpoint.kind == "v2"
    store.delete([key for key in (info.key for info in store.list("_delta_log/")) if "abc" in key])
    assert find_segment(store).checkpoint.kind == "multipart"


def test_time_travel_uses_a_checkpoint_at_or_below_the_version():
    store = log_of(6)
    for version in (1, 4):
        put_checkpoint(store, version, [*START])
    point_to(store, 4)
    assert find_segment(store, version=3).checkpoint_version == 1
    assert find_segment(store, version=4).commits == ()
    assert find_segment(store, version=0).checkpoint is None


def test_a_gap_in_the_commits_is_an_error_that_names_the_version():
    store = log_of(5)
    store.delete([names.commit_key(2)])
    with pytest.raises(CorruptLogError, match="version 2 is missing") as caught:
        find_segment(store)
    assert caught.value.attributes["version"] == 2


class TornStore(MemoryStore):
    """Its listings miss a version for a while, as those of a directory that is written to may."""

    torn = 0

    def list(self, prefix="", *, after=None):
        self.torn -= 1
        listed = super().list(prefix, after=after)
        missed = names.commit_key(3) if self.torn >= 0 else None
        return (info for info in listed if info.key != missed)


@pytest.mark.parametrize(("torn", "is_found"), [(1, True), (4, True), (99, False)])
def test_a_listing_that_misses_a_commit_that_is_there_is_repeated(torn, is_found):
    store = TornStore(f"torn-{torn}")
    for version in range(5):
        put_commit(store, version, *(START if version == 0 else [add(f"f{version}")]))
    store.torn = torn

    if is_found:
        assert find_segment(store).commits == (0, 1, 2, 3, 4)
    else:
        with pytest.raises(CorruptLogError, match="version 3 is missing"):
            find_segment(store)


def test_a_gap_is_an_error_although_a_compaction_covers_it():
    store = log_of(5)
    store.put(compaction_key(1, 3), b'{"add":{"path":"x"}}')
    store.delete([names.commit_key(2)])
    with pytest.raises(CorruptLogError):
        find_segment(store)


def test_commits_before_a_checkpoint_may_be_gone():
    store = log_of(5)
    put_checkpoint(store, 3, [*START])
    store.delete([names.commit_key(version) for version in range(4)])
    assert find_segment(store).commits == (4,)
    with pytest.raises(VersionNotFoundError) as caught:
        find_segment(store, version=1)
    assert caught.value.attributes["earliest"] == 3
    assert "older ones were cleaned away" in caught.value.hint


def test_compactions_stand_in_for_the_commits_they_hold():
    store = log_of(8)
    for first, last in ((1, 3), (2, 4), (5, 6), (5, 9)):
        store.put(compaction_key(first, last), b"{}")
    replayed = find_segment(store).replayed
    assert [file.version for file in replayed] == [0, 3, 4, 6, 7]
    assert replayed[1].key == compaction_key(1, 3)


def test_a_version_of_the_future_is_not_found():
    with pytest.raises(VersionNotFoundError, match="versions 0 to 2") as caught:
        find_segment(log_of(3), version=7)
    assert caught.value.attributes["latest"] == 2
    assert caught.value.hint == "ask for one of these"


def test_a_folder_without_a_log_is_not_a_table():
    with pytest.raises(NotATableError) as caught:
        find_segment(MemoryStore("discovery-nothing"))
    assert caught.value.hint


def test_an_empty_log_is_named_as_such():
    store = MemoryStore("discovery-empty")
    store.put("_delta_log/.tmp", b"")
    with pytest.raises(CorruptLogError, match="empty"):
        find_segment(store)


def test_commits_after_a_version_are_listed():
    store = log_of(4)
    assert list_commits(store, 1) == (2, 3)
    assert list_commits(store, 3) == ()


def test_one_commit_is_read():
    store = log_of(3)
    put_commit(store, 3, add("more"))
    assert read_commit(store, 3).adds[0]["path"] == "more"
    with pytest.raises(ObjectNotFoundError):
        read_commit(store, 4)
