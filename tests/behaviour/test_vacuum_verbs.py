"""Vacuum as users meet it: modes, pins, streams, clones, entries in the history, the command."""

from __future__ import annotations

import json

import pytest
from pyroaring import BitMap64

from lakehand.cli.main import run
from lakehand.errors import LakehandError, RefusedError, ValidationError
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.retention.pinning import make_pin
from lakehand.retention.pins import list_pins, unpin
from support.clocked_tables import ClockedTable
from support.hand_written_logs import add, protocol, remove

STATE = "_delta_log/_last_vacuum_info"
TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"


@pytest.fixture
def lake() -> ClockedTable:
    """Return a table of two files, one of which was removed eight days ago."""
    lake = ClockedTable("live.parquet", "dead.parquet")
    lake.remove("dead.parquet")
    lake.wait(days=8)
    return lake


def state(lake):
    return json.loads(lake.store.get(STATE))


def test_lite_deletes_what_commits_removed_and_notes_how_far_it_came(lake):
    lake.put("orphan.parquet")
    lake.wait(days=8)
    report = lake.vacuum(mode="lite", grace="0")
    assert (report.files_deleted, report.mode) == (1, "lite")
    assert lake.files == {"live.parquet", "orphan.parquet"}
    assert state(lake) == {"latestCommitVersionOutsideOfRetentionWindow": 1}


def test_lite_does_not_call_files_gone_that_are_only_set_aside(lake):
    assert lake.vacuum(mode="lite").files_quarantined == 1
    assert not lake.store.exists(STATE)
    lake.wait(hours=25)
    assert lake.vacuum(mode="lite").files_deleted == 1
    assert state(lake) == {"latestCommitVersionOutsideOfRetentionWindow": 1}


def test_lite_refuses_where_commits_are_gone(lake):
    lake.table.checkpoint()
    lake.store.delete([commit_key(0)])
    with pytest.raises(RefusedError, match="version 0 is no longer in the log"):
        lake.vacuum(mode="lite")


def test_full_makes_lite_start_over_and_writes_nothing_where_it_does_so_anyway(lake):
    lake.vacuum(grace="0")
    assert not lake.store.exists(STATE)
    lake.vacuum(mode="lite")
    assert state(lake) == {"latestCommitVersionOutsideOfRetentionWindow": 1}
    lake.vacuum()
    assert state(lake) == {}


def test_history_tells_of_a_deletion_where_that_is_wanted(lake):
    lake.vacuum(grace="0", vacuum_entries="always")
    entries = [
        json.loads(line)["commitInfo"]
        for version in (2, 3)
        for line in lake.store.get(commit_key(version)).splitlines()
    ]
    assert [entry["operation"] for entry in entries] == ["VACUUM START", "VACUUM END"]
    assert entries[0]["operationMetrics"] == {"numFilesToDelete": "1", "sizeOfDataToDelete": "4"}
    assert entries[1]["operationParameters"] == {"status": "COMPLETED"}
    assert entries[1]["operationMetrics"]["numDeletedFiles"] == "1"


def test_a_pin_keeps_a_version_and_says_so_until_it_is_dropped(lake):
    make_pin(lake.table, "audit", {"version": 0}, expires="30d", clock=lake.clock)
    report = lake.vacuum(dry_run=True)
    assert (report.files_to_delete, report.kept.pinned) == ((), 1)
    assert [(holder.name, holder.version) for holder in report.holders] == [("audit", 0)]
    lake.wait(days=31)
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)


def test_a_version_whose_files_are_gone_cannot_be_pinned(lake):
    lake.vacuum(grace="0")
    with pytest.raises(RefusedError, match="cannot be read any more"):
        make_pin(lake.table, "late", {"version": 0}, clock=lake.clock)
    with pytest.raises(LakehandError):
        make_pin(lake.table, "never", {"version": 99}, clock=lake.clock)
    assert list_pins(lake.store) == []


def test_a_version_whose_deletion_vector_is_gone_cannot_be_pinned(lake):
    lake.commit(protocol("deletionVectors", reader=["deletionVectors"]))
    [old] = write_deletion_vectors(lake.store, [BitMap64([0])])
    [new] = write_deletion_vectors(lake.store, [BitMap64([0, 1])])
    first = add("live.parquet", rows=9, deletionVector=old.to_json())
    lake.commit(remove("live.parquet", at_ms=0), first)
    second = add("live.parquet", rows=9, deletionVector=new.to_json())
    lake.commit(remove("live.parquet", at_ms=0, deletionVector=old.to_json()), second)
    lake.wait(days=8)
    make_pin(lake.table, "new", {"version": 4}, clock=lake.clock)
    make_pin(lake.table, "old", {"version": 3}, clock=lake.clock)
    unpin(lake.store, "old")
    lake.vacuum(grace="0")
    assert not lake.store.exists(old.path)
    with pytest.raises(RefusedError, match=old.path):
        make_pin(lake.table, "old", {"version": 3}, clock=lake.clock)
    assert [pin.name for pin in list_pins(lake.store)] == ["new"]


def offsets(lake, batch, version, *, done, starting=False, name="stream"):
    source = {"reservoirId": TABLE_ID, "reservoirVersion": version, "isStartingVersion": starting}
    stream = lake.store.open_other(f"{lake.store.url}-{name}")
    stream.put(f"offsets/{batch}", f"v1\n{{}}\n{json.dumps(source)}".encode())
    if done:
        stream.put(f"commits/{batch}", b"v1\n{}")
    return stream.url


