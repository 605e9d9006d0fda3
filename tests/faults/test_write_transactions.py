"""One write, from its first row to a known outcome: no row is lost, and no file is left."""

from __future__ import annotations

from datetime import timedelta

import pytest

import lakehand
from lakehand.errors import CommitUnknownError
from lakehand.model.work import Transaction
from lakehand.observe.clock import SystemClock
from lakehand.settings import Settings
from lakehand.sink.committing import RaceLimit
from lakehand.sink.staging import DescribedFiles
from lakehand.sink.target import Target
from lakehand.sink.transaction import WriteTransaction
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from lakehand.storage.retry import RetryPolicy
from support.sinks import SCHEMA, batch_of, ids_in

LOG = "_delta_log/*.json"


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    policy = RetryPolicy(max_retries=1, base_delay=timedelta(0))
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", policy)


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def target_of(store):
    target = Target(store, Settings({}))
    assert target.find()
    return target


def begin(store, token="token", **commit):
    return WriteTransaction.begin(
        target_of(store), Settings({}), token=token, clock=SystemClock(), **commit
    )


def lost_answer(place, *, lands):
    """Return a store that does not say whether the first commit landed."""
    kind = FaultKind.LOST_ANSWER if lands else FaultKind.FAIL_BEFORE
    put = Fault(kind=kind, operation="put_if_absent", key=LOG)
    get = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*1.json", times=2)
    return FaultStore(open_store(place), (put, get))


def fail_to_commit(transaction, ids):
    transaction.write(batch_of(ids))
    with pytest.raises(CommitUnknownError):
        transaction.commit()


def files_in(place):
    return sorted(path.name for path in place.glob("*.parquet"))


def test_a_write_that_fails_leaves_no_file(place):
    def write_and_fail():
        with begin(open_store(place)) as transaction:
            transaction.write(batch_of([1]))
            assert transaction.stage()
            raise RuntimeError("the source has failed")

    with pytest.raises(RuntimeError):
        write_and_fail()

    assert (files_in(place), ids_in(place)) == ([], [])


def test_an_error_after_the_commit_deletes_nothing(place):
    def commit_and_fail():
        with begin(open_store(place)) as transaction:
            transaction.write(batch_of([1]))
            transaction.commit()
            raise RuntimeError("a checkpoint has failed")

    with pytest.raises(RuntimeError):
        commit_and_fail()

    assert ids_in(place) == [1]


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_without_an_answer_is_resolved_and_made_once(place, lands):
    transaction = begin(lost_answer(place, lands=lands))
    fail_to_commit(transaction, [1, 2])
    assert transaction.is_unknown
    found = transaction.resolve()
    assert (found is not None) is lands

    assert transaction.commit().version == 1
    assert ids_in(place) == [1, 2]


@pytest.mark.parametrize("lands", [True, False])
def test_files_that_a_version_may_refer_to_are_not_discarded(place, lands):
    transaction = begin(lost_answer(place, lands=lands))
    fail_to_commit(transaction, [1])
    transaction.discard()

    assert len(files_in(place)) == 1
    assert ids_in(place) == ([1] if lands else [])


@pytest.mark.parametrize("lands", [True, False])
def test_a_transaction_that_repeats_a_doubtful_one_commits_its_rows_once(place, lands):
    store, mark = lost_answer(place, lands=lands), Transaction(application="w", version=1)
    doubtful = begin(store, token="first", mark=mark)
    fail_to_commit(doubtful, [1])
    again = begin(store, token="second", mark=mark, doubtful=[doubtful])
    assert again.is_in_table is lands
    again.write(batch_of([1]))

    assert again.commit().already_committed is lands
    assert ids_in(place) == [1]


def test_files_of_other_processes_are_committed_or_deleted_with_their_transaction(place):
    target, settings = target_of(open_store(place)), Settings({})
    for number, is_committed in enumerate([True, False]):
        task = begin(open_store(place), token=f"task-{number}")
        task.write(batch_of([number]))
        described = task.describe(writer="task", epoch=0)
        transaction = WriteTransaction(
            target=target,
            staging=DescribedFiles(target, described.files, table_id=described.table_id),
            token=f"driver-{number}",
            limit=RaceLimit.of(settings),
            clock=SystemClock(),
        )
        if is_committed:
            transaction.commit()
        transaction.discard()

    assert (ids_in(place), len(files_in(place))) == ([0], 1)
