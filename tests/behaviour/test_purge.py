"""Purge: rows that were deleted leave the files, and the report says where they still are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import lakehand
from lakehand.cli.main import run
from lakehand.errors import LakehandError
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.scan import scan
from lakehand.maintenance.purge import purge
from lakehand.observe.clock import ManualClock
from lakehand.retention.pins import Pin, put_pin
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline
from support.hand_made_tables import add_by_hand, make_by_hand
from support.hand_written_logs import field, metadata
from support.modelled_tables import ModelledTable
from support.small_tables import commit_by_hand, fingerprint

SECRET = 7


@pytest.fixture
def table(tmp_path):
    """Return a table of two files, of which one still holds a row that was deleted."""
    path = make_by_hand(tmp_path / "people", field("id", "long"))
    add_by_hand(path, {"id": pa.array([1, 2, 3], pa.int64())})
    add_by_hand(path, {"id": pa.array([4, SECRET, 6], pa.int64())}, deleted=BitMap64([1]))
    return path


def erase(path, *, days=0, dry_run=False, **settings):
    """Purge `days` from now."""
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    opened = DeltaTable(open_store(path), clock=clock)
    chosen = Settings(settings, environment={})
    with tasks_inline():
        return purge(opened, settings=chosen, dry_run=dry_run, clock=clock), clock.now()


def codes(report):
    return [place.code for place in report.remaining]


def files_with_the_secret(path):
    found = [
        file for file in path.glob("**/*.parquet") if "_" not in file.relative_to(path).parts[0]
    ]
    return [file.name for file in found if SECRET in pq.read_table(file)["id"].to_pylist()]


def visible(path):
    return sorted(lakehand.open_table(path).to_arrow()["id"].to_pylist())


def test_one_file_with_one_deleted_row_is_rewritten_and_no_other(table):
    report, _ = erase(table)
    assert (report.outcome, report.files_rewritten, report.deleted_row_count) == ("committed", 1, 0)
    assert visible(table) == [1, 2, 3, 4, 6]
    assert (table / "part-000.parquet").exists()
    assert lakehand.open_table(table).inspect().file_count == 2


def test_the_report_says_that_older_versions_still_hold_the_row_and_until_when(table):
    report, now = erase(table)
    assert files_with_the_secret(table) == ["part-001.parquet"]
    assert codes(report) == ["older_versions", "log"]
    expected = now + timedelta(days=7, hours=24)
    assert abs(report.gone_at - expected) < timedelta(minutes=1)


def test_the_row_is_gone_from_every_file_when_the_report_said_so(table):
    first, _ = erase(table)
    second, _ = erase(table, days=7.5)
    assert (second.files_rewritten, second.files_quarantined) == (0, 2)
    assert "quarantined" in codes(second)
    third, now = erase(table, days=8.6)
    assert first.gone_at <= now
    assert files_with_the_secret(table) == []
    assert (third.gone_at, visible(table)) == (None, [1, 2, 3, 4, 6])
    assert "quarantined" not in codes(third)


def test_a_pin_on_the_old_version_keeps_the_row_and_nobody_can_say_how_long(table):
    now = datetime.now(UTC)
    put_pin(open_store(table), Pin(name="audit", version=2, created_at=now, expires_at=None))
    erase(table)
    report, _ = erase(table, days=30, grace="0")
    assert files_with_the_secret(table) == ["part-001.parquet"]
    assert "pinned" in codes(report)
    assert report.gone_at is None


def test_a_dry_run_says_what_would_be_rewritten_and_changes_nothing(table):
    before = fingerprint(table)
    report, _ = erase(table, dry_run=True)
    assert (report.outcome, report.files_rewritten, report.deleted_row_count) == ("dry_run", 1, 1)
    assert codes(report)[0] == "not_rewritten"
    assert fingerprint(table) == before


def test_a_cap_that_leaves_deleted_rows_behind_is_told(table):
    add_by_hand(table, {"id": pa.array([8, 9], pa.int64())}, deleted=BitMap64([0]))
    report, _ = erase(table, max_groups_per_run=1, target_file_bytes=1)
    assert (report.deleted_row_count, codes(report)[0]) == (1, "not_rewritten")


def test_the_command_prints_what_is_still_there(table, capsys):
    assert run(["purge", str(table), "--engine", "local", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["operation"], document["files_rewritten"]) == ("purge", 1)
    assert [place["code"] for place in document["remaining"]] == ["older_versions", "log"]
    assert run(["purge", str(table), "--engine", "local"]) == 0
    assert "remaining: versions from" in capsys.readouterr().out


def test_the_log_is_clean_of_the_row_when_the_report_said_so(table):
    state_largest_value(table, version=2)
    first, now = erase(table)
    assert first.log_gone_at > now + timedelta(days=30)
    assert SECRET in values_in_log(table)
    erase(table, days=9)
    assert "log" in codes(erase(table, days=10)[0])
    last, _ = erase(table, days=(first.log_gone_at - now).days + 1)
    assert last.log_files_deleted > 0
    assert (codes(last), last.gone_at, last.log_gone_at) == ([], None, None)
    assert SECRET not in values_in_log(table)
    assert visible(table) == [1, 2, 3, 4, 6]


def state_largest_value(path, *, version):
    """Put the bounds into the log that a writer would have put there."""
    commit = path / "_delta_log" / f"{version:020}.json"
    action = json.loads(commit.read_text())
    stats = json.loads(action["add"]["stats"]) | {"maxValues": {"id": SECRET}}
    action["add"]["stats"] = json.dumps(stats)
    commit.write_text(json.dumps(action))


def values_in_log(path):
    """Return the largest values that statistics tell, in all commits and checkpoints."""
    log = path / "_delta_log"
    adds = [
        action["add"]
        for file in log.glob("*.json")
        for line in file.read_text().splitlines()
        if "add" in (action := json.loads(line))
    ]
    for file in log.glob("*.parquet"):
        adds += [add for add in pq.read_table(file)["add"].to_pylist() if add]
    stats = [json.loads(add["stats"]) for add in adds]
    return {stat["maxValues"]["id"] for stat in stats if "maxValues" in stat}


MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


def mapped(name, number):
    details = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
    return {**field(name, "long"), "metadata": details}


def stored_names(path):
    live = lakehand.open_table(path).snapshot().files["path"].to_pylist()
    return [pq.read_schema(path / file).names for file in live]


@pytest.fixture
def narrowed(tmp_path):
    """Return a table that has dropped a column, by name only, after its first file of two."""
    path = make_by_hand(tmp_path / "t", mapped("id", 1), mapped("age", 2), properties=MAPPED)
    both = {"col-id": pa.array([1, 2], pa.int64()), "col-age": pa.array([SECRET, 70], pa.int64())}
    add_by_hand(path, both)
    commit_by_hand(path, metadata(mapped("id", 1), properties=MAPPED))
    add_by_hand(path, {"col-id": pa.array([3], pa.int64())})
    return path


def test_a_column_that_was_dropped_by_name_leaves_the_files(narrowed):
    report, _ = erase(narrowed)
    assert (report.files_rewritten, report.files_with_dropped_columns) == (1, 0)
    assert stored_names(narrowed) == [["col-id"], ["col-id"]]
    assert visible(narrowed) == [1, 2, 3]
    assert erase(narrowed)[0].files_rewritten == 0


def test_a_dry_run_counts_files_with_dropped_columns(narrowed):
    report, _ = erase(narrowed, dry_run=True)
    assert (report.files_rewritten, report.files_with_dropped_columns) == (1, 1)
    assert codes(report)[0] == "dropped_columns"
    assert sorted(map(len, stored_names(narrowed))) == [1, 2]


def test_columns_that_the_table_never_had_leave_the_files(tmp_path):
    path = make_by_hand(tmp_path / "t", field("id", "long"))
    add_by_hand(path, {"id": pa.array([1], pa.int64()), "stray": pa.array([SECRET], pa.int64())})
    report, _ = erase(path)
    assert (report.files_rewritten, codes(report)) == (1, ["older_versions", "log"])
    assert (stored_names(path), visible(path)) == ([["id"]], [1])


def test_of_a_table_that_is_not_on_disk_versions_of_objects_may_remain():
    model = ModelledTable()
    model.append(Random(1))
    model.append(Random(2))
    model.delete(Random(3))
    with tasks_inline():
        report = purge(model.table, settings=Settings({}, environment={}), clock=model.clock)
    assert (report.deleted_row_count, codes(report)[-1]) == (0, "object_versions")
    found = scan(model.table).read_all()["id"].to_pylist()
    assert frozenset(found) == model.rows[-1]


def test_a_file_that_cannot_be_read_fails_the_purge_and_changes_nothing(narrowed):
    (file,) = narrowed.glob("part-001*")
    file.write_bytes(b"no longer Parquet")
    with pytest.raises(LakehandError):
        erase(narrowed)
    assert pq.read_schema(narrowed / "part-000.parquet").names == ["col-id", "col-age"]
    assert lakehand.open_table(narrowed).snapshot().version == 3
