"""The way of a change into the log: races, lost answers, and who knows what afterwards."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitUnknownError,
    ConditionalPutError,
    CorruptLogError,
    ObjectExistsError,
    RefusedError,
    ReplanError,
    StoreQuotaError,
    ValidationError,
)
from lakehand.formats.delta.commits.commit import commit_change, find_commit
from lakehand.formats.delta.commits.draft import encode_actions
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.observe.clock import ManualClock
from lakehand.settings import Settings
from lakehand.storage import Fault, FaultKind, FaultStore
from support.changes import append, overwrite, replacement, rewrite
from support.log_tables import apply, commits, head_of, live_files, new_table


def tokens(store):
    return [commit.commit_info["txnId"] for commit in commits(store)[1:]]


def faulty(store, kind, *, operation="put_if_absent", **fault):
    return FaultStore(store, [Fault(kind=kind, operation=operation, **fault)], clock=ManualClock())


def test_a_change_becomes_the_next_version():
    store = new_table()

    receipt = apply(store, append("a", base_version=0))

    assert (receipt.version, receipt.attempts, receipt.files_added) == (1, 1, 1)
    assert list(live_files(store)) == ["a"]


def test_a_commit_without_a_token_is_refused():
    with pytest.raises(ValidationError, match="needs a token"):
        apply(new_table(), append("a", base_version=0), token="")


def test_a_commit_rebases_over_appends_that_came_first():
    store = new_table()
    apply(store, append("a", base_version=0), token="first")
    apply(store, append("b", base_version=1), token="second")

    receipt = apply(store, append("c", base_version=0), token="third")

    assert (receipt.version, receipt.attempts) == (3, 2)
    assert tokens(store) == ["first", "second", "third"]


class Racing(FaultStore):
    """A store in which another writer commits right before each of our first puts."""

    def __init__(self, store, rivals):
        super().__init__(store, [])
        self._store, self._rivals = store, list(rivals)

    def put_if_absent(self, key, data):
        if self._rivals:
            rival = self._rivals.pop(0)
            base = head_of(self._store).version
            apply(self._store, append(rival, base_version=base), token=rival)
        super().put_if_absent(key, data)


def test_every_lost_race_is_counted_and_waited_for():
    store, clock = new_table(), ManualClock()

    receipt = apply(
        store, append("x", base_version=0), through=Racing(store, ["r1", "r2", "r3"]), clock=clock
    )

    assert (receipt.version, receipt.attempts) == (4, 4)
    assert clock.sleeps == sorted(clock.sleeps)
    assert len(clock.sleeps) == 3


def test_no_wait_without_a_lost_race():
    store, clock = new_table(), ManualClock()
    apply(store, append("a", base_version=0), token="other")

    apply(store, append("b", base_version=0), clock=clock)

    assert clock.sleeps == []


def test_a_writer_that_always_loses_gives_up_and_says_so():
    store = new_table()
    racing = Racing(store, [f"r{i}" for i in range(9)])

    with pytest.raises(CommitConflictError, match="faster 3 times"):
        apply(
            store,
            append("x", base_version=0),
            through=racing,
            settings=Settings({"commit_attempts": 3}),
        )
    assert "token" not in tokens(store)


def test_a_writer_gives_up_when_its_time_is_over():
    store, clock = new_table(), ManualClock()
    racing = Racing(store, [f"r{i}" for i in range(99)])

    settings = Settings({"commit_timeout": timedelta(milliseconds=100)})

    with pytest.raises(CommitConflictError):
        apply(store, append("x", base_version=0), through=racing, settings=settings, clock=clock)
    assert clock.elapsed == pytest.approx(0.15, abs=0.05)


def test_salvage_commits_the_groups_that_are_left():
    store = new_table()
    apply(store, append("a", "b", "c", "d", base_version=0), token="load")
    files = live_files(store)
    change = rewrite(replacement(1, "a", "b"), replacement(2, "c", "d"), base_version=1)
    rival = rewrite(replacement(1, "a", output="elsewhere"), base_version=1)
    apply(store, rival, token="rival")

    receipt = apply(store, change)

    assert (receipt.version, receipt.dropped, receipt.files_removed) == (3, (1,), 2)
    assert set(live_files(store)) == {"b", "elsewhere", "out-2.parquet"}
    assert set(files) == {"a", "b", "c", "d"}


def test_the_proof_is_that_of_the_groups_that_are_left():
    evidence = {"kind": "digest", "digest": None, "bytes": 1, "algorithm": "a", "engine": "e"}
    proof = {"1": {**evidence, "rows": 10}, "2": {**evidence, "rows": 20}}
    store = new_table()
    apply(store, append("a", "b", "c", base_version=0), token="load")
    apply(store, rewrite(replacement(1, "a", output="x"), base_version=1), token="rival")

    groups = replacement(1, "a"), replacement(2, "b", "c")
    apply(store, rewrite(*groups, base_version=1, proof=proof))

    stored = commits(store)[-1].commit_info["lakehand"]["proof"]
    assert (stored["rows"], stored["groups"]) == (20, 1)


def test_the_time_in_a_commit_is_later_than_that_of_the_winner_it_rebased_over():
    store = new_table(delta_enableInCommitTimestamps="true")
    future = 4_000_000_000_000
    info = {"inCommitTimestamp": future, "txnId": "from the future"}
    store.put(commit_key(1), encode_actions([("commitInfo", info)]))

    apply(store, append("a", base_version=0))

    assert commits(store)[-1].in_commit_timestamp == future + 1


def test_nothing_is_written_when_every_group_is_lost():
    store = new_table()
    apply(store, append("a", base_version=0), token="load")
    apply(store, rewrite(replacement(1, "a", output="x"), base_version=1), token="rival")

    with pytest.raises(CommitConflictError):
        apply(store, rewrite(replacement(1, "a"), base_version=1))
    assert tokens(store) == ["load", "rival"]


def test_metadata_that_changed_stops_the_commit():
    store = new_table()
    changed = {**head_of(store).metadata.to_json(), "configuration": {"delta.appendOnly": "true"}}
    store.put(commit_key(1), encode_actions([("metaData", changed)]))

    with pytest.raises(ReplanError):
        apply(store, append("a", base_version=0))
    assert head_of(store).version == 1


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.FAIL_AFTER])
def test_a_put_that_landed_is_ours_whatever_the_answer(kind):
    store = new_table()

    receipt = apply(store, append("a", base_version=0), through=faulty(store, kind))

    assert receipt.version == 1
    assert tokens(store) == ["token"]


def test_a_put_that_landed_and_is_reported_as_taken_is_ours():
    store = new_table()
    error = ObjectExistsError("exists")

    receipt = apply(
        store, append("a", base_version=0), through=faulty(store, FaultKind.FAIL_AFTER, error=error)
    )

    assert (receipt.version, tokens(store)) == (1, ["token"])


def test_a_put_that_never_arrived_is_tried_again_at_the_same_version():
    store = new_table()

    receipt = apply(
        store, append("a", base_version=0), through=faulty(store, FaultKind.FAIL_BEFORE, times=2)
    )

    assert (receipt.version, receipt.attempts) == (1, 3)
    assert tokens(store) == ["token"]


class LateLanding(FaultStore):
    """A store that loses an answer, and where others commit before we can look."""

    def __init__(self, store, rivals):
        super().__init__(store, [Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent")])
        self._store, self._rivals = store, rivals

    def get(self, key):
        while self._rivals:
            rival = self._rivals.pop()
            base = head_of(self._store).version
            apply(self._store, append(rival, base_version=base), token=rival)
        return super().get(key)


def test_a_lost_answer_is_recognised_after_others_committed_too():
    store = new_table()

    receipt = apply(store, append("a", base_version=0), through=LateLanding(store, ["r1", "r2"]))

    assert receipt.version == 1
    assert sorted(tokens(store)) == ["r1", "r2", "token"]


def test_a_silent_store_leaves_the_outcome_unknown():
    store = new_table()
    faults = [
        Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent"),
        Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="*1.json", times=None),
    ]

    with pytest.raises(CommitUnknownError, match="version 1"):
        apply(store, append("a", base_version=0), through=FaultStore(store, faults))
    assert find_commit(store, "token", after=0) == 1


def test_a_store_that_never_takes_the_put_leaves_the_outcome_unknown():
    store = new_table()

    with pytest.raises(CommitUnknownError):
        apply(
            store,
            append("a", base_version=0),
            through=faulty(store, FaultKind.FAIL_BEFORE, times=None),
        )


def test_an_unanswered_put_makes_every_later_error_unknown():
    store = new_table()
    faults = [
        Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent", times=1),
        Fault(kind=FaultKind.FAIL_BEFORE, operation="list", skip=1, times=None),
    ]

    with pytest.raises(CommitUnknownError):
        apply(store, append("a", base_version=0), through=FaultStore(store, faults))


class Forgetful(FaultStore):
    """A store that takes a commit and does not have it."""

    def __init__(self, store):
        super().__init__(store, [])

    def put_if_absent(self, key, data):
        pass


def test_a_store_that_forgets_what_it_took_leaves_the_outcome_unknown():
    store = new_table()

    with pytest.raises(CommitUnknownError, match="does not have it"):
        apply(store, append("a", base_version=0), through=Forgetful(store))


@pytest.mark.parametrize("error", [AccessDeniedError("no"), StoreQuotaError("full")])
def test_a_clear_no_of_the_store_is_raised_as_it_is(error):
    store = new_table()

    with pytest.raises(type(error)):
        apply(
            store,
            append("a", base_version=0),
            through=faulty(store, FaultKind.FAIL_BEFORE, error=error),
        )
    assert tokens(store) == []


def test_a_store_without_put_if_absent_is_refused():
    store = new_table()
    error = ConditionalPutError("no put-if-absent here")

    with pytest.raises(ConditionalPutError):
        apply(
            store,
            append("a", base_version=0),
            through=faulty(store, FaultKind.FAIL_BEFORE, error=error),
        )


class Overwriting(FaultStore):
    """A store beside a writer that does not use put-if-absent and overwrites our first commit."""

    def __init__(self, store):
        super().__init__(store, [])
        self._rude = True

    def put_if_absent(self, key, data):
        super().put_if_absent(key, data)
        if self._rude:
            self._rude = False
            self.put(key, encode_actions([("commitInfo", {"txnId": "rude"})]))


def test_a_commit_that_was_overwritten_is_committed_again():
    store = new_table()

    receipt = apply(store, append("a", base_version=0), through=Overwriting(store))

    assert receipt.version == 2
    assert tokens(store) == ["rude", "token"]


def test_the_same_token_is_committed_once():
    store = new_table()
    first = apply(store, append("a", base_version=0))
    apply(store, append("b", base_version=1), token="other")

    again = apply(store, append("a", base_version=0))

    assert again.version == first.version == 1
    assert tokens(store) == ["token", "other"]


def test_a_transaction_that_is_in_the_table_is_not_committed_again():
    store = new_table()
    apply(store, append("a", base_version=0, txn=("sink", 1)), token="first")

    late = apply(store, append("b", base_version=0, txn=("sink", 1)), token="second")
    later = apply(store, append("c", base_version=1, txn=("sink", 1)), token="third")

    assert (late.already_committed, late.version) == (True, 1)
    assert (later.already_committed, later.version) == (True, 1)
    assert tokens(store) == ["first"]


def test_a_gap_in_the_log_is_an_error_and_never_filled():
    store = new_table()
    for version in (1, 2):
        apply(store, append(f"f{version}", base_version=version - 1), token=str(version))
    store.delete([commit_key(1)])

    with pytest.raises(CorruptLogError, match="version 1 is missing"):
        apply(store, append("x", base_version=0))
    assert not store.exists(commit_key(1))


def test_a_table_that_was_replaced_meanwhile_is_noticed():
    store = new_table()
    apply(store, append("a", base_version=0), token="old")
    base = head_of(store)
    store.delete([commit_key(1)])

    with pytest.raises(CorruptLogError, match="version 1 is missing"):
        commit_change(store, append("x", base_version=1), token="t", head=base)
    assert not store.exists(commit_key(2))


def test_a_listing_that_misses_winners_does_no_harm():
    store = new_table()
    apply(store, append("a", base_version=0), token="other")
    short = FaultStore(
        store, [Fault(kind=FaultKind.SHORT_LIST, operation="list", objects=1, times=None)]
    )

    receipt = apply(store, append("b", base_version=0), through=short, chance=lambda: 0.0)

    assert (receipt.version, tokens(store)) == (2, ["other", "token"])


def test_a_file_of_an_append_only_table_is_not_removed():
    store = new_table(delta_appendOnly="true")
    with pytest.raises(RefusedError, match="appendOnly"):
        apply(store, overwrite(removes=("a",), adds=("b",), base_version=0))


def test_an_append_only_table_may_be_rewritten():
    store = new_table(delta_appendOnly="true")
    apply(store, append("a", base_version=0), token="load")

    assert apply(store, rewrite(replacement(1, "a"), base_version=1)).version == 2


def test_find_commit_names_the_version_or_none():
    store = new_table()
    apply(store, append("a", base_version=0), token="mine")

    assert find_commit(store, "mine", after=0) == 1
    assert find_commit(store, "other", after=0) is None
    assert find_commit(store, "mine", after=1) is None


def test_find_commit_does_not_guess_about_versions_that_are_gone():
    store = new_table()
    for version in (1, 2):
        apply(store, append(f"f{version}", base_version=version - 1), token=str(version))
    store.delete([commit_key(0), commit_key(1)])

    with pytest.raises(CorruptLogError):
        find_commit(store, "1", after=0)
