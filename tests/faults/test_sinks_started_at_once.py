"""Sinks that are opened at once under one writer id: exactly one of them goes on."""

from __future__ import annotations

import threading

import pytest

import lakehand
from lakehand.errors import WriterCollisionError
from lakehand.sink import TableSink
from lakehand.sink.writer_lease import WriterLease
from lakehand.storage import MemoryStore
from support.sinks import SCHEMA, batch_of, ids_in

EPOCHS = 3


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def write_all(place, number, start, ended):
    """Write epochs of rows that only this writer has; note what came of it."""
    start.wait()
    try:
        with TableSink(place, writer_id="w", sink_maintenance=False) as sink:
            for epoch in range(EPOCHS):
                sink.begin_epoch(epoch)
                sink.write(batch_of([number * 100 + epoch], epoch))
                sink.commit_epoch()
        ended[number] = "done"
    except WriterCollisionError:
        ended[number] = "collision"


def start_at_once(place, writers):
    start, ended = threading.Barrier(writers), {}
    threads = [
        threading.Thread(target=write_all, args=(place, number, start, ended))
        for number in range(1, writers + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


@pytest.mark.parametrize("attempt", range(4))
def test_of_sinks_that_begin_at_once_one_goes_on_to_its_end(place, attempt):
    ended = start_at_once(place, 3)
    assert "done" in ended.values(), ended
    # Whoever begins when another has ended finds its epochs in the table, as after a restart.
    assert sorted(number % 100 for number in ids_in(place)) == list(range(EPOCHS))


def test_a_sink_whose_commit_landed_unseen_takes_the_lease_back(place):
    with TableSink(place, writer_id="w", sink_maintenance=False) as old:
        old.begin_epoch(0)
        old.write(batch_of([1], 0))
        old.pre_commit()
        new = TableSink(place, writer_id="w", sink_maintenance=False).open()
        new.begin_epoch(0)
        new.write(batch_of([2], 0))
        old.commit_epoch()
        old.begin_epoch(1)
        old.write(batch_of([3], 1))
        old.commit_epoch()
        with pytest.raises(WriterCollisionError):
            new.commit_epoch()
        new.close()
    assert ids_in(place) == [1, 3]


def test_a_sink_that_has_seen_all_epochs_keeps_the_lease(place):
    old = TableSink(place, writer_id="w", sink_maintenance=False).open()
    old.begin_epoch(0)
    old.write(batch_of([1], 0))
    old.commit_epoch()
    with TableSink(place, writer_id="w", sink_maintenance=False) as new:
        assert not new.begin_epoch(0)
        new.commit_epoch()
        old.begin_epoch(1)
        old.write(batch_of([2], 1))
        with pytest.raises(WriterCollisionError):
            old.commit_epoch()
        new.begin_epoch(1)
        new.write(batch_of([3], 1))
        new.commit_epoch()
    old.close()
    assert ids_in(place) == [1, 3]


def test_of_many_that_put_up_a_lease_at_once_exactly_one_has_it(request):
    store = MemoryStore(request.node.nodeid.replace("/", "-"))
    leases = [WriterLease(store=store, writer_id="w", session=str(number)) for number in range(16)]
    start = threading.Barrier(len(leases))

    def acquire(lease):
        start.wait()
        lease.acquire()

    threads = [threading.Thread(target=acquire, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def has_it(lease):
        try:
            return lease.check()
        except WriterCollisionError:
            return False

    assert sum(has_it(lease) for lease in leases) == 1
    assert len(list(store.list("_lakehand/writers"))) == 1
