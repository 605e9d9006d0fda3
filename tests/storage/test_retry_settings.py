"""Settings of retries hold for the stores of tables and sinks, and for single calls."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.errors import StoreUnreachableError
from lakehand.observe.clock import ManualClock
from lakehand.sink import TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, RetryPolicy, open_store
from support.sinks import SCHEMA, batch_of


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A table whose log cannot be read; the clock says how long was waited."""
    lakehand.create_table(tmp_path / "t", SCHEMA)
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*", times=None)
    clock = ManualClock()
    store = FaultStore(open_store(tmp_path / "t"), [fault], retry=RetryPolicy(), clock=clock)
    monkeypatch.setattr("lakehand.catalogs.resolve.open_store", lambda *_, **__: store)
    return store, fault, clock


def attempts(broken, action) -> tuple[int, float]:
    """Return how often the store was asked, and for how long was waited, until `action` gave up."""
    _, fault, clock = broken
    hits, began = fault.hits, clock.monotonic()
    with pytest.raises(StoreUnreachableError):
        action()
    return fault.hits - hits, clock.monotonic() - began


def test_max_retries_bounds_the_requests_of_a_table(broken):
    table = lakehand.open_table("t", max_retries=1)
    assert attempts(broken, table.snapshot)[0] == 2


def test_max_retries_of_a_single_call_holds_for_that_call(broken):
    table = lakehand.open_table("t")
    assert attempts(broken, lambda: table.compact(max_retries=0))[0] == 1
    assert attempts(broken, table.compact)[0] == 4


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        ({"retry_base_delay": "20s", "retry_max_delay": "1h"}, 70, 210),
        ({"retry_base_delay": "20s", "retry_max_delay": "2s"}, 6, 6),
        ({}, 0.35, 1.05),
    ],
)
def test_waits_between_retries_follow_the_settings(broken, settings, low, high):
    table = lakehand.open_table("t", **settings)
    assert low <= attempts(broken, table.snapshot)[1] <= high


def test_max_retries_holds_for_the_store_of_a_sink(broken):
    store, fault, _ = broken
    with pytest.raises(StoreUnreachableError):
        TableSink(store, max_retries=5).open()
    assert fault.hits == 6


def test_a_store_keeps_its_own_policy_where_no_setting_is_given(broken):
    store, fault, _ = broken
    with pytest.raises(StoreUnreachableError), TableSink(store) as sink:
        sink.write(batch_of([1]))
    assert fault.hits == 4
