"""Eight processes commit to one table: nobody's success is lost, and every loser knows it."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable as PeerTable

from lakehand.formats.delta.log.listing import list_commits, read_commit
from lakehand.formats.delta.table import DeltaFormat
from lakehand.storage import open_store
from support.commit_races import SCHEMA, race

WRITERS = 8


def new_table(uri, options=None):
    store = open_store(uri, options)
    # Fewer checkpoints than by default: this is about commits, and they cost most of the time.
    DeltaFormat().create(store, SCHEMA, properties={"delta.checkpointInterval": "40"})
    return store


def assert_every_outcome_is_true(store, attempts):
    """Compare what the writers say with what the log says."""
    versions = list_commits(store, -1)
    assert versions == tuple(range(len(versions)))
    log = {version: read_commit(store, version).commit_info["txnId"] for version in versions[1:]}
    claimed = {attempt.version: attempt.token for attempt in attempts if attempt.version}
    assert claimed == log
    lost = {attempt.token for attempt in attempts if attempt.version is None}
    assert lost.isdisjoint(log.values())


def assert_files_follow_from_outcomes(store, attempts):
    won = [attempt for attempt in attempts if attempt.version]
    added = [attempt.path for attempt in won if not attempt.is_removal]
    removed = [attempt.path for attempt in won if attempt.is_removal]
    assert len(set(removed)) == len(removed)
    snapshot = DeltaFormat().open(store).snapshot()
    assert set(snapshot.files["path"].to_pylist()) == set(added) - set(removed)
    return snapshot.file_count


@pytest.mark.slow  # 400 commits by eight processes, which have two cores to share
def test_eight_processes_on_local_disk(tmp_path):
    store = new_table(tmp_path)

    attempts = race(tmp_path, None, writers=WRITERS, commits=50)

    assert len(attempts) == WRITERS * 50
    assert_every_outcome_is_true(store, attempts)
    count = assert_files_follow_from_outcomes(store, attempts)
    assert any(attempt.version is None for attempt in attempts)
    assert any(attempt.tries > 1 for attempt in attempts)
    assert PeerTable(tmp_path).to_pyarrow_table().num_rows == count


@pytest.mark.server
def test_eight_processes_on_s3(s3_server):
    uri = s3_server.new_uri()
    store = new_table(uri, s3_server.options)

    attempts = race(uri, s3_server.options, writers=WRITERS, commits=10)

    assert len(attempts) == WRITERS * 10
    assert_every_outcome_is_true(store, attempts)
    assert_files_follow_from_outcomes(store, attempts)
    assert any(attempt.tries > 1 for attempt in attempts)


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.parametrize("seed", range(5))
def test_eight_processes_for_longer(tmp_path, s3_server, seed):
    places = [(str(tmp_path), None, 200), (s3_server.new_uri(), s3_server.options, 50)]
    for uri, options, commits in places:
        store = new_table(uri, options)
        attempts = race(uri, options, writers=WRITERS, commits=commits)
        assert_every_outcome_is_true(store, attempts)
        assert_files_follow_from_outcomes(store, attempts)
