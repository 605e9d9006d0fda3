"""The lines of a new version: what is copied, and what is stamped anew at every attempt."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.commits.draft import draft_commit
from lakehand.formats.delta.commits.head import high_water_mark
from lakehand.formats.delta.protocol.actions import parse_commit
from lakehand.model.work import Change, Replacement
from support.changes import (
    append,
    commit,
    head,
    live_file,
    metadata,
    overwrite,
    protocol,
    replacement,
    rewrite,
    staged_file,
)

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 3,
}


def draft(change, base=None, *, now_ms=1_000):
    base = base or head()
    return parse_commit(base.version + 1, draft_commit(change, base, token="token", now_ms=now_ms))


def test_a_remove_copies_every_field_of_the_live_entry():
    live = {
        "partitionValues": {"d": "2026-01-01 00:00:00"},
        "size": 123,
        "tags": {"ZCUBE_ID": "x"},
        "deletionVector": VECTOR,
        "baseRowId": 70,
        "defaultRowCommitVersion": 3,
    }
    group = replace(replacement(1, "a"), removes=(live_file("a%20b", **live),))

    [remove] = draft(rewrite(group)).removes

    assert remove == {
        **live,
        "path": "a%20b",
        "stats": '{"numRecords": 10}',
        "deletionTimestamp": 1_000,
        "dataChange": False,
        "extendedFileMetadata": True,
    }


def test_a_remove_of_a_purge_states_rows_and_no_values():
    stats = json.dumps({"numRecords": 10, "minValues": {"a": "x"}, "maxValues": {"a": "y"}})
    live = live_file("a", stats=stats, tags={"of": "x"}, deletionVector=VECTOR)
    group = replace(replacement(1, "a"), removes=(live,))

    version = draft(replace(rewrite(group), erases=True))

    [remove] = version.removes
    assert (json.loads(remove["stats"]), "tags" in remove) == ({"numRecords": 10}, False)
    assert remove["deletionVector"] == VECTOR
    assert version.commit_info["lakehand"]["purge"]


def test_an_add_is_encoded_and_stamped():
    file = staged_file("p=a%3Ab/new file", size=77, partitionValues={"p": "a:b"}, tags={"t": "1"})
    change = replace(append(), adds=(file,))

    [add] = draft(change, now_ms=42).adds

    assert add == {
        "path": "p=a%253Ab/new%20file",
        "partitionValues": {"p": "a:b"},
        "size": 77,
        "modificationTime": 42,
        "dataChange": True,
        "stats": '{"numRecords": 10}',
        "tags": {"t": "1"},
    }


def test_both_sides_of_a_rewrite_say_that_no_data_changed():
    version = draft(rewrite(replacement(1, "a", "b")))

    assert {action["dataChange"] for action in (*version.adds, *version.removes)} == {False}


def test_both_sides_of_an_overwrite_say_that_data_changed():
    version = draft(overwrite(removes=("a",), adds=("b",)))

    assert {action["dataChange"] for action in (*version.adds, *version.removes)} == {True}


def test_a_group_whose_rows_are_all_deleted_only_removes():
    version = draft(rewrite(Replacement(group=1, removes=(live_file("a"),), adds=())))

    assert (len(version.adds), len(version.removes)) == (0, 1)


def test_a_transaction_is_written_with_its_time():
    version = draft(append("a", txn=("sink", 7)), now_ms=9)

    assert version.transactions == ({"appId": "sink", "version": 7, "lastUpdated": 9},)


def test_lines_are_plain_json_without_blank_ones():
    data = draft_commit(append("ä"), head(), token="t", now_ms=1)

    lines = data.decode().split("\n")
    assert lines[-1] == ""
    assert all(len(json.loads(line)) == 1 for line in lines[:-1])


TRACKED = {"protocol": protocol("rowTracking", "domainMetadata")}


def test_row_ids_start_above_the_mark_and_move_it():
    files = (staged_file("a", rows=10), staged_file("b", rows=5))
    version = draft(replace(append(), adds=files), head(row_id_high_water_mark=99, **TRACKED))

    assert [add["baseRowId"] for add in version.adds] == [100, 110]
    assert [add["defaultRowCommitVersion"] for add in version.adds] == [6, 6]
    assert high_water_mark(version.domains) == 114


def test_the_first_row_id_is_zero():
    version = draft(append("a"), head(**TRACKED))

    assert version.adds[0]["baseRowId"] == 0
    assert version.domains[0]["configuration"] == '{"rowIdHighWaterMark":9}'


def test_row_ids_are_assigned_anew_after_a_winner_moved_the_mark():
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":500}'}
    before = head(row_id_high_water_mark=99, **TRACKED)

    version = draft(append("a"), before.after(commit(6, domains=(domain,))))

    assert version.adds[0]["baseRowId"] == 501
    assert version.adds[0]["defaultRowCommitVersion"] == 7


def test_the_mark_never_falls():
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":5}'}

    after = head(row_id_high_water_mark=99, **TRACKED).after(commit(6, domains=(domain,)))

    assert after.row_id_high_water_mark == 99


def test_a_mark_that_cannot_be_read_is_an_error():
    with pytest.raises(CorruptLogError, match="highest row id"):
        high_water_mark([{"domain": "delta.rowTracking", "configuration": "{}"}])


def test_no_row_ids_while_row_tracking_is_suspended():
    suspended = metadata(configuration={"delta.rowTrackingSuspended": "true"})

    version = draft(append("a"), head(metadata=suspended, **TRACKED))

    assert "baseRowId" not in version.adds[0]
    assert version.domains == ()


def test_a_file_that_gets_a_deletion_vector_keeps_what_it_had():
    live = live_file("a", baseRowId=40, defaultRowCommitVersion=2, modificationTime=17)
    file = staged_file("a", deletionVector=VECTOR)
    change = Change(
        kind="delete", base_version=5, operation="DELETE", removes=(live,), adds=(file,)
    )

    version = draft(change, head(row_id_high_water_mark=99, **TRACKED))

    [add], [remove] = version.adds, version.removes
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (40, 2)
    assert (add["modificationTime"], add["deletionVector"]) == (17, VECTOR)
    assert "deletionVector" not in remove
    assert version.domains == ()


def test_a_commit_without_its_time_stops_a_table_that_keeps_times():
    times = {
        "protocol": protocol("inCommitTimestamp"),
        "metadata": metadata(configuration={"delta.enableInCommitTimestamps": "true"}),
    }

    with pytest.raises(CorruptLogError, match="does not say when"):
        draft(append("a"), head(**times).after(commit(6)))
