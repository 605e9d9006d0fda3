"""Uploads and reads on S3 while answers are lost, cut off or late, and the server dies."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import StorageError
from lakehand.storage import open_store
from support.compactions import tasks_inline
from support.faulty_proxy import CUT, DELAY, LOSE, run_faulty_proxy
from support.s3_server import run_s3_server
from support.server_process import free_port

pytestmark = pytest.mark.server
PART = 8 * 2**20
DATA = os.urandom(2**20) * 20


@pytest.fixture
def proxy(s3_server):
    with run_faulty_proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def uri(s3_server):
    return s3_server.new_uri()


@pytest.fixture
def options(s3_server, proxy):
    return {**s3_server.options, "endpoint": proxy.endpoint, "read_timeout": "1s"}


def upload(store):
    with store.open_writer("big") as writer:
        for start in range(0, len(DATA), PART):
            writer.write(DATA[start : start + PART])


@pytest.mark.parametrize("kind", [LOSE, CUT, DELAY])
@pytest.mark.parametrize("part", ["?uploads", "partNumber=2", "?uploadId="])
def test_an_upload_is_whole_or_fails_by_name(proxy, uri, options, s3_server, kind, part):
    store = open_store(uri, options)
    proxy.strike_once(kind, "PUT" if "part" in part else "POST", part)

    try:
        upload(store)
    except StorageError:
        assert "part" not in part, "a part can be sent again"
    else:
        assert store.exists("big")
    assert len(proxy.struck) == 1
    found = open_store(uri, s3_server.options)
    assert [found.get(info.key) == DATA for info in found.list()] in ([], [True])


@pytest.mark.parametrize("kind", [LOSE, CUT, DELAY])
def test_an_answer_that_does_not_arrive_whole_is_asked_for_again(proxy, uri, options, kind):
    store = open_store(uri, options)
    store.put("x", DATA)
    proxy.strike_once(kind, "GET", "/x")
    assert store.get("x") == DATA
    proxy.struck.clear()
    assert store.get_range("x", start=5, length=10) == DATA[5:15]
    proxy.struck.clear()
    proxy.strike_once(kind, "GET", "list-type")
    assert [info.key for info in store.list()] == ["x"]
    assert len(proxy.struck) == 1


@pytest.mark.parametrize("kind", [LOSE, CUT, DELAY])
def test_a_compaction_keeps_every_row(proxy, uri, options, s3_server, kind):
    plain = s3_server.options
    lakehand.create_table(uri, pa.schema([("id", pa.int64())]), storage_options=plain)
    table = lakehand.open_table(uri, storage_options=plain)
    for start in range(0, 50, 10):
        table.append(pa.table({"id": range(start, start + 10)}))
    proxy.strike_once(kind, "PUT", ".parquet")

    with tasks_inline():
        lakehand.open_table(uri, storage_options=options).compact(min_files=2)

    assert len(proxy.struck) == 1
    after = lakehand.open_table(uri, storage_options=plain)
    assert after.snapshot().file_count == 1
    assert sorted(after.to_arrow()["id"].to_pylist()) == list(range(50))


def test_an_upload_survives_the_death_of_the_server_or_fails_by_name(tmp_path):
    port = free_port()
    with run_s3_server(tmp_path, port=port) as server:
        store = open_store(server.new_uri(), server.options)
        writer = store.open_writer("big")
        writer.write(DATA[: 2 * PART + 1])
        os.kill(server.pid, signal.SIGKILL)
    with run_s3_server(tmp_path, port=port):
        try:
            writer.write(DATA[2 * PART + 1 :])
            writer.close()
        except StorageError:
            assert list(store.list()) == []
            upload(store)
        assert [info.key for info in store.list()] == ["big"]
        assert store.get("big") == DATA
