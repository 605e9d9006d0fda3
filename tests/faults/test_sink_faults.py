"""A store that fails while a sink writes: nothing is lost, nothing is there twice."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import lakehand
from lakehand.errors import (
    CommitUnknownError,
    LakehandError,
    StoreQuotaError,
    StoreUnreachableError,
)
from lakehand.sink import EpochState, SinkCommitter, TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from lakehand.storage.retry import RetryPolicy
from support.sinks import SCHEMA, batch_of, ids_in
from support.small_disk import grow, small_disk

LOG = "_delta_log/*.json"


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    """Ask for a version that cannot be read once more, at once, and then say that nobody knows."""
    policy = RetryPolicy(max_retries=1, base_delay=timedelta(0))
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", policy)


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def faulty(place, *faults: Fault) -> FaultStore:
    return FaultStore(open_store(place), faults)


def write_epoch(sink, number, ids):
    sink.begin_epoch(number)
    sink.write(batch_of(ids, number))
    return sink.commit_epoch()


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.FAIL_AFTER])
def test_a_commit_whose_answer_is_lost_is_there_once(place, kind):
    fault = Fault(kind=kind, operation="put_if_absent", key=LOG)
    with TableSink(faulty(place, fault), writer_id="w") as sink:
        assert write_epoch(sink, 1, [1, 2]).version == 1
        write_epoch(sink, 2, [3])

    assert fault.hits == 1
    assert ids_in(place) == [1, 2, 3]


def lost_and_unreadable(*, reads: int) -> tuple[Fault, Fault]:
    """Lose the answer of the first commit, and then the answers to whoever asks for it."""
    put = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key=LOG)
    get = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*1.json", times=reads)
    return put, get


def test_an_epoch_whose_outcome_is_unknown_is_found_when_it_is_committed_again(place):
    with TableSink(faulty(place, *lost_and_unreadable(reads=2)), writer_id="w") as sink:
        with pytest.raises(CommitUnknownError):
            write_epoch(sink, 1, [1, 2])
        assert sink.epoch_state is EpochState.UNKNOWN
        receipt = sink.commit_epoch()
        assert receipt.version == 1
        write_epoch(sink, 2, [3])

    assert ids_in(place) == [1, 2, 3]
    assert lakehand.open_table(place).snapshot().version == 2


def test_an_epoch_that_landed_unknown_survives_its_rollback_and_is_skipped(place):
    with TableSink(faulty(place, *lost_and_unreadable(reads=2)), writer_id="w") as sink:
        with pytest.raises(CommitUnknownError):
            write_epoch(sink, 1, [1, 2])
        sink.rollback_epoch()
        assert sink.last_committed_epoch == 1
        assert not sink.begin_epoch(1)
        sink.commit_epoch()

    assert ids_in(place) == [1, 2]


class SlowPuts(FaultStore):
    """Keeps what was put into the log: it may reach the store after all answers."""

    def put_if_absent(self, key, data):
        self.__dict__.setdefault("late", {})[key] = data
        return super().put_if_absent(key, data)


@pytest.mark.parametrize("answers", range(7))
def test_a_put_that_lands_late_names_files_that_are_there_whatever_failed_since(place, answers):
    put = Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent", key=LOG, times=None)
    get = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="*1.json", times=None)
    rest = Fault(kind=FaultKind.FAIL_BEFORE, key="_delta_log*", skip=answers, times=0)
    store = SlowPuts(open_store(place), [put, get, rest])
    with TableSink(store, writer_id="w") as sink:
        with pytest.raises(CommitUnknownError):
            write_epoch(sink, 1, [1, 2])
        get.times, rest.times, rest._seen = 0, None, 0
        with pytest.raises(LakehandError):
            sink.commit_epoch()
        assert sink.epoch_state is EpochState.UNKNOWN
        put.times = rest.times = 0
        sink.rollback_epoch()
        [(key, data)] = store.late.items()
        (place / key).write_bytes(data)
        assert ids_in(place) == [1, 2]


UPSERT = {"write_mode": "upsert", "merge_key": "id"}


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_an_epoch_that_lands_after_its_rollback_is_known_when_it_comes_again(place, options):
    put = Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent", key=LOG, times=None)
    get = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="*1.json", times=None)
    store = SlowPuts(open_store(place), [put, get])
    with TableSink(store, writer_id="w", **options) as sink:
        with pytest.raises(CommitUnknownError):
            write_epoch(sink, 1, [1, 2])
        put.times = get.times = 0
        sink.rollback_epoch()
        sink.begin_epoch(1)
        sink.write(batch_of([1, 2], 1))
        [(key, data)] = [(key, data) for key, data in store.late.items() if "_delta_log" in key]
        (place / key).write_bytes(data)

        assert sink.commit_epoch().version == 1
        write_epoch(sink, 2, [3])

    assert ids_in(place) == [1, 2, 3]


def test_an_overwrite_whose_outcome_is_unknown_is_made_once(place):
    lakehand.open_table(place).append(batch_of([7]))
    put = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key=LOG)
    get = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*2.json", times=2)
    with TableSink(faulty(place, put, get), writer_id="w", write_mode="overwrite") as sink:
        with pytest.raises(CommitUnknownError):
            write_epoch(sink, 1, [1, 2])
        assert sink.commit_epoch().version == 2

    assert ids_in(place) == [1, 2]
    assert lakehand.open_table(place).snapshot().version == 2


def test_a_committer_that_does_not_know_finds_out(place):
    with TableSink(place, writer_id="a", pipeline="orders") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1, 2]))
        described = sink.pre_commit()
    store = faulty(place, *lost_and_unreadable(reads=2))

    with SinkCommitter(store, pipeline="orders") as committer:
        with pytest.raises(CommitUnknownError):
            committer.commit(1, [described])
        assert committer.commit(1, [described]).version == 1
        assert committer.commit(1, [described]) is None

    assert ids_in(place) == [1, 2]


def test_epochs_that_cannot_be_read_are_an_error_and_never_taken_for_none(place):
    with TableSink(place, writer_id="w") as sink:
        write_epoch(sink, 1, [1])
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key=LOG, times=None)

    with pytest.raises(StoreUnreachableError):
        TableSink(faulty(place, fault), writer_id="w").open()

    assert ids_in(place) == [1]


def test_an_epoch_whose_files_cannot_be_written_is_rolled_back_and_written_again(place):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="close_writer", key="*.parquet")
    with TableSink(faulty(place, fault), writer_id="w") as sink:
        with pytest.raises(StoreUnreachableError):
            write_epoch(sink, 1, [1, 2])
        with pytest.raises(StoreUnreachableError):
            sink.commit_epoch()
        sink.rollback_epoch()
        write_epoch(sink, 1, [1, 2])

    assert ids_in(place) == [1, 2]
    assert len(list(place.glob("*.parquet"))) == 1


def test_at_least_once_tries_what_failed_before_newer_rows(place):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="close_writer", key="*.parquet", times=2)
    with TableSink(faulty(place, fault)) as sink:
        sink.write(batch_of([1]))
        with pytest.raises(StoreUnreachableError):
            sink.flush()
        sink.write(batch_of([2]))
        with pytest.raises(StoreUnreachableError):
            sink.flush()
        sink.flush()

    assert ids_in(place) == [1, 2]
    first, *_ = lakehand.open_table(place).history()[::-1][1:]
    assert first.metrics["numOutputRows"] == "1"


def test_at_least_once_finds_a_flush_that_landed_unknown(place):
    with TableSink(faulty(place, *lost_and_unreadable(reads=2))) as sink:
        sink.write(batch_of([1]))
        with pytest.raises(CommitUnknownError):
            sink.flush()
        sink.write(batch_of([2]))

    assert ids_in(place) == [1, 2]


def test_a_full_disk_fails_the_epoch_and_loses_nothing(tmp_path):
    chance = random.Random(7)
    noise = [chance.getrandbits(60) for _ in range(100_000)]
    with small_disk(tmp_path / "disk", 700) as disk:
        lakehand.create_table(disk / "t", SCHEMA)
        with TableSink(disk / "t", writer_id="w") as sink:
            write_epoch(sink, 1, [1, 2])
            sink.begin_epoch(2)
            sink.write(batch_of(noise))
            with pytest.raises(StoreQuotaError):
                sink.commit_epoch()
            sink.rollback_epoch()
            assert ids_in(disk / "t") == [1, 2]
            grow(disk, 8_000)
            write_epoch(sink, 2, noise)

        assert ids_in(disk / "t") == sorted([1, 2, *noise])


def test_a_store_that_fails_now_and_then_costs_no_row(place):
    faults = [
        Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="*", skip=5, times=3),
        Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key="*", skip=1, times=1),
        Fault(kind=FaultKind.FAIL_BEFORE, operation="list", key="*", skip=3, times=2),
        Fault(kind=FaultKind.LOST_ANSWER, operation="put", key="*", skip=2, times=2),
    ]
    store = FaultStore(open_store(place), faults, retry=RetryPolicy(max_retries=5))
    done = 0
    while done < 6:
        try:
            with TableSink(store, writer_id="w") as sink:
                for number in range(1, 7):
                    write_epoch(sink, number, [number, 10 * number])
                    done = number
        except LakehandError:
            continue

    assert ids_in(place) == sorted([*range(1, 7), *range(10, 70, 10)])
