"""A vacuum that is killed at any step: the next one finishes or reverts it, no needed file goes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehand
from lakehand.observe.steps import Step
from lakehand.retention.quarantine import list_quarantines
from support.crash import kill_at, run_and_kill

_OLD_SECONDS = 30 * 24 * 3600


@pytest.fixture
def place(tmp_path):
    """Return a table with two live files and three that were removed a month ago."""
    for number in range(3):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    write_deltalake(tmp_path / "t", pa.table({"id": [7]}), mode="overwrite")
    write_deltalake(tmp_path / "t", pa.table({"id": [8]}), mode="append")
    _make_old(tmp_path / "t")
    return str(tmp_path / "t")


def _make_old(root: Path) -> None:
    past = time.time() - _OLD_SECONDS
    for commit in (root / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] -= _OLD_SECONDS * 1000
        commit.write_text("\n".join(json.dumps(line) for line in lines))
    for path in root.rglob("*"):
        os.utime(path, (past, past))


def data_files(place):
    return {path.name for path in Path(place).glob("*.parquet")}


def rows(place):
    return sorted(DeltaTable(place).to_pyarrow_table()["id"].to_pylist())


def vacuum(place, grace):
    lakehand.open_table(place).vacuum(grace=grace)


def undo(place):
    table = lakehand.open_table(place)
    table.vacuum(undo=list_quarantines(table._handle.store)[0].id)


def live_files(place):
    return {Path(uri).name for uri in DeltaTable(place).file_uris()}


@kill_at(Step.QUARANTINE_LISTED, Step.QUARANTINE_STARTED)
def test_a_vacuum_killed_while_it_sets_files_aside_leaves_them_all(place, step):
    before = data_files(place)
    run_and_kill(step, vacuum, place, "1d")
    assert data_files(place) == before
    report = lakehand.open_table(place).vacuum(grace="0")
    assert (report.files_deleted, report.errors) == (3, ())
    assert data_files(place) == live_files(place)
    assert rows(place) == [7, 8]


@kill_at(Step.VACUUM_ANNOUNCED, Step.VACUUM_DELETING, Step.VACUUM_DELETED)
def test_a_vacuum_killed_while_it_deletes_is_finished_by_the_next(place, step):
    run_and_kill(step, vacuum, place, "0")
    assert rows(place) == [7, 8]
    lakehand.open_table(place).vacuum(grace="0")
    assert data_files(place) == live_files(place)
    assert rows(place) == [7, 8]


@kill_at(Step.QUARANTINE_DECIDED, Step.VACUUM_DELETED, Step.QUARANTINE_DROPPED)
def test_a_sweep_that_is_killed_is_finished_by_the_next(place, step):
    vacuum(place, "1d")
    run_and_kill(step, vacuum, place, "0")
    lakehand.open_table(place).vacuum(grace="1d")
    assert data_files(place) == live_files(place)
    assert not list_quarantines(lakehand.open_store(place))
    assert rows(place) == [7, 8]


@kill_at(Step.QUARANTINE_DECIDED, Step.QUARANTINE_DROPPED)
def test_an_undo_that_is_killed_keeps_every_file(place, step):
    before = data_files(place)
    vacuum(place, "1d")
    run_and_kill(step, undo, place)
    report = lakehand.open_table(place).vacuum(grace="1d")
    assert data_files(place) == before
    assert (report.files_deleted, report.files_quarantined) == (0, 3)
