"""Commits looked at one by one, and checkpoints held against them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from unittest.mock import ANY

import pytest

from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.formats.delta.repair import examination
from lakehand.formats.delta.repair.examination import examine_commit, examine_log
from lakehand.formats.delta.repair.log_findings import check_log
from support.checkpoints import put_checkpoint
from support.hand_written_logs import add, metadata, new_log, protocol, put_commit, remove

TXN = {"txn": {"appId": "sink", "version": 7}}
DOMAIN = {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}
NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)
#: Tombstones live for a week.
IN_FORCE = remove("a.parquet", at_ms=NOW_MS)
EXPIRED = remove("b.parquet", at_ms=NOW_MS - 8 * 24 * 3600 * 1000)
START = (protocol(), metadata(), add("a.parquet"), TXN, DOMAIN)
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def text(*actions) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


@pytest.mark.parametrize(
    ("commit", "problem"),
    [
        (b"", "empty"),
        (b'{"add":', "Expecting value"),
        (b"[]", "not an object"),
        (b"\xff\xfe", "utf-8"),
        (text({"add": {"size": 1}}), "no path"),
        (text(protocol(), protocol()), "2 protocol actions"),
        (text(add("a"), remove("a", at_ms=1)), "adds and removes 'a'"),
        (text({"protocol": {"minReaderVersion": 1}}), "minWriterVersion"),
    ],
)
def test_a_commit_that_cannot_be_used_says_why(commit, problem):
    assert problem in examine_commit(3, commit).problem


@pytest.mark.parametrize(
    ("commit", "flaw"),
    [
        (text(add("a")) + b"\n\n" + text(add("b")), "line 2 is blank"),
        (text(add("a"), add("a", deletionVector=VECTOR)), "adds 'a' 2 times"),
        (text(add("a", partitionValues=None)), "without partitionValues"),
        (text(add("a"), {"commitInfo": {"inCommitTimestamp": 5}}), "not in its first line"),
    ],
)
def test_a_commit_that_breaks_a_rule_is_read_and_the_rule_named(commit, flaw):
    facts = examine_commit(3, commit)
    assert facts.problem is None
    assert any(flaw in found for found in facts.flaws)


def test_a_commit_that_replaces_the_deleted_rows_of_a_file_is_in_order():
    commit = text(remove("a", at_ms=1), add("a", deletionVector=VECTOR))
    assert (examine_commit(3, commit).problem, examine_commit(3, commit).flaws) == (None, ())


@pytest.mark.parametrize(
    ("held", "difference"),
    [
        (START, None),
        ((*START[:2], TXN, DOMAIN), "files"),
        ((*START[:2], add("a.parquet", size=99), TXN, DOMAIN), "files"),
        ((*START[:2], add("a.parquet", deletionVector=VECTOR), TXN, DOMAIN), "files"),
        ((*START[:2], add("a.parquet", partitionValues={"p": "1"}), TXN, DOMAIN), "files"),
        ((*START[:2], add("a.parquet", partitionValues={"p": ""}), TXN, DOMAIN), None),
        ((protocol("appendOnly"), *START[1:]), "protocol"),
        ((START[0], metadata(properties={"x": "y"}), *START[2:]), "metadata"),
        ((*START[:3], TXN), "domain"),
        ((*START[:3], DOMAIN), "transactions"),
    ],
)
def test_a_checkpoint_is_compared_in_all_that_readers_take_from_it(held, difference):
    store = new_log(START, [add("b.parquet")])
    put_checkpoint(store, 0, held)
    reasons = [checkpoint.reason for checkpoint in examine_log(store, now=NOW).bad]
    assert (difference is None) == (not reasons)
    assert all(difference in reason for reason in reasons)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": {"provider": "parquet"}},
        {"format": {"provider": "parquet", "options": None}},
        {"memberOfTomorrow": "x"},
    ],
    ids=["no options", "null options", "unknown"],
)
def test_checkpoints_of_metadata_that_engines_spell_in_several_ways_are_sound(changed):
    store = new_log([START[0], {"metaData": metadata()["metaData"] | changed}, *START[2:]])
    write_checkpoint(store)
    assert examine_log(store, now=NOW).bad == ()


def test_the_order_of_features_and_unknown_members_of_a_protocol_make_no_difference():
    features = ["appendOnly", "invariants", "checkConstraints"]
    held, written = protocol(*features), protocol(*reversed(features))
    written["protocol"]["memberOfTomorrow"] = 1
    store = new_log([written, *START[1:]])
    put_checkpoint(store, 0, [held, *START[1:]])
    assert examine_log(store, now=NOW).bad == ()


@pytest.mark.parametrize(
    ("held", "is_sound"),
    [
        ([IN_FORCE, EXPIRED], True),
        ([IN_FORCE], True),
        ([EXPIRED], False),
        ([IN_FORCE, remove("c.parquet", at_ms=NOW_MS)], False),
        ([remove("a.parquet", at_ms=NOW_MS - 1)], False),
    ],
    ids=["all", "expired left out", "one left out", "one too many", "another time"],
)
def test_of_tombstones_those_are_compared_that_no_writer_may_have_left_out(held, is_sound):
    store = new_log(START, [IN_FORCE], [EXPIRED])
    put_checkpoint(store, 2, [*START[:2], TXN, DOMAIN, *held])
    assert [checkpoint.reason for checkpoint in examine_log(store, now=NOW).bad] == (
        [] if is_sound else [ANY]
    )


def test_a_checkpoint_is_not_compared_with_one_that_is_wrong_itself():
    store = new_log(START, [add("b.parquet")])
    put_checkpoint(store, 0, START[:2])
    put_checkpoint(store, 1, [*START, add("b.parquet")])
    assert [checkpoint.files.version for checkpoint in examine_log(store, now=NOW).bad] == [0]


def test_a_log_that_is_written_to_while_it_is_looked_at_is_not_called_broken(monkeypatch):
    store = new_log(START)
    listed = examination.list_log
    looks = []

    def list_and_commit(store, **options):
        found = listed(store, **options)
        if not looks:
            put_commit(store, 1, add("b.parquet"))
            put_checkpoint(store, 1, [*START, add("b.parquet")])
            store.put("_delta_log/_last_checkpoint", b'{"version":1,"size":6}')
        looks.append(found)
        return found

    monkeypatch.setattr(examination, "list_log", list_and_commit)
    assert (
        check_log(store, now=NOW).findings,
        check_log(store, now=NOW).version,
    ) == ((), 1)


def test_what_lies_below_the_oldest_checkpoint_is_missed_by_nobody():
    store = new_log(START, [add("b.parquet")], [add("c.parquet")])
    put_checkpoint(store, 1, [*START, add("b.parquet")])
    store.put("_delta_log/_last_checkpoint", b'{"version":1,"size":6}')
    store.delete([commit_key(0), commit_key(1)])
    assert check_log(store, now=NOW).findings == ()
    store.delete([commit_key(2)])
    # Engines ask for a commit at or after the checkpoint that they read.
    assert [found.name for found in check_log(store, now=NOW).findings] == ["missing_commit"]


def test_a_log_is_listed_once_however_many_checkpoints_are_compared(monkeypatch):
    """A table with a month of commits has hundreds, and each listing takes as long as all of it."""
    store = new_log(START, *([add(f"{n}.parquet")] for n in range(12)))
    for version in range(2, 12, 2):
        added = [add(f"{n}.parquet") for n in range(version)]
        put_checkpoint(store, version, [*START, *added])
    listings, walk = [], store._list

    def walk_and_count(prefix, after):
        listings.append(prefix)
        return walk(prefix, after)

    monkeypatch.setattr(store, "_list", walk_and_count)
    log = examine_log(store, now=NOW)

    assert ([check.version for check in log.sound], log.bad) == ([2, 4, 6, 8, 10], ())
    assert len(listings) <= 3


def test_a_log_without_a_fault_is_looked_at_once_however_fast_others_write(monkeypatch):
    store = new_log(START)
    looks, listed = [], examination.list_log

    def list_and_commit(store, **options):
        found = listed(store, **options)
        looks.append(found)
        put_commit(store, len(looks), add(f"{len(looks)}.parquet"))
        return found

    monkeypatch.setattr(examination, "list_log", list_and_commit)
    assert examine_log(store, now=NOW).version == 0
    assert len(looks) == 1
