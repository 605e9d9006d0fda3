"""Of many writers, one writes the checkpoint that is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lakehand.formats.delta.checkpoints.checkpoint import checkpoint_if_due
from lakehand.formats.delta.commits.create import create_table
from lakehand.formats.delta.table import DeltaTable
from lakehand.model.work import Change
from lakehand.observe.clock import ManualClock
from lakehand.storage import MemoryStore
from support.log_tables import SCHEMA

INTERVAL = 4


def busy_table(name, *, versions):
    """Return a table without a checkpoint, and the clock of its store."""
    clock = ManualClock()
    store = MemoryStore(name, clock=clock)
    create_table(store, SCHEMA, properties={"delta.checkpointInterval": "100"}, clock=clock)
    table, change = (
        DeltaTable(store, clock=clock),
        Change(kind="metadata", base_version=0, operation="X"),
    )
    for version in range(1, versions + 1):
        table.commit(replace(change, base_version=version - 1), token=str(version))
    return store, clock


def written(store, version, clock):
    receipt = checkpoint_if_due(store, interval=INTERVAL, committed_version=version, clock=clock)
    return None if receipt is None else receipt.version


def test_the_writer_that_completes_the_interval_writes():
    store, clock = busy_table("turn-1", versions=5)

    assert written(store, 4, clock) is None
    assert written(store, 3, clock) == 5


def test_the_others_wait_a_minute_and_write_then():
    store, clock = busy_table("turn-2", versions=5)
    clock.advance(timedelta(seconds=59).total_seconds())
    assert written(store, 5, clock) is None

    clock.advance(2)

    assert written(store, 5, clock) == 5


def test_nobody_writes_before_it_is_due():
    store, clock = busy_table("turn-3", versions=2)
    clock.advance(3_600)

    assert written(store, 2, clock) is None
