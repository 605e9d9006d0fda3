"""Workers tell that they are alive, and one scheduler leads, on both kinds of store."""

from __future__ import annotations

import pytest

from lakehand.errors import JobNotFoundError
from lakehand.service.store.worker_registry import Leadership, Worker, WorkerRegistry


def worker(name):
    return Worker(
        id=name, host="h", pid=1, version="0.1", engines=["local"], slots=2, memory_bytes=1
    )


def test_a_worker_hears_what_is_asked_of_it(database):
    registry = WorkerRegistry(database)
    registry.start(worker("a"))
    assert registry.beat("a") is None
    registry.ask("a", "drain")
    assert registry.beat("a") == "drain"
    with pytest.raises(JobNotFoundError, match="no worker 'b'"):
        registry.ask("b", "drain")


def test_a_silent_worker_is_lost(database, clock):
    registry = WorkerRegistry(database)
    registry.start(worker("a"))
    registry.start(worker("b"))
    clock.advance(100)
    registry.beat("b")
    assert registry.forget_lost(silent_seconds=60) == ["a"]
    assert [alive.id for alive in registry.alive(within_seconds=60)] == ["b"]


def test_one_process_leads_until_its_lease_runs_out(database, clock):
    first, second = (Leadership(database, "scheduler", name) for name in ("a", "b"))
    assert (first.hold(30), second.hold(30)) == (True, False)
    clock.advance(29)
    assert (first.hold(30), second.hold(30)) == (True, False)
    clock.advance(31)
    assert (second.hold(30), first.hold(30)) == (True, False)
    second.release()
    assert first.hold(30)
