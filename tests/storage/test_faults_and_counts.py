"""The wrappers that tests of other parts rely on."""

from __future__ import annotations

import pickle
import uuid
from datetime import timedelta

import pytest

from lakehand.errors import AccessDeniedError, StorageError, StoreUnreachableError
from lakehand.observe.clock import ManualClock
from lakehand.storage import (
    CountingStore,
    Fault,
    FaultKind,
    FaultStore,
    MemoryStore,
    RetryPolicy,
    Store,
    open_store,
)


@pytest.fixture
def inner() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    for number in range(5):
        store.put(f"log/{number}", str(number).encode())
    return store


def keys(store: Store) -> list[str]:
    return [info.key for info in store.list("log")]


def test_fail_before_never_reaches_the_store(inner):
    store = FaultStore(inner, [Fault(kind=FaultKind.FAIL_BEFORE, operation="put")])

    with pytest.raises(StoreUnreachableError):
        store.put("x", b"")
    assert not inner.exists("x")
    store.put("x", b"")
    assert inner.exists("x")


def test_fail_after_did_what_was_asked(inner):
    store = FaultStore(inner, [Fault(kind=FaultKind.FAIL_AFTER, operation="put")])

    with pytest.raises(StorageError) as raised:
        store.put("x", b"")
    assert not raised.value.retryable
    assert inner.exists("x")


def test_a_lost_answer_of_put_if_absent_is_not_repeated(inner):
    fault = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key="log/*")
    store = FaultStore(inner, [fault], retry=RetryPolicy(), clock=ManualClock())

    with pytest.raises(StoreUnreachableError):
        store.put_if_absent("log/5", b"mine")
    assert inner.get("log/5") == b"mine"
    assert fault.hits == 1


def test_a_partial_list_breaks_off_with_an_error(inner):
    store = FaultStore(inner, [Fault(kind=FaultKind.PARTIAL_LIST, objects=2)])
    seen = []

    with pytest.raises(StoreUnreachableError):
        seen.extend(info.key for info in store.list("log"))
    assert keys(store) == keys(inner)


def test_a_short_list_ends_as_if_it_were_whole(inner):
    store = FaultStore(inner, [Fault(kind=FaultKind.SHORT_LIST, objects=2)])

    assert keys(store) == ["log/0", "log/1"]


def test_a_list_that_breaks_off_goes_on_where_it_stopped(inner):
    clock = ManualClock()
    faults = [Fault(kind=FaultKind.PARTIAL_LIST, objects=2, times=2)]
    store = FaultStore(inner, faults, retry=RetryPolicy(), clock=clock)

    assert keys(store) == [f"log/{number}" for number in range(5)]
    assert len(clock.sleeps) == 2


def test_a_list_that_never_gets_on_is_given_up(inner):
    clock = ManualClock()
    faults = [Fault(kind=FaultKind.PARTIAL_LIST, times=None)]

    with pytest.raises(StoreUnreachableError):
        keys(FaultStore(inner, faults, retry=RetryPolicy(), clock=clock))
    assert len(clock.sleeps) == 3


def test_slow_takes_longer_and_works(inner):
    clock = ManualClock()
    fault = Fault(kind=FaultKind.SLOW, operation="get", delay=timedelta(seconds=7))

    assert FaultStore(inner, [fault], clock=clock).get("log/1") == b"1"
    assert clock.elapsed == 7


def test_faults_choose_by_operation_key_and_count(inner):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="log/[34]", skip=1, times=2)
    store = FaultStore(inner, [fault])
    outcomes = []
    for key in ("log/1", "log/3", "log/4", "log/3", "log/4"):
        try:
            store.get(key)
        except StoreUnreachableError:
            outcomes.append("failed")
        else:
            outcomes.append("worked")

    assert outcomes == ["worked", "worked", "failed", "failed", "worked"]
    store.head("log/3")


def test_the_error_can_be_chosen(inner):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, error=AccessDeniedError("not you"))

    with pytest.raises(AccessDeniedError, match="not you"):
        FaultStore(inner, [fault]).get("log/1")


def test_what_may_succeed_later_is_tried_again_when_asked_to(inner):
    clock = ManualClock()
    faults = [Fault(kind=FaultKind.FAIL_BEFORE, operation="get", times=3)]
    store = FaultStore(inner, faults, retry=RetryPolicy(), clock=clock)

    assert store.get("log/1") == b"1"
    assert len(clock.sleeps) == 3


@pytest.mark.parametrize("operation", ["open_writer", "close_writer"])
def test_a_writer_can_fail_and_then_leaves_nothing(inner, operation):
    store = FaultStore(inner, [Fault(kind=FaultKind.FAIL_BEFORE, operation=operation)])

    with pytest.raises(StoreUnreachableError), store.open_writer("x") as writer:
        writer.write(b"1")
    assert not inner.exists("x")


def test_a_store_with_faults_can_be_pickled(inner):
    store = FaultStore(inner, [Fault(kind=FaultKind.FAIL_BEFORE, operation="get")])

    with pytest.raises(StoreUnreachableError):
        pickle.loads(pickle.dumps(store)).get("log/1")


def test_requests_and_bytes_are_counted(inner):
    store = CountingStore(inner)
    store.get("log/1")
    store.get_range("log/2", start=0, length=1)
    store.get_ranges("log/2", [(0, 1), (0, 1)])
    store.get_tail("log/3", 8)
    store.put("x", b"123")
    with store.open_writer("y") as writer:
        writer.write(b"4567")
    assert len(list(store.list())) == 7
    store.delete(["x"])

    assert store.bytes_read == 5
    assert store.bytes_read_of("log/2") == 3
    assert store.bytes_written == 7
    assert store.requests == {
        "get": 1, "get_range": 1, "get_ranges": 1, "get_tail": 1, "put": 1, "open_writer": 1,
        "close_writer": 1, "list": 1, "delete": 1,
    }  # fmt: skip
    store.reset()
    assert (store.bytes_read, store.requests) == (0, {})


def test_a_counting_store_counts_what_readers_of_local_files_read(tmp_path):
    store = CountingStore(open_store(tmp_path))
    store.put("x", bytes(100))

    assert store.local_path("x") is None
    with store.open_reader("x") as reader:
        reader.seek(90)
        reader.read()
    assert store.bytes_read == 10
    assert store.requests["head"] == 1


def test_a_counting_store_can_be_pickled(inner):
    store = pickle.loads(pickle.dumps(CountingStore(inner)))
    store.get("log/1")

    assert store.bytes_read == 1
