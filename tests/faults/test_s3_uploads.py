"""Uploads and reads on S3 while answers are lost, cut off or late, and the server dies."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ObjectNotFoundError, StorageError
from lakehand.storage import open_store, remote, s3_composer
from lakehand.storage.crc64 import combine, crc64
from support.compactions import tasks_inline
from support.faulty_proxy import CUT, DELAY, LOSE, REFUSE, run_faulty_proxy
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


@pytest.mark.parametrize("left", [None, 5], ids=["all", "a part"])
def test_an_upload_that_the_store_confirmed_and_lost_is_an_error(uri, s3_server, monkeypatch, left):
    """As a busy server did with uploads of a thousand parts."""
    store, upload = open_store(uri, s3_server.options), remote.obstore.put

    def put_and_lose(client, name, data, **options):
        upload(client, name, data, **options)
        remote.obstore.delete(client, name)
        if left is not None:
            upload(client, name, bytes(left))

    monkeypatch.setattr(remote.obstore, "put", put_and_lose)
    with (
        pytest.raises(StorageError, match=f"has {left or 0} of its 20,971,520 bytes"),
        store.open_writer("big") as writer,
    ):
        writer.write(DATA)


@pytest.fixture
def roomy_server():
    """A server with room for 15 GiB, in memory if there is as much."""
    memory = Path("/dev/shm")
    is_roomy = memory.exists() and shutil.disk_usage(memory).free > 16 * 2**30
    with (
        tempfile.TemporaryDirectory(dir=memory if is_roomy else None) as directory,
        run_s3_server(Path(directory) / "data") as server,
    ):
        yield server


@pytest.mark.soak
def test_an_upload_may_have_more_than_a_thousand_parts(roomy_server, monkeypatch):
    """Of the least size that the server takes, sent and then copied by the server.

    The checksums that the server computes tell that all of them arrived.
    """
    least, parts = s3_composer.MIN_PART_BYTES, 1024
    monkeypatch.setattr(remote, "_PART_BYTES", least)
    monkeypatch.setattr(s3_composer, "_COPIED_PART_BYTES", least)
    block = os.urandom(least)
    store = open_store(roomy_server.new_uri(), roomy_server.options)
    with store.open_writer("big") as writer:
        for _ in range(parts):
            writer.write(block)
        writer.write(b"the end")

    crc, whole = crc64(block), 0
    for _ in range(parts):
        whole = combine(whole, crc, least)
    with store.composer() as composer:
        stored = composer.describe("big")
        assert stored.bytes == parts * least + 7
        assert stored.crc64 == crc64(b"the end", whole)
        assert stored.etag.endswith(f'-{parts + 1}"')

        with composer.open_writer("copy", read=read_range(store)) as writer:
            travelled = writer.copy(stored, 0, parts * least)
            writer.write(b"another end")
        copied = composer.describe("copy")
    assert travelled == 0
    assert copied.bytes == parts * least + 11
    assert copied.crc64 == crc64(b"another end", whole)
    assert copied.etag.endswith(f'-{parts + 1}"')


def read_range(store):
    return lambda key, start, length: store.get_range(key, start=start, length=length)


@pytest.mark.parametrize("directory", ["city=New%20York", "city=New York", "a+b", "ü&<'"])
def test_uploads_are_aborted_whatever_their_names_hold(s3_server, uri, options, directory):
    prefix = uri.removeprefix(f"s3://{s3_server.bucket}/")
    names = [f"{prefix}/{directory}/{number}-x" for number in (1, 1, 2)]
    client = s3_server._client()
    for name in names:
        client.create_multipart_upload(Bucket=s3_server.bucket, Key=name)

    open_store(uri, options).abort_uploads(f"{directory}/1-")
    left = client.list_multipart_uploads(Bucket=s3_server.bucket, Prefix=prefix)["Uploads"]
    assert [upload["Key"] for upload in left] == names[2:]


def test_a_large_upload_has_more_time_to_be_completed(proxy, s3_server, uri, options):
    """Some servers put the object together then, and do not know the upload if asked again."""
    store = open_store(uri, options)
    upload(store)
    proxy.strike_once(DELAY, "POST", "?uploadId=")
    with store.composer() as composer:
        source = composer.describe("big")
        with composer.open_writer("copy", read=read_range(store)) as writer:
            writer.copy(source, 0, source.bytes)
        assert composer.describe("copy").crc64 == source.crc64
    name = f"{uri.removeprefix('s3:/')}/copy?uploadId="
    assert len([path for method, path in proxy.requests if path.startswith(name)]) == 1


@pytest.mark.parametrize("part", ["copied", "sent"])
def test_an_upload_that_another_program_aborts_says_nothing_of_its_source(s3_server, uri, part):
    store, client = open_store(uri, s3_server.options), s3_server._client()
    upload(store)
    with store.composer() as composer:
        source = composer.describe("big")
        writer = composer.open_writer("copy", read=read_range(store))
        upload_id = writer._upload._upload_id()
        name = f"{uri.removeprefix(f's3://{s3_server.bucket}/')}/copy"
        client.abort_multipart_upload(Bucket=s3_server.bucket, Key=name, UploadId=upload_id)
        add = {
            "copied": partial(writer.copy, source, 0, source.bytes),
            "sent": partial(writer.write, DATA),
        }
        with pytest.raises(StorageError, match="aborted") as raised, writer:
            add[part]()
    assert not isinstance(raised.value, ObjectNotFoundError)
    assert raised.value.path == f"{uri}/copy"


def test_a_whole_upload_stays_if_uploads_cannot_be_listed(proxy, s3_server, uri, options):
    """A lost answer may leave a second upload without parts, which is no reason to fail."""
    store = open_store(uri, options)
    proxy.strike_once(LOSE, "POST", "?uploads")
    proxy.refusal = lambda method, path: REFUSE if method == "GET" and "uploads=" in path else None
    with store.composer() as composer:
        with composer.open_writer("copy", read=read_range(store)) as writer:
            writer.write(b"whole")
        assert composer.describe("copy").crc64 == crc64(b"whole")
    assert {method for method, _ in proxy.struck} == {"POST", "GET"}


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