def test_a_stream_holds_the_horizon_where_its_last_finished_batch_ended(lake):
    uri = offsets(lake, 0, 0, done=True)
    offsets(lake, 1, 1, done=False)
    make_pin(lake.table, "etl", {"stream": uri}, clock=lake.clock)
    assert lake.vacuum(dry_run=True).files_to_delete == ()
    offsets(lake, 1, 2, done=True)
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_stream_of_changes_keeps_what_the_next_version_changed_and_removed(lake, is_cleaned):
    change = {"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 4}}
    lake.put("_change_data/c.parquet")
    lake.commit(remove("live.parquet", at_ms=0), add("new.parquet"), change)
    uri = offsets(lake, 0, 2, done=True)
    make_pin(lake.table, "etl", {"stream": uri}, clock=lake.clock)
    if is_cleaned:
        lake.table.checkpoint()
        lake.store.delete([commit_key(0), commit_key(1)])
    lake.wait(days=8)
    report = lake.vacuum(grace="0")
    assert lake.store.exists("_change_data/c.parquet")
    assert lake.files == {"live.parquet"}
    assert [holder.version for holder in report.holders] == [1]


def test_a_stream_that_begins_with_a_snapshot_keeps_that_version_and_no_earlier_one(lake):
    uri = offsets(lake, 0, 1, done=False, starting=True)
    make_pin(lake.table, "etl", {"stream": uri}, clock=lake.clock)
    report = lake.vacuum(dry_run=True)
    assert report.files_to_delete == ("dead.parquet",)
    assert [holder.version for holder in report.holders] == [1]


def test_of_several_streams_the_slowest_holds_the_horizon(lake):
    for name, version in (("slow", 1), ("fast", 2)):
        uri = offsets(lake, 0, version, done=True, name=name)
        make_pin(lake.table, name, {"stream": uri}, clock=lake.clock)
    report = lake.vacuum(dry_run=True)
    assert report.files_to_delete == ()
    assert [(holder.name, holder.version) for holder in report.holders] == [
        ("fast", 1),
        ("slow", 0),
    ]


def test_a_stream_that_cannot_be_read_stops_vacuum_and_the_way_out_is_named(lake):
    uri = offsets(lake, 0, 0, done=True)
    make_pin(lake.table, "etl", {"stream": uri}, clock=lake.clock)
    lake.store.open_other(uri).delete(["offsets/0"])
    with pytest.raises(RefusedError) as caught:
        lake.vacuum()
    assert "pin TABLE etl --remove" in caught.value.hint


def test_files_that_a_clone_refers_to_stay(lake):
    clone = ClockedTable()
    clone.commit(add(f"{lake.store.url}/dead.parquet"))
    make_pin(lake.table, "copy", {"clone": clone.store.url}, clock=lake.clock)
    report = lake.vacuum(grace="0")
    assert (report.files_deleted, report.kept.pinned) == (0, 1)


@pytest.mark.parametrize("grace", ["24h", "0"])
def test_expire_deletes_only_what_is_past_its_grace(lake, grace):
    lake.vacuum()
    lake.put("orphan.parquet")
    lake.wait(days=8)
    report = lake.vacuum(expire=True, grace=grace)
    assert (report.files_deleted, report.files_quarantined) == (1, 0)
    assert lake.files == {"live.parquet", "orphan.parquet"}


def test_undo_gives_files_back_and_goes_with_nothing_else(lake):
    id_ = lake.vacuum().quarantine_id
    assert lake.vacuum(undo=id_).files_undone == 1
    assert not list(lake.store.list("_lakehand/quarantine"))
    with pytest.raises(ValidationError, match="undo goes with nothing else"):
        lake.vacuum(undo=id_, expire=True)


def test_checksums_go_with_their_files_and_progress_is_told(lake):
    lake.put(".dead.parquet.crc", ".live.parquet.crc")
    lake.wait(days=8)
    phases = []
    report = lake.vacuum(grace="0", on_progress=lambda event: phases.append(event.phase))
    assert report.files_deleted == 1
    assert not lake.store.exists(".dead.parquet.crc")
    assert lake.store.exists(".live.parquet.crc")
    assert {"scanning", "deleting"} <= set(phases)


def test_a_run_that_nobody_has_touched_for_long_protects_nothing(lake):
    ledger = "_lakehand/runs/20260101T000000-abc"
    lake.put(f"{ledger}/run.json", "lakehand-20260101T000000-abc-00000-0-x.parquet")
    lake.wait(days=3)
    lake.put(f"{ledger}/heartbeat.json")
    lake.wait(days=5)
    assert lake.vacuum(dry_run=True).kept.running == 1
    lake.wait(days=3)
    assert lake.vacuum(dry_run=True).kept.running == 0


def test_the_command_lists_pins_and_refuses_them_without_a_name(tmp_path, capsys):
    from support.small_tables import make_table

    place = str(make_table(tmp_path / "t"))
    assert run(["pin", place, "--version", "1"]) == 2
    assert run(["pin", place, "audit", "--version", "1", "--expires", "30d"]) == 0
    assert "audit: version 1, until" in capsys.readouterr().out
    assert run(["vacuum", place, "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["files_retained"], document["kept"]["young"]) == (12, 12)
    assert run(["vacuum", place]) == 0
    assert "too recent" in capsys.readouterr().out
    assert run(["pin", place, "audit", "--remove"]) == 0
