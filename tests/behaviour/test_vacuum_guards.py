"""What keeps vacuum from files that it must not touch, each shown alone."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import pytest

from lakehand.errors import (
    AccessDeniedError,
    RefusedError,
    StorageError,
    UnsafePathError,
    ValidationError,
)
from lakehand.model.work import GroupResult, StagedFile
from lakehand.retention import candidates, quarantine
from lakehand.retention.pins import Pin, list_pins, put_pin, unpin
from lakehand.retention.vacuum_tasks import Deleted, VacuumTasks
from lakehand.runs import Run
from lakehand.storage import DeleteFailure, open_store
from lakehand.storage.local_backend import TreeProcesses
from lakehand.storage.tree_listing import list_directories
from support.clocked_tables import ClockedTable
from support.hand_written_logs import add, field, metadata, protocol
from support.later_vacuums import vacuum_later
from support.small_tables import commit_by_hand

NOTED = "_last_vacuum_info"
OLD = time.time() - 60 * 24 * 3600


@pytest.fixture
def lake() -> ClockedTable:
    """Return a table of two files, one of which was removed eight days ago."""
    lake = ClockedTable("live.parquet", "dead.parquet")
    lake.remove("dead.parquet")
    lake.wait(days=8)
    return lake


@pytest.fixture
def path(tmp_path):
    """Return a table without files on disk, made long ago."""
    (tmp_path / "_delta_log").mkdir()
    commit_by_hand(tmp_path, protocol(), metadata(field("id", "long")))
    os.utime(tmp_path / "_delta_log" / f"{0:020}.json", (OLD, OLD))
    return tmp_path


def put_old(path, *names):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
        os.utime(path / name, (OLD, OLD))


@pytest.mark.parametrize(
    "name",
    ["delta.universalFormat.enabledFormats", "delta.compatibility.symlinkFormatManifest.enabled"],
)
def test_tables_with_metadata_of_other_formats_are_refused_unless_forced(name):
    value = "iceberg" if "universal" in name else "true"
    lake = ClockedTable("a.parquet", properties={name: value})
    lake.remove("a.parquet")
    lake.wait(days=8)
    with pytest.raises(RefusedError):
        lake.vacuum(grace="0")
    assert lake.files == {"a.parquet"}
    assert lake.vacuum(grace="0", vacuum_stale_metadata=True).files_deleted == 1


def test_the_writers_side_of_the_protocol_is_checked_even_if_no_feature_asks_for_it(lake):
    lake.commit(protocol(reader=["vacuumProtocolCheck"]))
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)
    lake.commit(protocol("featureOfTomorrow"))
    with pytest.raises(RefusedError, match="featureOfTomorrow"):
        lake.vacuum(grace="0")
    assert "dead.parquet" in lake.files


def test_what_dead_writers_left_half_written_goes_and_nothing_else_that_is_hidden(path):
    mine = f".part.parquet.lakehand-{'0' * 32}.tmp"
    put_old(path, f"p/{mine}", "p/.other.tmp", ".part.parquet.tmp")
    (path / mine).touch()
    assert vacuum_later(path, days=0).files_deleted == 1
    assert {file.name for file in path.rglob(".*")} == {".other.tmp", ".part.parquet.tmp", mine}


def test_directories_go_with_their_last_file_and_parents_with_their_last_directory(path):
    put_old(path, "a=1/b=1/x.parquet", "a=1/b=2/x.parquet", "a=2/b=1/x.parquet", "a=2/keep.txt")
    report = vacuum_later(path, days=0)
    assert (report.files_deleted, report.directories_removed) == (3, 4)
    assert sorted(entry.name for entry in path.iterdir() if entry.name[0] != "_") == ["a=2"]
    assert [entry.name for entry in (path / "a=2").iterdir()] == ["keep.txt"]


def test_a_link_inside_the_root_stops_vacuum_and_one_that_leads_out_is_not_followed(path, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    put_old(outside, "far.parquet")
    put_old(path, "x.parquet")
    (path / "out").symlink_to(outside)
    assert vacuum_later(path, days=0).files_deleted == 1
    assert (outside / "far.parquet").exists()
    put_old(path, "p/x.parquet")
    (path / "in").symlink_to(path / "p")
    with pytest.raises(UnsafePathError, match="two names"):
        vacuum_later(path, days=0)
    assert (path / "p/x.parquet").exists()


def test_names_that_are_no_text_are_nobodys_files(path):
    name = os.fsdecode(b"\xff.parquet")
    put_old(path, name)
    assert vacuum_later(path, days=0).files_scanned == 0
    assert (path / name).exists()


def test_a_wide_tree_is_listed_by_processes_as_it_is_listed_here(path):
    put_old(path, *(f"p=ä {number}/x{number}.parquet" for number in range(200)))
    names = sorted(entry.name for entry in path.glob("p=*"))
    here = list_directories(str(path), names)
    with TreeProcesses(str(path)) as processes:
        there = processes.list(names)
    for column in ("keys", "ends", "sizes", "modified", "hidden", "directories", "links"):
        assert getattr(there, column) == getattr(here, column)
    assert len(there) == 200
    assert vacuum_later(path, days=0).files_deleted == 200


def test_a_listing_whose_process_dies_fails_as_a_whole(path, monkeypatch):
    put_old(path, *(f"p={number}/x.parquet" for number in range(20)))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StorageError):
        vacuum_later(path, days=0)
    assert len(list(path.glob("p=*/x.parquet"))) == 20


def test_a_directory_that_cannot_be_listed_fails_the_listing_by_its_reason(path):
    with TreeProcesses(str(path)) as processes, pytest.raises(OSError, match="too long"):
        processes.list(["x" * 300] * 20)


def test_files_go_in_batches_and_whatever_is_kept_meanwhile_leaves_no_batch_out(lake, monkeypatch):
    monkeypatch.setattr(candidates, "FILES_AT_A_TIME", 2)
    names = [f"{number}.parquet" for number in range(9)]
    lake.put(*names)
    lake.wait(days=8)

    def revive(progress):
        """Have a whole batch and a part of another named by a version again."""
        if progress.phase == "deleting" and progress.done == 2:
            lake.commit(*(add(name) for name in names[2:5]))

    report = lake.vacuum(grace="0", on_progress=revive)
    assert report.files_deleted == 10 - 3
    assert lake.files == {"live.parquet", *names[2:5]}


def test_files_that_no_task_gets_to_in_time_are_looked_at_again_and_then_reported(
    lake, monkeypatch
):
    """Tasks that are late with all they get, three times, while a version takes a file up again."""
    lake.put("revived.parquet", ".dead.parquet.crc")
    lake.wait(days=8)
    orders = []

    def come_too_late(_tasks, files):
        orders.append(files["key"].to_pylist())
        if len(orders) == 1:
            lake.commit(add("revived.parquet"))
        return Deleted(failures=(), late=files)

    monkeypatch.setattr(VacuumTasks, "is_needed", lambda _tasks, files: files > 0)
    monkeypatch.setattr(VacuumTasks, "delete", come_too_late)
    report = lake.vacuum(grace="0")

    assert orders == [["dead.parquet", "revived.parquet"], ["dead.parquet"], ["dead.parquet"]]
    [error] = report.errors
    assert (report.files_deleted, error["path"]) == (0, "dead.parquet")
    assert "within its time" in error["message"]
    assert lake.files == {"live.parquet", "dead.parquet", "revived.parquet"}
    assert lake.store.exists(".dead.parquet.crc")


def test_lists_without_a_manifest_are_dropped_when_their_vacuum_must_be_dead(lake):
    lake.put("_lakehand/quarantine/dead/files.parquet")
    lake.wait(hours=23)
    lake.vacuum(grace="0")
    assert lake.store.exists("_lakehand/quarantine/dead/files.parquet")
    lake.wait(hours=2)
    lake.vacuum(grace="0")
    assert not lake.store.exists("_lakehand/quarantine/dead/files.parquet")


def test_a_quarantine_of_nothing_leaves_nothing_behind(lake):
    assert (
        quarantine.start_quarantine(
            lake.store, iter(()), grace=timedelta(hours=24), clock=lake.clock
        )
        is None
    )
    assert list(lake.store.list("_lakehand")) == []


def test_a_file_that_was_written_again_since_it_was_set_aside_is_another_file(lake):
    lake.vacuum()
    lake.put("dead.parquet")
    lake.wait(days=8)
    report = lake.vacuum()
    assert (report.files_deleted, report.files_quarantined) == (0, 1)
    assert "dead.parquet" in lake.files


def test_a_checksum_does_not_outlive_what_another_engine_noted_of_its_vacuum(path):
    noted, checksum = (path / "_delta_log" / n for n in (NOTED, f".{NOTED}.crc"))
    noted.write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
    checksum.write_bytes(b"crc")
    vacuum_later(path)
    assert (noted.read_text(), checksum.exists()) == ("{}", False)


def test_a_file_of_another_size_is_another_file_even_if_it_claims_the_same_time(path):
    put_old(path, "x.parquet")
    assert vacuum_later(path, days=0, grace="24h").files_quarantined == 1
    (path / "x.parquet").write_bytes(b"more")
    put_old(path, "x.parquet")
    report = vacuum_later(path, days=2, grace="24h")
    assert (report.files_deleted, report.files_quarantined) == (0, 1)
    assert (path / "x.parquet").read_bytes() == b"more"


def test_a_pin_that_comes_while_vacuum_deletes_is_heard(lake):
    lake.put("other.parquet")
    lake.wait(days=8)

    def pin_late(progress):
        if progress.phase == "deleting" and not lake.store.exists("_lakehand/pins/late.json"):
            pin = Pin(name="late", version=0, created_at=lake.clock.now())
            put_pin(lake.store, pin)

    report = lake.vacuum(grace="0", on_progress=pin_late)
    assert report.files_deleted == 1
    assert lake.files == {"live.parquet", "dead.parquet"}


def test_a_pin_that_moves_to_another_version_while_vacuum_deletes_is_heard(lake):
    put_pin(lake.store, Pin(name="audit", version=1, created_at=lake.clock.now()))

    def move(progress):
        if progress.phase == "deleting" and list_pins(lake.store)[0].version == 1:
            unpin(lake.store, "audit")
            put_pin(lake.store, Pin(name="audit", version=0, created_at=lake.clock.now()))

    assert lake.vacuum(grace="0", on_progress=move).files_deleted == 0
    assert "dead.parquet" in lake.files


def test_a_clone_that_is_declared_while_vacuum_deletes_is_heard(lake):
    clone = ClockedTable()
    clone.commit(add(f"{lake.store.url}/dead.parquet"))

    def declare_late(progress):
        if progress.phase == "deleting" and not lake.store.exists("_lakehand/pins/late.json"):
            pin = Pin(name="late", clone=clone.store.url, created_at=lake.clock.now())
            put_pin(lake.store, pin)

    assert lake.vacuum(grace="0", on_progress=declare_late).files_deleted == 0
    assert "dead.parquet" in lake.files


def test_an_expired_pin_keeps_nothing_and_a_broken_one_stops_vacuum(lake):
    now = lake.clock.now()
    put_pin(lake.store, Pin(name="past", version=0, created_at=now, expires_at=now))
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)
    lake.store.put("_lakehand/pins/broken.json", b"{")
    with pytest.raises(ValidationError, match="cannot be read"):
        lake.vacuum(grace="0")
    assert "dead.parquet" in lake.files


def test_a_retention_of_exactly_what_readers_count_on_needs_no_leave(lake):
    assert lake.vacuum(dry_run=True, retention="168h").files_to_delete == ("dead.parquet",)
    assert lake.vacuum(dry_run=True, retention="1h", allow_short_retention=True).files_to_delete


def test_files_that_a_run_may_still_commit_stay(lake):
    id_ = "20260101T000000-abc"
    stem = f"lakehand-{id_}-00000-0-x.parquet"
    identity = {"run": id_, "started_at": "2026-01-01T00:00:00+00:00"}
    lake.store.put(f"_lakehand/runs/{id_}/run.json", json.dumps(identity).encode())
    lake.put(stem, "lakehand-20260101T000000-abd.parquet")
    lake.wait(days=8)
    lake.put(f"_lakehand/runs/{id_}/heartbeat.json")
    report = lake.vacuum(grace="0")
    assert report.kept.running == 1
    assert lake.files == {"live.parquet", stem}


def test_files_that_a_run_has_adopted_or_put_into_a_directory_stay(lake):
    run = Run.start(lake.store, {}, snapshot=lake.table.snapshot(), clock=lake.clock)
    adopted = "lakehand-20260101T000000-dead-00000-0-x.parquet"
    vector = f"{run.reserve(0, directory='')}/deletion_vector_1.bin"
    lake.put(adopted, vector, "lakehand-20260101T000000-dead-00001-0-x.parquet")
    output = StagedFile(path=adopted, bytes=1, rows=1)
    lake.wait(days=8)
    run.beat()
    run.record(GroupResult(group=0, attempt="x", outputs=(output,)))
    report = lake.vacuum(grace="0")
    assert report.files_deleted == 2
    assert lake.files == {"live.parquet", adopted}
    assert lake.store.exists(vector)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_what_a_run_with_an_unreadable_ledger_may_have_written_stays(lake, mode):
    run = Run.start(lake.store, {}, snapshot=lake.table.snapshot(), clock=lake.clock)
    lake.put("lakehand-20260101T000000-dead-00000-0-x.parquet")
    lake.wait(days=8)
    lake.store.put(run.key("results", "000000.json"), b'{"group": 0}')
    report = lake.vacuum(grace="0", mode=mode)
    assert report.files_deleted == 1
    assert "lakehand-20260101T000000-dead-00000-0-x.parquet" in lake.files


def test_files_that_a_run_is_still_writing_stay(path):
    run = Run.start(open_store(str(path)), {})
    name = f".lakehand-{run.id}-00000-0-x.parquet.lakehand-{'0' * 32}.tmp"
    put_old(path, f"p/{name}", f"p/{name.replace(run.id, '20260101T000000-abd')}")
    report = vacuum_later(path, days=0)
    assert (report.files_deleted, report.kept.running) == (1, 1)
    assert [file.name for file in (path / "p").iterdir()] == [name]


def test_an_old_version_that_a_later_one_names_again_by_absolute_path_stays(lake):
    lake.commit(add(f"{lake.store.url}/dead.parquet"))
    assert lake.vacuum(grace="0").files_deleted == 0
    assert open_store(lake.store.url).exists("dead.parquet")


def test_a_file_that_is_named_by_another_way_into_the_root_stays(path, tmp_path_factory):
    alias = tmp_path_factory.mktemp("elsewhere") / "alias"
    alias.symlink_to(path)
    put_old(path, "a=1/named.parquet", "a=1/unnamed.parquet")
    commit_by_hand(path, add(f"{alias.as_uri()}/a=1/named.parquet"))
    assert vacuum_later(path).files_deleted == 1
    assert [file.name for file in (path / "a=1").iterdir()] == ["named.parquet"]


@pytest.mark.parametrize("spelling", ["./{}", "sub//{}", "sub/../{}", "sub%2F/{}", "{}/"])
@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_path_that_other_engines_may_read_as_another_stops_vacuum(path, spelling, mode):
    put_old(path, "named.parquet", "sub/named.parquet")
    commit_by_hand(path, add(spelling.format("named.parquet")))
    with pytest.raises(UnsafePathError, match=r"named\.parquet"):
        vacuum_later(path, mode=mode)
    assert len(list(path.rglob("named.parquet"))) == 2


def test_a_vector_in_a_directory_that_may_be_read_as_another_stops_vacuum(lake):
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "a//ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    lake.commit(add("live.parquet", deletionVector=vector))
    with pytest.raises(UnsafePathError, match="deletion_vector_"):
        lake.vacuum(grace="0")
    assert "dead.parquet" in lake.files


def test_a_file_that_is_exactly_as_old_as_the_retention_is_young(lake):
    lake.put("new.parquet")
    lake.wait(days=7)
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)
    lake.wait(seconds=1)
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet", "new.parquet")


def test_a_table_that_asks_for_less_than_a_week_gets_a_week():
    lake = ClockedTable(
        "a.parquet", properties={"delta.deletedFileRetentionDuration": "interval 1 day"}
    )
    lake.remove("a.parquet")
    lake.wait(days=6)
    assert lake.vacuum(dry_run=True).files_to_delete == ()
    with pytest.raises(ValidationError, match="readers of this table"):
        lake.vacuum(retention="2d")
    lake.wait(days=2)
    assert lake.vacuum(dry_run=True).files_to_delete == ("a.parquet",)


def test_all_versions_of_a_clone_count_also_those_before_it_let_go_of_a_file(lake):
    clone = ClockedTable()
    clone.commit(add(f"{lake.store.url}/dead.parquet"))
    clone.remove(f"{lake.store.url}/dead.parquet")
    clone.wait(days=30)
    clone.commit(add("own.parquet"))
    put_pin(lake.store, Pin(name="copy", clone=clone.store.url, created_at=lake.clock.now()))
    assert lake.vacuum(grace="0").files_deleted == 0
    assert "dead.parquet" in lake.files


def test_what_would_not_go_stays_set_aside_and_goes_when_it_can(lake, monkeypatch):
    lake.vacuum()
    lake.wait(hours=25)
    backend = type(lake.store._backend)
    delete = backend.delete

    def refuse(self, keys):
        error = AccessDeniedError("no", path="dead.parquet")
        stuck = [DeleteFailure(key=key, error=error) for key in keys if key == "dead.parquet"]
        return stuck + delete(self, [key for key in keys if key != "dead.parquet"])

    with monkeypatch.context() as patched:
        patched.setattr(backend, "delete", refuse)
        assert len(lake.vacuum(expire=True).errors) == 1
    assert [entry.fate for entry in quarantine.list_quarantines(lake.store)] == ["sweeping"]
    assert lake.vacuum(expire=True).files_deleted == 1
    assert quarantine.list_quarantines(lake.store) == []


def test_a_store_that_refuses_every_deletion_fills_no_report(lake, monkeypatch):
    orphans = [f"orphan-{number:04}.parquet" for number in range(1_100)]
    lake.put(*orphans)
    lake.wait(days=8)

    def refuse(_backend, keys):
        error = AccessDeniedError("no", path=keys[0])
        return [DeleteFailure(key=key, error=error) for key in keys]

    with monkeypatch.context() as patched:
        patched.setattr(type(lake.store._backend), "delete", refuse)
        report = lake.vacuum(grace="0")

    doomed = {"dead.parquet", *orphans}
    assert (report.files_deleted, report.files_failed) == (0, len(doomed))
    assert len({error["path"] for error in report.errors} & doomed) == len(report.errors) == 1_000
    assert lake.files == {"live.parquet", *doomed}
    assert lake.vacuum(grace="0").files_failed == 0
    assert lake.files == {"live.parquet"}
