"""Listings of whole trees: every object once, in pieces that do not grow with a directory."""

from __future__ import annotations

import random
import uuid

import pytest

from lakehand.errors import StoreUnreachableError
from lakehand.observe.clock import ManualClock
from lakehand.storage import Fault, FaultKind, FaultStore, MemoryStore, open_store, remote
from lakehand.storage.retry import RetryPolicy

#: What sorts just before and after a directory, and names that are not ASCII.
AROUND = ["d!", "d/a", "d/b/c", "d0", "d-1/x", "dé/y", "e☃", "_log/1", "_log/2", "a"]


def s3_store(s3_server):
    return open_store(s3_server.new_uri(), s3_server.options)


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.server)])
def store(request, tmp_path):
    if request.param == "s3":
        return s3_store(request.getfixturevalue("s3_server"))
    return open_store(tmp_path) if request.param == "local" else MemoryStore(uuid.uuid4().hex)


def put_all(store, keys):
    for key in keys:
        store.put(key, key.encode())


def scanned(scan):
    found = [batch.select(["key", "bytes"]).to_pylist() for batch in scan]
    return sorted((row["key"], row["bytes"]) for rows in found for row in rows)


def listed(keys):
    return sorted((key, len(key.encode())) for key in keys)


@pytest.mark.parametrize("directories", [0, 3, 12])
def test_every_object_is_found_once(store, directories):
    chance = random.Random(directories)
    keys = {*AROUND} if directories else {"a", "b", "☃"}
    keys |= {f"p={n}/{chance.randrange(50)}" for n in range(directories) for _ in range(5)}
    put_all(store, keys)

    assert scanned(store.scan()) == listed(keys)
    chosen = store.scan(enter=lambda directory: not directory.startswith(("p=", "_")))
    left_out = {key for key in keys if key.startswith(("p=", "_"))}
    found = scanned(chosen)
    assert set(found) >= set(listed(keys - left_out))
    assert len(found) == len(set(found))


@pytest.mark.server
@pytest.mark.parametrize("jumps", [0, 8])
def test_a_bucket_is_listed_in_pieces(s3_server, monkeypatch, jumps):
    store = s3_store(s3_server)
    keys = {f"{n:03}" for n in range(60)} | {f"d/{n:03}" for n in range(45)} | {"z/1", "zz"}
    put_all(store, keys)
    monkeypatch.setattr(remote, "_LIST_CHUNK", 10)
    monkeypatch.setattr(remote, "_SCAN_CHUNK", 10)
    monkeypatch.setattr(remote, "_MAX_SKIPPED_DIRECTORIES", jumps)

    batches = list(store.scan())
    assert scanned(batches) == listed(keys)
    sizes = [batch.num_rows for batch in batches]
    assert max(sizes) == (10 if jumps else 61)
    assert sum(size == 10 for size in sizes) >= (10 if jumps else 4)


@pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.LOST_ANSWER])
def test_a_listing_that_fails_at_first_is_begun_again(store, kind):
    put_all(store, AROUND)
    fault = Fault(kind=kind, operation="list", times=2)
    patient = {"retry": RetryPolicy(), "clock": ManualClock()}

    assert scanned(FaultStore(store, [fault], **patient).scan()) == listed(AROUND)
    assert fault.hits == 2
    for_ever = Fault(kind=kind, operation="list", times=None)
    with pytest.raises(StoreUnreachableError):
        list(FaultStore(store, [for_ever], **patient).scan())
