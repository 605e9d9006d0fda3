"""Vacuum on a real object store: set aside, undone, expired, and with objects that will not go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

from lakehand.retention.quarantine import list_quarantines
from lakehand.storage import open_store
from support.later_vacuums import vacuum_later

pytestmark = pytest.mark.server
NAMES = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "allow_http": "AWS_ALLOW_HTTP",
}
VALUES = ["a b", "100%", "k=v", "q?#&", "+", "é"]


@pytest.fixture
def delta_rs_options(s3_server):
    return {NAMES[key]: value for key, value in s3_server.options.items()}


@pytest.fixture
def store(s3_server, delta_rs_options):
    """Return a table whose rows were replaced once, in partitions with names of all kinds."""
    uri = s3_server.new_uri()
    for number in range(2):
        ids = pa.array([number] * len(VALUES), pa.int64())
        data = pa.table({"id": ids, "p": pa.array(VALUES)})
        options = {"mode": "overwrite", "storage_options": delta_rs_options}
        write_deltalake(uri, data, partition_by=["p"], **options)
    return open_store(uri, s3_server.options)


@pytest.fixture
def read(store, delta_rs_options):
    def read_with_delta_rs(version=None):
        table = DeltaRsTable(store.url, version=version, storage_options=delta_rs_options)
        found = table.to_pyarrow_table()
        return sorted(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True))

    return read_with_delta_rs


def rows(number):
    return sorted((number, value) for value in VALUES)


def data_keys(store):
    return {info.key for info in store.list() if not info.key.startswith("_")}


def test_objects_are_set_aside_and_deleted_when_their_grace_is_over(store, read):
    first = vacuum_later(store, days=30, grace="24h")
    assert (first.files_quarantined, first.files_deleted) == (len(VALUES), 0)
    assert (read(0), read()) == (rows(0), rows(1))
    assert vacuum_later(store, days=30.5, expire=True, grace="24h").files_deleted == 0
    report = vacuum_later(store, days=32, expire=True, grace="24h")
    assert (report.files_deleted, report.errors) == (len(VALUES), ())
    assert len(data_keys(store)) == len(VALUES)
    assert read() == rows(1)
    assert list(store.list("_lakehand")) == []


def test_undo_gives_every_object_back(store, read):
    id_ = vacuum_later(store, days=30, grace="24h").quarantine_id
    assert vacuum_later(store, undo=id_).files_undone == len(VALUES)
    assert vacuum_later(store, days=32, expire=True).files_deleted == 0
    assert list_quarantines(store) == []
    assert (read(0), read()) == (rows(0), rows(1))


def test_an_object_that_will_not_go_does_not_keep_the_others(store, read, s3_server):
    stuck = vacuum_later(store, dry_run=True).files_to_delete[0]
    root = s3_server.directory / store.url.rpartition("/")[2]
    directory, aside = root / stuck.partition("/")[0], root / "aside"

    def make_stuck(progress):
        """Let the server find a link that leads nowhere in the place of a directory."""
        if progress.phase == "deleting" and not aside.exists():
            directory.rename(aside)
            directory.symlink_to(directory.name)

    report = vacuum_later(store, on_progress=make_stuck)
    directory.unlink()
    aside.rename(directory)
    assert [error["path"] for error in report.errors] == [stuck]
    assert report.files_deleted == len(VALUES) - 1
    assert read() == rows(1)
    assert vacuum_later(store).files_deleted == 1


def test_a_dry_run_names_what_a_run_deletes(store):
    dry = vacuum_later(store, dry_run=True)
    before = data_keys(store)
    assert set(dry.files_to_delete) < before
    assert vacuum_later(store).files_deleted == len(dry.files_to_delete)
    assert data_keys(store) == before - set(dry.files_to_delete)


def test_probes_of_killed_processes_go_and_young_ones_stay(store):
    key = "_lakehand/probe-of-a-killed-process"
    store.put(key, b"first")

    vacuum_later(store, days=0)
    assert store.exists(key)
    vacuum_later(store, days=1)
    assert not store.exists(key)
