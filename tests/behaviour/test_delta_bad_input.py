"""Damaged logs: each is a typed error that says what, where and what to do, or is read around."""

from __future__ import annotations

import logging

import pytest

from lakehand.errors import CorruptFileError, CorruptLogError, RefusedError
from lakehand.formats.delta.log.listing import find_segment
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol import names
from lakehand.storage import CountingStore
from support.checkpoints import KINDS, put_checkpoint
from support.hand_written_logs import add, metadata, new_log, protocol

START = (protocol(), metadata())
STATE = [*START, add("a"), add("b")]


def log_with_checkpoints(*versions: int, kind: str = "classic"):
    """Return a table of versions 0 to 4 that holds files a to e, with these checkpoints."""
    store = new_log((*START, add("a")), [add("b")], [add("c")], [add("d")], [add("e")])
    for version in versions:
        files = [add(name) for name in "abcde"[: version + 1]]
        put_checkpoint(store, version, [*START, *files], kind)
    return store


def cut(store, key: str, keep: float) -> None:
    data = store.get(key)
    store.put(key, data[: int(len(data) * keep)])


@pytest.mark.parametrize("keep", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_checkpoint_is_read_around_and_said(kind, keep, caplog):
    store = log_with_checkpoints(3, kind=kind)
    cut(store, find_segment(store).checkpoint.keys[-1], keep)
    with caplog.at_level(logging.WARNING, logger="lakehand"):
        snapshot = load_snapshot(store)
    assert sorted(snapshot.files["path"].to_pylist()) == list("abcde")
    assert "checkpoint_ignored" in [record.event for record in caplog.records]


@pytest.mark.parametrize("kind", ["v2-json", "v2-parquet"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_sidecar_is_read_around(kind, damage):
    store = log_with_checkpoints(3, kind=kind)
    sidecar = next(info.key for info in store.list(names.SIDECAR_DIRECTORY))
    store.delete([sidecar]) if damage == "missing" else cut(store, sidecar, 0.6)
    assert load_snapshot(store).file_count == 5


def test_an_older_checkpoint_is_the_first_resort():
    store = log_with_checkpoints(1, 3)
    store.delete([names.commit_key(0), names.commit_key(1)])
    cut(store, names.classic_checkpoint_key(3), 0.5)
    snapshot = load_snapshot(store)
    assert snapshot.file_count == 5
    assert snapshot.native.segment.checkpoint_version == 1


def test_a_commit_that_is_cut_off_inside_a_line_is_refused_wherever_that_is():
    store = log_with_checkpoints()
    key = names.commit_key(4)
    before, data = store.get(key).splitlines(keepends=True)
    data = data.rstrip()
    for length in range(1, len(data)):
        store.put(key, before + data[:length])
        with pytest.raises(CorruptLogError):
            load_snapshot(store)
    store.put(key, before + data)
    assert load_snapshot(store).file_count == 5


def test_a_truncated_checkpoint_without_the_commits_is_an_error_that_names_it():
    store = log_with_checkpoints(3)
    store.delete([names.commit_key(0)])
    cut(store, names.classic_checkpoint_key(3), 0.5)
    with pytest.raises(CorruptFileError) as caught:
        load_snapshot(store)
    assert caught.value.attributes["path"] == names.classic_checkpoint_key(3)
    assert caught.value.hint


def test_the_version_of_a_damaged_checkpoint_is_never_taken_for_an_older_one():
    store = log_with_checkpoints(4)
    store.delete([names.commit_key(4)])
    cut(store, names.classic_checkpoint_key(4), 0.5)
    with pytest.raises(CorruptFileError):
        load_snapshot(store)


@pytest.mark.parametrize("lacking", ["protocol", "metaData"])
def test_a_log_without_an_obligatory_action_is_an_error_that_names_it(lacking):
    store = new_log([action for action in START if lacking not in action], [add("a")])
    with pytest.raises(CorruptLogError, match=lacking):
        load_snapshot(store)


def test_an_empty_commit_is_an_error():
    store = new_log(START)
    store.put(names.commit_key(1), b"")
    with pytest.raises(CorruptLogError, match=r"01\.json is empty"):
        load_snapshot(store)


def test_an_unknown_feature_is_refused_by_name():
    store = new_log((protocol(reader=["warpDrive"]), metadata()))
    with pytest.raises(RefusedError, match="warpDrive"):
        load_snapshot(store)


def test_opening_writes_nothing():
    store = log_with_checkpoints(3)
    counting = CountingStore(store)
    load_snapshot(counting)
    assert counting.requests["get"] > 0
    assert counting.bytes_written == 0
