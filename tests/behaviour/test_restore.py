"""Restoring a version: the same rows, columns and properties again, as a new version."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehand import open_table
from lakehand.cli.main import run
from lakehand.errors import CommitConflictError, RefusedError, ValidationError
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.formats.delta.repair.restore_commit import restored_metadata, restoring_change
from lakehand.formats.delta.table import DeltaTable as Handle
from lakehand.retention.log_maintenance import restore
from support.hand_written_logs import add, metadata, new_log, protocol, put_commit, remove


def append(path, *ids: int, **options) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(str(path), data, mode=options.pop("mode", "append"), **options)


def ids(path) -> list[int]:
    return sorted(open_table(path).to_arrow()["id"].to_pylist())


@pytest.fixture
def path(tmp_path):
    """Return a table whose version 1 has the rows 1 to 4 and whose version 2 has 9 alone."""
    append(tmp_path, 1, 2)
    append(tmp_path, 3, 4)
    append(tmp_path, 9, mode="overwrite")
    return tmp_path


def test_a_restored_version_has_its_rows_again_and_history_grows(path):
    report = open_table(path).restore(version=1)
    assert (report.outcome, report.version, report.restored_version) == ("committed", 3, 1)
    assert (report.files_restored, report.files_removed) == (2, 1)
    assert ids(path) == [1, 2, 3, 4]
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]
    assert open_table(path).history()[0].operation == "RESTORE"


def test_a_restore_can_be_restored_in_turn(path):
    open_table(path).restore(version=0)
    open_table(path).restore(version=2)
    assert ids(path) == [9]


def test_the_time_of_a_version_names_it(path):
    at = open_table(path).snapshot(version=1).at
    assert open_table(path).restore(timestamp=at).restored_version == 1


def test_a_version_that_is_in_force_is_nothing_to_do(path):
    assert open_table(path).restore(version=2).outcome == "nothing_to_do"
    assert open_table(path).snapshot().version == 2


def test_a_dry_run_commits_nothing(path):
    report = open_table(path).restore(version=1, dry_run=True)
    assert (report.outcome, report.files_restored, report.version) == ("dry_run", 2, 2)
    assert ids(path) == [9]


def test_a_version_whose_files_are_gone_is_refused_by_name(path):
    lost = open_table(path).snapshot(version=0).files["path"][0].as_py()
    (path / lost).unlink()
    with pytest.raises(RefusedError, match=lost):
        open_table(path).restore(version=1)
    assert ids(path) == [9]
    assert open_table(path).restore(version=1, accept_missing=True).outcome == "committed"


def test_columns_come_back_with_the_rows(path):
    wider = pa.table({"id": pa.array([5], pa.int64()), "note": ["new"]})
    write_deltalake(str(path), wider, mode="append", schema_mode="merge")
    report = open_table(path).restore(version=1)
    assert (report.metadata_restored, open_table(path).schema().names) == (True, ["id"])
    assert ids(path) == [1, 2, 3, 4]


def test_any_commit_meanwhile_fails_a_restore():
    store = new_log([protocol(), metadata(), add("a")], [remove("a", at_ms=1), add("b")])
    table = Handle(store)
    change = restoring_change(table, table.snapshot(), table.snapshot(version=0))
    put_commit(store, 2, add("c", dataChange=False))
    with pytest.raises(CommitConflictError, match="version 2"):
        table.commit(change, token="t")
    assert set(table.snapshot().files["path"].to_pylist()) == {"b", "c"}


def test_a_file_comes_back_with_all_that_its_entry_said():
    entry = add("a", tags={"k": "v"}, modificationTime=5)
    store = new_log([protocol(), metadata(), entry], [remove("a", at_ms=1)])
    restore(Handle(store), version=0, accept_missing=True)
    lines = [json.loads(line) for line in store.get(commit_key(2)).splitlines()]
    assert [line["add"] for line in lines if "add" in line] == [entry["add"]]


def test_a_feature_that_was_dropped_since_refuses_its_versions():
    vectors = protocol(reader=("deletionVectors",))
    store = new_log([vectors, metadata(), add("a")], [protocol("appendOnly"), add("b")])
    with pytest.raises(RefusedError, match="deletionVectors"):
        restore(Handle(store), version=0, accept_missing=True)


def test_what_the_log_depends_on_is_not_set_back():
    then, now = (
        Handle(new_log([protocol(), metadata(properties=properties)])).snapshot().native.metadata
        for properties in (
            {"a": "1", "delta.columnMapping.maxColumnId": "2"},
            {
                "b": "2",
                "delta.columnMapping.maxColumnId": "7",
                "delta.enableInCommitTimestamps": "true",
            },
        )
    )
    assert restored_metadata(now, then).configuration == {
        "a": "1",
        "delta.columnMapping.maxColumnId": "7",
        "delta.enableInCommitTimestamps": "true",
    }


def test_neither_a_version_nor_a_time_is_a_mistake(path):
    with pytest.raises(ValidationError, match="give the version"):
        open_table(path).restore()


def test_the_command_says_what_came_back(path, capsys):
    assert run(["restore", str(path), "--version", "1"]) == 0
    assert "2 files" in capsys.readouterr().out
    assert ids(path) == [1, 2, 3, 4]
    assert run(["restore", str(path)]) == 2
