"""The ledger of a run, on a store in memory."""

from __future__ import annotations

import errno
import pickle
import threading
import time
from datetime import timedelta
from unittest.mock import Mock

import pytest

from lakehand.errors import (
    CommitConflictError,
    CommitUnknownError,
    RunError,
    RunTakenError,
    StorageError,
)
from lakehand.model.work import Change, GroupResult, Replacement
from lakehand.observe.clock import ManualClock
from lakehand.runs import Heartbeat, Run, commit_results, ledger, list_runs
from lakehand.storage import Fault, FaultKind, FaultStore, MemoryStore, open_store
from support.ledgers import LedgerTable, do_group, start_run, write_output


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(request, clock):
    store = MemoryStore(f"{request.node.nodeid}".replace("/", "-"), clock=clock)
    return LedgerTable.with_files(store, "a", "b", "c")


@pytest.fixture
def run(table, clock):
    return start_run(table, table.groups("a", "b"), clock)


def keys(store, prefix=""):
    return [info.key for info in store.list(prefix)]


def change_of(table, *results: GroupResult):
    groups = {group.id: group for group in table.groups("a", "b")}
    replacements = tuple(
        Replacement(group=item.group, removes=groups[item.group].inputs, adds=item.outputs)
        for item in results
    )
    return Change(kind="rewrite", base_version=0, operation="compact", replacements=replacements)


def test_a_run_survives_pickling(run):
    twin = pickle.loads(pickle.dumps(run))

    assert (twin.id, twin.identity()) == (run.id, run.identity())


def test_a_stem_is_in_the_ledger_before_any_byte_and_never_given_twice(run):
    first, second = run.reserve(7, attempt=0), run.reserve(7, attempt=0)

    assert first != second
    assert {item.stem for item in run.reservations()} == {first, second}
    assert run.id in first


def test_the_first_result_of_a_group_counts_whatever_comes_later(table, run):
    group = table.groups("a")[0]
    first = do_group(run, group)
    later = write_output(run, group)

    assert run.record(later) == first
    assert run.results() == [first]


def test_results_can_be_read_as_they_come(table, run):
    first, second = table.groups("a", "b")
    do_group(run, first)
    assert [item.group for item in run.results()] == [0]

    do_group(run, second)
    assert [item.group for item in run.results(known={0})] == [1]


