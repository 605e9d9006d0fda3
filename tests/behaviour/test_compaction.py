"""Compaction from end to end without a JVM: rows stay, or nothing happens."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehand.errors import CorruptFileError, ProofError, ReplanError
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.worker import WriteSpec
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.rewrite.run import compact
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run, list_runs
from lakehand.settings import Settings
from support.rows import assert_same_rows, delta_table, lakehand_rows
from support.small_tables import fingerprint, make_table, read_sorted

if TYPE_CHECKING:
    from collections.abc import Callable

LOCAL = Settings({"engine": "local"}, environment={})


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "table")


def data_files(path):
    return sorted(path.rglob("*.parquet"))


def test_simple_compaction(table):
    before, seen_by_lakehand = read_sorted(table), lakehand_rows(table)

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.files_before, report.files_after) == (12, 2)
    assert report.groups.committed == report.methods.recode == 2
    assert read_sorted(table).equals(before)
    assert_same_rows(lakehand_rows(table), seen_by_lakehand)


def snapshot_bytes(table, region):
    """Return the bytes of the files that one partition had before it was compacted."""
    files = (table / f"region={region}").glob("part-*.parquet")
    return sum(file.stat().st_size for file in files)


def test_progress_is_told_by_group_and_in_bytes(table):
    seen = []

    compact(delta_table(table), settings=LOCAL, on_progress=seen.append)

    assert [(event.phase, event.done, event.total) for event in seen] == [
        ("survey", 0, None),
        ("rewrite", 0, 2),
        ("rewrite", 1, 2),
        ("rewrite", 2, 2),
        ("commit", 0, 2),
        ("commit", 2, 2),
    ]
    read_bytes = [event.done_bytes for event in seen if event.phase == "rewrite"]
    sizes = [snapshot_bytes(table, region) for region in ("us", "eu")]
    assert (read_bytes[0], read_bytes[2]) == (0, sum(sizes))
    assert read_bytes[1] in sizes


def test_raising_from_progress_cancels_and_leaves_nothing_behind(table):
    before = fingerprint(table)

    def refuse(_event):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        compact(delta_table(table), settings=LOCAL, on_progress=refuse)

    assert fingerprint(table) == before


def test_a_broken_input_stops_its_group_and_no_other(table):
    broken = next(file for file in data_files(table) if "region=eu" in file.as_posix())
    broken.write_bytes(broken.read_bytes()[:-30])

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.groups.planned, report.groups.committed, report.files_after) == (2, 1, 7)
    [error] = report.errors
    assert error["code"] == "CORRUPT_FILE"
    assert list(delta_table(table).store.list("_lakehand")) == []


def test_if_every_group_fails_nothing_is_changed_and_the_reason_is_raised(table):
    for file in data_files(table):
        file.write_bytes(file.read_bytes()[:-30])
    before = fingerprint(table)

    with pytest.raises(CorruptFileError):
        compact(delta_table(table), settings=LOCAL)

    assert fingerprint(table) == before


def test_a_target_size_rolls_outputs(tmp_path):
    path = make_table(tmp_path / "table", commits=8, rows_a_commit=8000)
    settings = Settings({"engine": "local", "target_file_bytes": "256KiB"}, environment={})

    report = compact(delta_table(path), settings=settings)

    assert report.outcome == "committed"
    sizes = [file.stat().st_size for file in path.rglob("lakehand-*.parquet")]
    assert max(sizes) < 1.1 * 256 * 1024


# The proof


@dataclass
class Tampering:
    """A worker that writes other rows than it was given."""

    worker: Any
    mutate: Callable[[pa.Table], pa.Table]

    def __getattr__(self, name):
        return getattr(self.worker, name)

    def write(self, batches, spec, **options):
        rows = pa.Table.from_batches(batches)
        return self.worker.write(self.mutate(rows).to_batches(), spec, **options)


def replace_column(rows: pa.Table, name: str, values) -> pa.Table:
    index = rows.column_names.index(name)
    return rows.set_column(index, rows.schema.field(name), values)


def one_dropped_one_doubled(rows):
    return pa.concat_tables([rows.slice(1), rows.slice(1, 1)])


def one_dropped(rows):
    return rows.slice(1)


def value_moved_to_another_row(rows):
    order = pa.array([1, 0, *range(2, rows.num_rows)])
    return replace_column(rows, "amount", rows["amount"].take(order))


def null_turned_into_zero(rows):
    return replace_column(rows, "amount", pc.fill_null(rows["amount"], 0.0))


def pair_replaced_by_another(rows):
    ids = pa.chunked_array([pa.array([7, 7, *rows["id"].to_pylist()[2:]], pa.int64())])
    return replace_column(rows, "id", ids)


def recode(path, mutate):
    work = prepare(make_plan(delta_table(path), LOCAL, Request()))
    worker = Tampering(work.table.worker(work.snapshot), mutate)
    group = work.groups[0].to_json()
    run = Run.start(work.table.store, {"groups": [group]}, snapshot=work.snapshot)
    task = RewriteTask(worker=worker, run=run, spec=WriteSpec(target_file_bytes=2**20))
    return task({"group": json.loads(json.dumps(group))})


def test_rows_written_as_they_were_read_are_proved(table):
    result = recode(table, lambda rows: rows)

    assert result["proof"]["kind"] == "digest"
    assert result["proof"]["rows"] == 30


@pytest.mark.parametrize(
    "mutate",
    [
        one_dropped_one_doubled,
        one_dropped,
        value_moved_to_another_row,
        null_turned_into_zero,
        pair_replaced_by_another,
    ],
)
def test_a_changed_output_is_never_reported(table, mutate):
    with pytest.raises(ProofError, match="nothing was changed"):
        recode(table, mutate)

    [run] = list_runs(delta_table(table).store)
    assert Run(store=delta_table(table).store, id=run).results() == []


def test_a_table_created_anew_during_a_compaction_is_left_alone(table, monkeypatch):
    commit = DeltaTable.commit

    def commit_to_a_new_table(self, change, *, token):
        shutil.rmtree(table)
        make_table(table, commits=8, rows_a_commit=4)
        return commit(self, change, token=token)

    monkeypatch.setattr(DeltaTable, "commit", commit_to_a_new_table)
    with pytest.raises(ReplanError, match="recreated"):
        compact(delta_table(table), settings=LOCAL)
    assert read_sorted(table).num_rows == 32
