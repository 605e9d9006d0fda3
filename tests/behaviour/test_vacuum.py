"""Vacuum over time: every object has the time of one clock that only the test moves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.errors import AccessDeniedError, ValidationError
from lakehand.retention import quarantine
from lakehand.retention.pins import Pin, put_pin
from support.clocked_tables import ClockedTable
from support.hand_written_logs import add


@pytest.fixture
def lake() -> ClockedTable:
    """Return a table of two files, one of which was removed eight days ago."""
    lake = ClockedTable("live.parquet", "dead.parquet")
    lake.remove("dead.parquet")
    lake.wait(days=8)
    return lake


def test_what_is_left_over_is_set_aside_first_and_deleted_when_its_grace_is_over(lake):
    first = lake.vacuum()
    assert (first.outcome, first.files_quarantined, first.files_deleted) == ("committed", 1, 0)
    assert lake.files == {"live.parquet", "dead.parquet"}
    lake.wait(hours=25)
    second = lake.vacuum()
    assert (second.files_quarantined, second.files_deleted, second.bytes_freed) == (0, 1, 4)
    assert lake.files == {"live.parquet"}
    assert not quarantine.list_quarantines(lake.store)


def test_within_the_grace_nothing_is_set_aside_twice(lake):
    lake.vacuum()
    lake.wait(hours=23)
    again = lake.vacuum()
    assert (again.outcome, again.files_quarantined, again.files_deleted) == ("nothing_to_do", 0, 0)
    assert len(quarantine.list_quarantines(lake.store)) == 1


def test_without_grace_files_go_at_once_those_set_aside_before_as_well(lake):
    lake.vacuum()
    report = lake.vacuum(grace="0")
    assert (report.files_deleted, report.quarantine_id) == (1, None)
    assert lake.files == {"live.parquet"}
    assert not list(lake.store.list("_lakehand/quarantine"))


def test_a_dry_run_says_what_a_run_does_and_changes_nothing(lake):
    before = {info.key for info in lake.store.list()}
    dry = lake.vacuum(dry_run=True)
    assert (dry.outcome, dry.files_to_delete) == ("dry_run", ("dead.parquet",))
    assert {info.key for info in lake.store.list()} == before
    assert lake.vacuum().files_quarantined == len(dry.files_to_delete)


def test_an_undone_quarantine_deletes_nothing_ever(lake):
    id_ = lake.vacuum().quarantine_id
    assert quarantine.undo(lake.store, id_).files == 1
    lake.wait(hours=25)
    assert lake.vacuum().files_deleted == 0
    assert "dead.parquet" in lake.files


def test_an_undo_that_died_halfway_is_finished_by_the_next_vacuum(lake):
    id_ = lake.vacuum().quarantine_id
    (entry,) = quarantine.list_quarantines(lake.store)
    assert quarantine.decide(lake.store, entry, "undone") == "undone"
    lake.wait(hours=25)
    report = lake.vacuum()
    assert (report.files_deleted, report.files_quarantined) == (0, 1)
    assert quarantine.find_quarantine(lake.store, id_) is None


def test_undo_comes_too_late_once_files_are_being_deleted(lake):
    id_ = lake.vacuum().quarantine_id
    (entry,) = quarantine.list_quarantines(lake.store)
    quarantine.decide(lake.store, entry, "sweeping")
    with pytest.raises(ValidationError, match="being deleted already"):
        quarantine.undo(lake.store, id_)


@pytest.mark.parametrize("moment", ["find_quarantine", "_fate"])
def test_undo_says_so_if_the_files_went_while_it_was_decided(lake, monkeypatch, moment):
    id_ = lake.vacuum().quarantine_id
    (entry,) = quarantine.list_quarantines(lake.store)
    look = getattr(quarantine, moment)

    def come_between(store, id_):
        """Have a sweep go on right after the quarantine was seen, or right before its fate is."""
        monkeypatch.setattr(quarantine, moment, look)
        found = look(store, id_) if moment == "find_quarantine" else None
        lake.vacuum(grace="0")
        return found or look(store, id_)

    if moment == "_fate":
        quarantine.decide(lake.store, entry, "sweeping")
        monkeypatch.setattr(quarantine, "find_quarantine", lambda _store, _id: entry)
    monkeypatch.setattr(quarantine, moment, come_between)
    with pytest.raises(ValidationError, match="or are gone"):
        quarantine.undo(lake.store, id_)
    assert "dead.parquet" not in lake.files
    assert not list(lake.store.list("_lakehand/quarantine"))


def test_a_sweep_that_died_halfway_is_finished_by_the_next_vacuum(lake):
    lake.vacuum()
    (entry,) = quarantine.list_quarantines(lake.store)
    quarantine.decide(lake.store, entry, "sweeping")
    assert lake.vacuum().files_deleted == 1
    assert not quarantine.list_quarantines(lake.store)


def test_undo_of_an_unknown_quarantine_names_those_there_are(lake):
    id_ = lake.vacuum().quarantine_id
    with pytest.raises(ValidationError) as caught:
        quarantine.undo(lake.store, "nonsense")
    assert id_ in caught.value.hint


def test_a_file_that_a_version_took_up_again_survives_its_sweep(lake):
    lake.vacuum()
    lake.commit(add("dead.parquet"))
    lake.wait(hours=25)
    assert lake.vacuum().files_deleted == 0
    assert lake.files == {"live.parquet", "dead.parquet"}


def test_a_file_that_was_written_anew_survives_its_sweep(lake):
    lake.vacuum()
    lake.put("dead.parquet")
    lake.wait(hours=25)
    assert lake.vacuum().files_deleted == 0
    assert "dead.parquet" in lake.files


def test_young_files_that_nobody_knows_are_left_to_their_writers(lake):
    lake.put("part-new.parquet")
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet",)
    lake.wait(days=8)
    assert lake.vacuum(dry_run=True).files_to_delete == ("dead.parquet", "part-new.parquet")


def test_files_of_a_version_within_the_retention_stay():
    lake = ClockedTable("a.parquet")
    lake.wait(days=30)
    lake.remove("a.parquet")
    lake.wait(days=6)
    assert lake.vacuum().outcome == "nothing_to_do"
    lake.wait(days=2)
    assert lake.vacuum().files_quarantined == 1


def test_a_pinned_version_keeps_its_files_until_the_pin_expires(lake):
    until = lake.clock.now() + timedelta(days=1)
    pin = Pin(name="audit", version=0, created_at=lake.clock.now(), expires_at=until)
    put_pin(lake.store, pin)
    assert lake.vacuum().outcome == "nothing_to_do"
    lake.wait(days=1)
    assert lake.vacuum().files_quarantined == 1


@pytest.mark.parametrize(
    "key",
    [
        "_delta_log/00000000000000000000.checkpoint.x.parquet",
        "_lakehand/notes.parquet",
        "_other/x.parquet",
        "_other=1/x.parquet",
        ".hidden.parquet",
        "p=1/_temporary/x.parquet",
        "p=1/.x.parquet",
        "p=1/.part.parquet.crc",
        "README.md",
        "data.csv",
    ],
)
def test_what_is_no_data_of_the_table_is_never_touched(key):
    lake = ClockedTable("live.parquet")
    lake.put(key)
    lake.wait(days=400)
    assert lake.vacuum(grace="0").files_deleted == 0
    assert lake.store.exists(key)


@pytest.mark.parametrize(
    "key",
    [
        "_p=1/x.parquet",
        "p=.1/x.parquet",
        "_change_data/cdc-1.parquet",
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "x.snappy.parquet",
    ],
)
def test_old_data_that_no_version_names_goes(key):
    lake = ClockedTable("live.parquet", partition_by=("p", "_p"))
    lake.put(key)
    lake.wait(days=8)
    assert lake.vacuum(grace="0").files_deleted == 1
    assert not lake.store.exists(key)


def test_a_file_that_lands_in_the_table_while_its_root_is_listed_stays(lake):
    listing = lake.store.list

    def land_then_list(*arguments, **options):
        lake.store.list = listing
        lake.commit(add("dead.parquet"))
        return listing(*arguments, **options)

    protected = lake.table.protected

    def protect_then_land(**options):
        found = protected(**options)
        lake.store.list = land_then_list
        return found

    lake.table.protected = protect_then_land
    assert lake.vacuum(grace="0").files_deleted == 0
    assert "dead.parquet" in lake.files


def test_a_retention_below_what_readers_count_on_needs_to_be_allowed(lake):
    with pytest.raises(ValidationError, match="readers of this table"):
        lake.vacuum(retention="1d")
    with pytest.raises(ValidationError, match="at least 1 h"):
        lake.vacuum(retention="59m", allow_short_retention=True)
    assert lake.vacuum(retention="1d", allow_short_retention=True).files_quarantined == 1


def test_the_tables_own_retention_counts_where_it_is_longer():
    lake = ClockedTable(
        "a.parquet", properties={"delta.deletedFileRetentionDuration": "interval 30 days"}
    )
    lake.remove("a.parquet")
    lake.wait(days=20)
    assert lake.vacuum().outcome == "nothing_to_do"


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others(lake, monkeypatch):
    lake.put("stuck.parquet")
    lake.wait(days=8)
    backend = type(lake.store._backend)
    delete = backend.delete

    def refuse(self, keys):
        from lakehand.storage.objects import DeleteFailure

        error = AccessDeniedError("no", path="stuck.parquet")
        stuck = [DeleteFailure(key=key, error=error) for key in keys if "stuck" in key]
        return stuck + delete(self, [key for key in keys if "stuck" not in key])

    monkeypatch.setattr(backend, "delete", refuse)
    report = lake.vacuum(grace="0")
    assert (report.files_deleted, [e["path"] for e in report.errors]) == (1, ["stuck.parquet"])
    assert lake.files == {"live.parquet", "stuck.parquet"}
