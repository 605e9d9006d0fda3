"""Vacuum and checkpoints under the names that their users gave to what they expect of them."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import lakehand
from lakehand.errors import ValidationError
from support.later_vacuums import data_files, vacuum_later
from support.small_tables import make_table, read_sorted, rows


@pytest.fixture
def rewritten(tmp_path):
    """Return a table whose files were all replaced by one for each region."""
    path = make_table(tmp_path / "table", commits=4)
    DeltaTable(str(path)).optimize.compact()
    return path


def test_vacuum_removes_old_files(rewritten):
    before, live = read_sorted(rewritten), set(DeltaTable(str(rewritten)).file_uris())
    report = vacuum_later(rewritten, days=8)
    assert (report.files_deleted, report.files_retained, report.errors) == (8, 2, ())
    assert {str(rewritten / file) for file in data_files(rewritten)} == live
    assert read_sorted(rewritten).equals(before)
    assert lakehand.open_table(rewritten).to_arrow().num_rows == 40


def test_vacuum_retention(rewritten):
    before, old = read_sorted(rewritten), data_files(rewritten)
    assert vacuum_later(rewritten, days=6).files_deleted == 0
    assert vacuum_later(rewritten, days=8, retention="30d").files_deleted == 0
    assert data_files(rewritten) == old
    assert DeltaTable(str(rewritten), version=3).to_pyarrow_table().num_rows == 40
    with pytest.raises(ValidationError, match="at least 1 h"):
        vacuum_later(rewritten, retention="30m", allow_short_retention=True)
    assert vacuum_later(rewritten, days=1, retention="2h", allow_short_retention=True).files_deleted
    assert read_sorted(rewritten).equals(before)


def test_vacuum_dry_run_lists_files(rewritten):
    before = data_files(rewritten)
    dry = vacuum_later(rewritten, days=8, dry_run=True)
    assert (len(dry.files_to_delete), dry.files_deleted) == (8, 8)
    assert data_files(rewritten) == before
    vacuum_later(rewritten, days=8)
    assert before - data_files(rewritten) == set(dry.files_to_delete)


def test_checkpoint_creates_parquet(tmp_path):
    path = make_table(tmp_path / "table", commits=3)
    live = {uri.rpartition("/")[2] for uri in DeltaTable(str(path)).file_uris()}
    assert lakehand.open_table(path).checkpoint().version == 2
    folded = pq.read_table(path / "_delta_log" / f"{2:020}.checkpoint.parquet")
    assert {add["path"].rpartition("/")[2] for add in folded["add"].to_pylist() if add} == live
    for version in range(2):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert read_sorted(path).select(["id", "region", "amount"]).equals(rows(0, 30))
    assert lakehand.open_table(path).to_arrow().num_rows == 30


def test_checkpoint_interval(tmp_path):
    path = make_table(tmp_path / "table", commits=5)
    before = read_sorted(path)
    opened = lakehand.open_table(path, engine="local", checkpoint_interval=6)
    assert opened.snapshot().checkpoint_version is None
    opened.compact()
    assert (opened.snapshot().version, opened.snapshot().checkpoint_version) == (5, 5)
    assert read_sorted(path).equals(before)
