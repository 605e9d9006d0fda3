"""Row groups come from any store with few requests, and from large ones in pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakehand.parquet import row_group_reader
from lakehand.parquet.row_group_reader import open_file
from lakehand.storage import CountingStore, open_store
from support.reading import fresh_store, put_file

ROWS = 300_000


@pytest.fixture(scope="module", params=["memory", "disk"])
def stored(request, tmp_path_factory):
    is_memory = request.param == "memory"
    store = fresh_store() if is_memory else open_store(tmp_path_factory.mktemp("files"))
    noise = np.random.default_rng(1).random(ROWS)
    file = put_file(store, pa.table({"id": np.arange(ROWS), "x": noise}), row_group_size=100_000)
    return store, file


def ids(file, groups=(0, 1, 2)):
    batches = [batch for group in groups for batch in file.fetch(group, [0]).batches()]
    return pa.Table.from_batches(batches)["id"].to_numpy()


def test_a_large_file_costs_one_request_for_its_footer_and_one_for_a_row_group(stored):
    store, file = stored
    counting = CountingStore(store)
    opened = open_file(counting, file.path, bytes_hint=file.bytes)
    assert counting.requests.total() == 1

    assert (ids(opened, groups=[1]) == np.arange(100_000, 200_000)).all()
    assert counting.requests.total() == 2


def test_a_small_file_costs_one_request():
    store = fresh_store()
    file = put_file(store, {"id": list(range(10))}, row_group_size=5)
    counting = CountingStore(store)
    opened = open_file(counting, file.path, bytes_hint=file.bytes)
    assert (ids(opened, groups=[0, 1]) == np.arange(10)).all()
    assert counting.requests.total() == 1


def test_a_row_group_that_is_too_large_for_memory_is_read_in_pieces(stored, monkeypatch):
    monkeypatch.setattr(row_group_reader, "_FETCHED_GROUP_BYTES", 1000)
    store, file = stored
    opened = open_file(CountingStore(store), file.path, bytes_hint=file.bytes)
    assert (ids(opened) == np.arange(ROWS)).all()


def test_a_size_that_the_log_got_wrong_does_no_harm(stored):
    store, file = stored
    for wrong in (0, 10, file.bytes * 2):
        assert (ids(open_file(store, file.path, bytes_hint=wrong)) == np.arange(ROWS)).all()


def test_a_footer_longer_than_the_first_request_is_read(monkeypatch):
    monkeypatch.setattr(row_group_reader, "TAIL_BYTES", 16)
    store = fresh_store()
    file = put_file(store, {"id": list(range(10))})
    opened = open_file(store, file.path, bytes_hint=row_group_reader.WHOLE_FILE_BYTES + 1)
    assert (ids(opened, groups=[0]) == np.arange(10)).all()


def test_what_was_not_fetched_is_read_when_it_is_asked_for(stored):
    store, file = stored
    content = store.get(file.path)
    counting = CountingStore(store)
    opened = open_file(counting, file.path, bytes_hint=file.bytes)
    source = opened.fetch(0, [0]).source

    source.seek(-8, 2)
    assert bytes(source.read()) == content[-8:]
    source.seek(1)
    assert bytes(source.read(3)) == content[1:4]
    assert source.tell() == 4
    source.seek(2, 1)
    assert bytes(source.read(2)) == content[6:8]
    assert (source.size(), source.readable(), source.writable()) == (len(content), True, False)
