from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lakehand.errors import CorruptLogError, VersionNotFoundError
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.history import describe_metrics, diff, history
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol import names
from lakehand.storage import Store, open_store
from support.checkpoints import put_checkpoint
from support.hand_written_logs import add, field, metadata, new_log, protocol, put_commit, remove

if TYPE_CHECKING:
    from pathlib import Path

START = (protocol(), metadata())
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIMED = {"delta.enableInCommitTimestamps": "true"}


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def stored_at(store: Store, *times: datetime) -> Store:
    """Make storage say when it took each version."""
    for version, at in enumerate(times):
        os.utime(store.local_path(names.commit_key(version)), (at.timestamp(), at.timestamp()))
    return store


def log_on_disk(root: Path, *times: datetime) -> Store:
    """Return a table without files whose versions were stored at these times."""
    store = open_store(root)
    for version in range(len(times)):
        put_commit(store, version, *(START if version == 0 else ()))
    return stored_at(store, *times)


def timed_log(*times: datetime, first: int = 0, store: Store | None = None) -> Store:
    """Return a table whose commits from `first` on carry their own times."""
    properties = TIMED | ({"delta.inCommitTimestampEnablementVersion": str(first)} if first else {})
    features = ("inCommitTimestamp",)
    store = store or new_log()
    for version, at in enumerate(times):
        info = {"timestamp": 0, "inCommitTimestamp": int(at.timestamp() * 1000)}
        kept = info if version >= first else {"timestamp": 0}
        start = [protocol(*features), metadata(properties=properties)] if version == 0 else []
        lines = [{"commitInfo": kept}, *start, add(f"f{version}")]
        store.put(names.commit_key(version), "\n".join(map(json.dumps, lines)).encode())
    return store


def test_a_time_names_the_version_that_was_newest_then(tmp_path):
    store = log_on_disk(tmp_path, minutes(0), minutes(10), minutes(20))
    assert version_at(store, minutes(0)) == 0
    assert version_at(store, minutes(19.9)) == 1
    assert version_at(store, minutes(99)) == 2


def test_times_that_go_backwards_are_made_to_rise(tmp_path):
    store = log_on_disk(tmp_path, minutes(10), minutes(5), minutes(20))
    assert version_at(store, minutes(6) + timedelta(minutes=4)) == 0
    assert version_at(store, minutes(10) + timedelta(milliseconds=1)) == 1


def test_a_time_before_the_first_version_is_not_found(tmp_path):
    store = log_on_disk(tmp_path, minutes(0))
    with pytest.raises(VersionNotFoundError, match="version 0"):
        version_at(store, minutes(-1))


def test_a_naive_time_is_utc(tmp_path):
    store = log_on_disk(tmp_path, minutes(0), minutes(10))
    assert version_at(store, minutes(5).replace(tzinfo=None)) == 0


def test_commits_that_carry_their_time_are_believed():
    store = timed_log(minutes(0), minutes(10), minutes(20), minutes(30), minutes(40))
    found = [version_at(store, minutes(at)) for at in (0, 10, 19, 35, 99)]
    assert found == [0, 1, 1, 3, 4]
    assert load_snapshot(store, timestamp=minutes(10)).version == 1
    assert load_snapshot(store, version=2).at == minutes(20)


def test_before_the_boundary_storage_tells_the_time(tmp_path):
    own_times = (minutes(10 * version) for version in range(5))
    store = timed_log(*own_times, first=3, store=open_store(tmp_path))
    stored_at(store, minutes(1), minutes(2), minutes(3), minutes(500), minutes(501))
    assert version_at(store, minutes(2)) == 1
    assert version_at(store, minutes(29)) == 2
    assert version_at(store, minutes(30)) == 3
    assert version_at(store, minutes(400)) == 4


def test_a_commit_without_the_time_it_owes_is_an_error():
    store = timed_log(minutes(0), minutes(10))
    put_commit(store, 2, add("late"))
    with pytest.raises(CorruptLogError, match="version 2"):
        version_at(store, minutes(15))


def test_the_time_of_a_checkpointed_version_comes_from_its_commit():
    store = timed_log(minutes(0), minutes(10))
    start = [protocol("inCommitTimestamp"), metadata(properties=TIMED)]
    put_checkpoint(store, 1, start)
    assert load_snapshot(store).native.in_commit_timestamp == int(minutes(10).timestamp() * 1000)


def test_history_is_newest_first_and_takes_any_shape():
    info = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "deep": {"a": [1]}, "flag": True},
        "operationMetrics": {"numFiles": 3},
        "engineInfo": "engine/1",
        "txnId": "token",
        "lakehand": {"proof": {"kind": "digest"}},
    }
    store = new_log(START)
    store.put(names.commit_key(1), json.dumps({"commitInfo": info}).encode())
    store.put(names.commit_key(2), json.dumps(add("x")).encode())
    store.put(names.commit_key(3), b'{"commitInfo":{"operationParameters":"text","operation":7}}')
    odd, silent, full, _ = history(store)
    assert (odd.parameters, odd.operation) == ({"value": "text"}, "7")
    assert (silent.version, silent.operation, silent.parameters) == (2, None, {})
    assert full.parameters["deep"] == {"a": [1]}
    assert (full.metrics, full.engine, full.token) == ({"numFiles": "3"}, "engine/1", "token")
    assert full.proof == {"kind": "digest"}


def test_history_can_be_limited():
    store = new_log(START, [], [])
    assert [entry.version for entry in history(store, limit=2)] == [2, 1]


def test_a_difference_names_the_files_that_came_and_went():
    vector = {"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": 1, "cardinality": 1}
    changed = [remove("a", at_ms=1), add("a", deletionVector=vector), add("c")]
    store = new_log((*START, add("a"), add("b")), changed, [metadata(field("new", "long"))])
    found = diff(store, 0, 1)
    assert sorted(found.added["path"].to_pylist()) == ["a", "c"]
    assert found.removed["path"].to_pylist() == ["a"]
    assert not found.schema_changed
    assert diff(store, 1, 2).schema_changed
    assert diff(store, 1, 0).removed.num_rows == 2


def test_changed_properties_are_a_difference():
    store = new_log(START, [metadata(properties={"k": "v"})])
    found = diff(store, 0, 1)
    assert found.properties_changed
    assert not found.schema_changed


@pytest.mark.parametrize("value", ["7" * 5_000, "²", float("inf"), None, [], "-3", "9" * 30])
def test_a_metric_that_is_no_count_is_left_out(value):
    assert describe_metrics({"numAddedFiles": value, "numRemovedFiles": "2"}) == "2 files removed"
