"""The contest of the benchmarks, with real contenders on a small table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from contents import content_before
from contest import Contender, compete
from deltalake import DeltaTable, write_deltalake
from tpch import Workload


def _workload(path, *, last="z", **more):
    for number in range(4):
        rows = pa.table({"id": [number, 10 + number], "word": ["a", last]})
        write_deltalake(path, rows, mode="append")
    return Workload(name="tiny", table=path, target_file_bytes=2**20, files_out=1, **more)


@pytest.fixture
def workload(tmp_path):
    return _workload(tmp_path / "table")


def test_contenders_take_turns_on_copies_of_the_table_and_are_checked(workload, tmp_path):
    names = ("lakehand-local", "delta-rs", "duckdb", "bytes")
    with (
        Contender(names[0], tmp_path) as ours,
        Contender(names[1], tmp_path) as delta_rs,
        Contender(names[2], tmp_path) as duckdb,
        Contender(names[3], tmp_path) as copied,
    ):
        found = compete(
            workload,
            [ours, delta_rs, duckdb, copied],
            runs=dict.fromkeys(names, 2) | {"delta-rs": 1},
            scratch=tmp_path,
        )
    assert [len(result.runs) for result in found.results] == [2, 1, 2, 2]
    assert [result.after.files for result in found.results] == [1, 1, 1, 1]
    assert [result.is_same_rows for result in found.results] == [True, True, True, None]
    assert DeltaTable(workload.table).version() == 3


def test_a_contender_that_fails_is_left_out_with_its_own_words(workload, tmp_path):
    (tmp_path / "table" / "_delta_log" / f"{0:020}.json").write_text("{}")
    with Contender("delta-rs", tmp_path) as delta_rs:
        found = compete(workload, [delta_rs], runs={"delta-rs": 2}, scratch=tmp_path)
    assert found.results[0].runs == []
    assert "metadata" in found.results[0].error.lower()


def test_one_changed_value_changes_the_digest_and_the_order_of_rows_does_not(workload, tmp_path):
    other = _workload(tmp_path / "other", last="y")
    reversed_rows = DeltaTable(workload.table).to_pyarrow_table().sort_by([("id", "descending")])
    write_deltalake(tmp_path / "reversed", reversed_rows)
    before = content_before(workload)
    turned = content_before(replace(workload, table=tmp_path / "reversed"))
    assert content_before(other).digest != before.digest
    assert (turned.rows, turned.digest) == (before.rows, before.digest) == (8, before.digest)


def test_deleted_rows_are_not_expected_afterwards(workload):
    assert content_before(replace(workload, deleted="id >= 10")).rows == 4
