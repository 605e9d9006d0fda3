"""A damaged table in a real object store is diagnosed and repaired like one on disk."""

from __future__ import annotations

import pytest

from lakehand import open_table
from lakehand.storage import open_store
from support import damage
from support.damage import ids_of, make_whole_table

pytestmark = pytest.mark.server


@pytest.fixture
def path(tmp_path):
    path = make_whole_table(tmp_path / "table")
    damage.cut_commit(path)
    damage.break_pointer(path)
    return path


@pytest.fixture
def store(s3_server, path):
    store = open_store(s3_server.new_uri(), s3_server.options)
    for file in path.rglob("*"):
        if file.is_file():
            store.upload(file, file.relative_to(path).as_posix())
    return store


def test_a_table_in_an_object_store_is_diagnosed_and_repaired(store, path, s3_server):
    table = open_table(store.url, storage_options=s3_server.options)
    found = table.verify(proofs=False)
    assert {item.name for item in found.findings} == {"corrupt_commit", "corrupt_last_checkpoint"}
    assert (found.version, found.readable_version, found.files_checked) == (4, 2, 3)

    done = table.repair(accept_data_loss=True)

    assert (done.remaining, done.version) == ((), 2)
    assert sorted(table.to_arrow()["id"].to_pylist()) == ids_of(0, 1, 2)
    aside = store.get(f"{done.aside}/_delta_log/{3:020}.json")
    assert aside == damage.commit_file(path, 3).read_bytes()
    assert not table.clean_logs(dry_run=True).sees_unfinished_uploads