def test_a_result_whose_answer_was_lost_is_recorded(table, run):
    store = FaultStore(table.store, [Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent")])
    flaky = Run(store=store, id=run.id, clock=run.clock)

    result = write_output(run, table.groups("a")[0])

    assert flaky.record(result) == result


def test_a_result_that_did_not_reach_the_store_is_put_again(table, run):
    store = FaultStore(table.store, [Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent")])
    flaky = Run(store=store, id=run.id, clock=run.clock)

    result = write_output(run, table.groups("a")[0])

    assert flaky.record(result) == result
    assert run.results() == [result]


def test_a_result_that_never_reaches_the_store_is_an_error(table, run):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent", times=None)
    flaky = Run(store=FaultStore(table.store, [fault]), id=run.id, clock=run.clock)

    with pytest.raises(RunError, match=r"000000.json .* could not be recorded"):
        flaky.record(write_output(run, table.groups("a")[0]))


def test_a_committed_run_leaves_its_outputs_and_nothing_else(table, run):
    results = [do_group(run, group) for group in table.groups("a", "b")]

    receipt = commit_results(run, table, change_of(table, *results), results=results)
    run.finish()

    assert receipt.version == 1
    assert set(keys(table.store)) == {"a", "b", "c", *(item.outputs[0].path for item in results)}


def test_finishing_deletes_attempts_that_reported_nothing(table, run):
    result = do_group(run, table.groups("a")[0])
    write_output(run, table.groups("a")[0])

    commit_results(run, table, change_of(table, result), results=[result])
    run.finish()

    assert set(keys(table.store)) == {"a", "b", "c", result.outputs[0].path}


def test_a_stem_without_a_directory_is_searched_in_the_whole_table(table, run):
    stem = run.reserve(0)
    table.store.put(f"day=1/{stem}-0.parquet", b"rows")
    table.store.put("day=1/other.parquet", b"rows")

    run.finish()

    assert keys(table.store) == ["a", "b", "c", "day=1/other.parquet"]


def test_a_stem_with_a_directory_is_listed_there_only(table, run):
    stem = run.reserve(0, directory="day=1")
    table.store.put(f"day=1/{stem}-0.parquet", b"rows")
    table.store.put("day=1/zzz.parquet", b"rows")

    run.finish()

    assert keys(table.store) == ["a", "b", "c", "day=1/zzz.parquet"]


def test_outputs_of_a_group_that_lost_are_deleted_and_the_rest_is_committed(table, run):
    lost, kept = (do_group(run, group) for group in table.groups("a", "b"))
    change = change_of(table, lost, kept)
    del table.live["a"]

    receipt = commit_results(run, table, change, results=[lost, kept])

    assert receipt.dropped == (0,)
    assert not table.store.exists(lost.outputs[0].path)
    assert table.store.exists(kept.outputs[0].path)


def test_a_proven_loss_deletes_the_outputs(table, run):
    result = do_group(run, table.groups("a")[0])
    change = change_of(table, result)
    del table.live["a"]

    with pytest.raises(CommitConflictError):
        commit_results(run, table, change, results=[result])

    assert not table.store.exists(result.outputs[0].path)


def test_a_commit_of_unknown_outcome_keeps_every_file(table, run, monkeypatch):
    result = do_group(run, table.groups("a")[0])

    def lose_the_answer(change, *, token):
        raise CommitUnknownError("no answer")

    monkeypatch.setattr(table, "commit", lose_the_answer)
    with pytest.raises(CommitUnknownError):
        commit_results(run, table, change_of(table, result), results=[result])

    run.finish()

    assert table.store.exists(result.outputs[0].path)
    assert list_runs(table.store) == [run.id]


def test_a_store_that_fails_after_the_commit_does_not_make_it_a_failure(table, run):
    result = do_group(run, table.groups("a")[0])
    faults = [
        Fault(kind=FaultKind.FAIL_BEFORE, operation="put", key="*settled*"),
        Fault(kind=FaultKind.FAIL_BEFORE, operation="delete", times=None),
    ]
    flaky = Run(store=FaultStore(table.store, faults), id=run.id, clock=run.clock)

    receipt = commit_results(flaky, table, change_of(table, result), results=[result])
    flaky.finish()

    assert receipt.version == 1
    assert run.unsettled() != []


def test_batches_get_fates_of_their_own(table, run):
    first, second = (do_group(run, group) for group in table.groups("a", "b"))

    fates = [run.decide_fate([item], base_version=3) for item in (first, second)]

    assert [fate.batch for fate in fates] == [0, 1]
    assert fates[0].token != fates[1].token
    assert run.fates() == fates


def test_a_fate_whose_answer_was_lost_is_still_ours(table, run):
    store = FaultStore(table.store, [Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent")])
    flaky = Run(store=store, id=run.id, clock=run.clock)

    assert flaky.decide_fate([], base_version=0) == run.fates()[0]


def test_a_fate_that_never_reached_the_store_stops_the_commit(table, run):
    store = FaultStore(table.store, [Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent")])

    with pytest.raises(StorageError):
        Run(store=store, id=run.id, clock=run.clock).decide_fate([], base_version=0)

    assert run.fates() == []


def test_an_incomplete_listing_cannot_make_a_batch_commit_twice(table, run):
    run.decide_fate([], base_version=0)
    short = Fault(kind=FaultKind.SHORT_LIST, operation="list", key="*fates*", times=None)
    blind = Run(store=FaultStore(table.store, [short]), id=run.id, clock=ManualClock())

    with pytest.raises(RunError, match="has decided on batch 0 already"):
        blind.decide_fate([], base_version=5)


def test_a_closed_run_commits_nothing_more(run):
    run.close()

    with pytest.raises(RunError, match="closed"):
        run.decide_fate([], base_version=0)


def test_a_run_whose_ledger_was_dropped_commits_nothing(run):
    run.drop()

    with pytest.raises(RunTakenError, match="its ledger is gone"):
        run.decide_fate([], base_version=0)


def test_deletions_of_results_are_synced_before_fates_are_deleted(tmp_path, monkeypatch, clock):
    """Also those of an earlier attempt that was killed before it synced."""
    table = LedgerTable.with_files(open_store(tmp_path), "a", "b", "c")
    run = start_run(table, table.groups("a", "b"), clock)
    run.reserve(0)
    run.close()
    synced = []

    def sync(path):
        left = sorted(name.partition("/")[0] for name in run.entries())
        synced.append((path.rpartition("/")[2], left))

    monkeypatch.setattr(ledger, "sync_directory", sync)
    run.discard([run.key(name) for name in run.entries() if name.startswith("stems/")])

    run.drop()

    assert [name for name, _ in synced] == ["stems", run.id]
    assert all("fates" in left and "stems" not in left for _, left in synced)


def test_a_directory_that_cannot_be_synced_is_an_error_of_the_store(tmp_path, monkeypatch, clock):
    table = LedgerTable.with_files(open_store(tmp_path), "a", "b", "c")
    run = start_run(table, table.groups("a", "b"), clock)
    run.reserve(0)
    monkeypatch.setattr(ledger, "sync_directory", Mock(side_effect=OSError(errno.EIO, "broken")))
    with pytest.raises(StorageError):
        run.drop()


def test_a_ledger_that_cannot_be_deleted_keeps_its_later_parts(table, run):
    run.reserve(0)
    refused = StorageError("read-only", path="stems")
    faults = [Fault(kind=FaultKind.FAIL_BEFORE, operation="delete", error=refused)]
    stuck = Run(store=FaultStore(table.store, faults), id=run.id, clock=run.clock)

    with pytest.raises(StorageError, match="read-only"):
        stuck.drop()

    assert run.identity() is not None


def test_only_a_run_with_a_ledger_can_be_opened(table, run):
    assert Run.open(table.store, run.id).identity() == run.identity()

    with pytest.raises(RunTakenError):
        Run.open(table.store, "20260101T000000-unknown")


def test_the_last_sign_of_life_is_the_start_then_the_heartbeat(run, clock):
    started = clock.now()
    assert run.last_sign() == started

    clock.advance(30)
    run.beat()
    assert run.last_sign() == started + timedelta(seconds=30)


def test_a_heartbeat_stops_a_run_that_was_dropped(run):
    stopped = threading.Event()

    with Heartbeat(run, interval=timedelta(milliseconds=1), on_stop=stopped.set):
        run.drop()
        assert stopped.wait(60)


def test_a_heartbeat_outlives_a_store_that_does_not_answer(table, run):
    stopped = threading.Event()
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="put", key="*heartbeat*", skip=1, times=3)
    flaky = Run(store=FaultStore(table.store, [fault]), id=run.id, clock=run.clock)

    with Heartbeat(flaky, interval=timedelta(milliseconds=1), on_stop=stopped.set):
        deadline = time.monotonic() + 60
        while fault.hits < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not stopped.is_set()
        run.drop()
        assert stopped.wait(60)

    assert fault.hits == 3
