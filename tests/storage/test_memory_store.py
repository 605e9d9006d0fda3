from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from lakehand.errors import ObjectNotFoundError, StoreQuotaError
from lakehand.observe.clock import ManualClock
from lakehand.storage import MemoryStore, open_store


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def test_stores_of_one_name_share_their_objects(name):
    MemoryStore(name).put("d/x", b"1")

    assert open_store(f"memory://{name}").get("d/x") == b"1"
    assert open_store(f"memory://{name}/d").get("x") == b"1"
    with pytest.raises(ObjectNotFoundError):
        open_store(f"memory://{name}-other").get("d/x")


def test_a_store_below_a_path_sees_only_what_is_there(name):
    root, table = MemoryStore(name), open_store(f"memory://{name}/t")
    root.put("t/a/x", b"1")
    root.put("u", b"")

    assert [info.key for info in table.list()] == ["a/x"]
    assert table.head("a/x").key == "a/x"
    assert table.list_directory() == (["a"], [])
    assert table.resolve(f"memory://{name}/u")[0].get("u") == b""


def test_it_counts_files_and_bytes(name):
    store = MemoryStore(name)
    store.put("a", b"123")
    store.put("b", b"4567")
    store.put("a", b"1")

    assert (store.file_count, store.used_bytes) == (2, 5)
    store.delete(["b"])
    assert (store.file_count, store.used_bytes) == (1, 1)


def test_a_full_store_keeps_what_it_had(name):
    store = MemoryStore(name, quota_bytes=10)
    store.put("a", bytes(8))

    for act in (store.put, store.put_if_absent):
        with pytest.raises(StoreQuotaError, match="b"):
            act("b", bytes(3))
    store.put("a", bytes(10))
    assert (store.file_count, store.used_bytes) == (1, 10)


def test_a_writer_that_does_not_fit_leaves_nothing(name):
    store = MemoryStore(name, quota_bytes=1)
    writer = store.open_writer("x")
    writer.write(b"12")

    with pytest.raises(StoreQuotaError):
        writer.close()
    assert store.file_count == 0


def test_each_request_takes_the_latency(name):
    clock = ManualClock()
    store = MemoryStore(name, latency=timedelta(milliseconds=50), clock=clock)
    store.put("x", b"")
    store.get("x")

    assert clock.elapsed == pytest.approx(0.1)


def test_objects_carry_the_time_of_the_clock(name):
    clock = ManualClock()
    store = MemoryStore(name, clock=clock)
    clock.advance(60)
    store.put("x", b"")

    assert store.head("x").modified_at == clock.now()


def test_a_snapshot_can_be_restored(name):
    store = MemoryStore(name)
    store.put("a", b"1")
    snapshot = store.snapshot()
    store.put("a", b"2")
    store.put("b", b"3")
    store.restore(snapshot)

    assert store.get("a") == b"1"
    assert store.file_count == 1
    store.put("a", b"4")
    store.restore(snapshot)
    assert store.get("a") == b"1"


def test_it_remembers_every_request(name):
    store = MemoryStore(name)
    store.put("a", b"1")
    store.get_range("a", start=0, length=1)
    list(store.list())
    store.delete(["a"])

    assert [(done.name, done.key) for done in store.history] == [
        ("put", "a"),
        ("get", "a"),
        ("list", ""),
        ("delete", "a"),
    ]
    store.clear()
    assert store.history == ()
