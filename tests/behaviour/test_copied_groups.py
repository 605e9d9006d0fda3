"""A group whose row groups are moved undecoded holds the same rows for every reader."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake

from lakehand.errors import CorruptFileError, ProofError, StorageError
from lakehand.formats.delta.write import copier
from lakehand.formats.delta.write.context import WriteContext
from lakehand.formats.delta.write.copier import why_not_of_class
from lakehand.formats.worker import WriteSpec
from lakehand.model.work import Change, GroupResult, Replacement
from lakehand.observe.steps import Step, listen
from lakehand.parquet.copyable import copy_class
from lakehand.parquet.footer import read_footer
from lakehand.parquet.row_group_copy import copy_row_groups
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.rewrite.run import compact
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run, list_runs
from lakehand.settings import Settings
from support.rows import delta_table

LOCAL = Settings({"engine": "local"}, environment={})


def _rows(start: int) -> pa.Table:
    numbers = range(start, start + 500)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"é-{n}" if n % 7 else None for n in numbers],
            "amount": [n / 3 for n in numbers],
            "point": [{"x": n, "y": None if n % 2 else n} for n in numbers],
        }
    )


@pytest.fixture
def path(tmp_path):
    for start in range(0, 3_000, 500):
        write_deltalake(str(tmp_path / "t"), _rows(start), mode="append")
    return tmp_path / "t"


def _read(path) -> pa.Table:
    return deltalake.DeltaTable(str(path)).to_pyarrow_table().sort_by("id")


def _run_first_group(path, method: str = "copy"):
    work = prepare(make_plan(delta_table(path), LOCAL, Request()))
    group = replace(work.groups[0], method=method)
    run = Run.start(work.table.store, {"groups": [group.to_json()]}, snapshot=work.snapshot)
    spec = WriteSpec(target_file_bytes=2**27)
    task = RewriteTask(worker=work.table.worker(work.snapshot), run=run, spec=spec)
    payload = json.loads(json.dumps({"group": group.to_json()}))
    return work, group, GroupResult.from_json(task(payload))


def _commit(work, group, result):
    change = Change(
        kind="rewrite",
        base_version=work.snapshot.version,
        operation="OPTIMIZE",
        replacements=(Replacement(group=0, removes=group.inputs, adds=result.outputs),),
        proof={"0": result.proof.to_json()},
    )
    return work.table.commit(change, token="copied")


def test_a_copied_group_is_proved_by_ranges_and_read_equal(path):
    before = _read(path)

    work, group, result = _run_first_group(path)
    _commit(work, group, result)

    assert (result.method, result.proof.kind, result.proof.rows) == ("copy", "ranges", 3_000)
    assert work.table.snapshot().file_count == 1
    assert _read(path).equals(before)
    columns = work.table.worker(work.table.snapshot())
    files = work.table.data_files(work.table.snapshot(), [0])
    assert columns.read(files).read_all().sort_by("id").num_rows == 3_000


def test_statistics_of_a_copied_group_are_those_of_its_inputs(path):
    _, _, result = _run_first_group(path)
    (output,) = result.outputs
    stats = json.loads(output.native["stats"])
    assert stats["numRecords"] == 3_000
    assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (0, 2_999)
    assert stats["nullCount"]["name"] == len([n for n in range(3_000) if n % 7 == 0])


def test_row_groups_arrive_as_they_were(path):
    _, group, result = _run_first_group(path)
    written = pq.ParquetFile(path / result.outputs[0].path).metadata
    assert written.num_row_groups == len(group.inputs)
    assert written.created_by.startswith("lakehand")


def _append_with_another_codec(path):
    properties = WriterProperties(compression="ZSTD")
    write_deltalake(str(path), _rows(3_000), mode="append", writer_properties=properties)


def _append_with_another_column(path):
    wider = _rows(3_000).append_column("more", pa.array(range(500), pa.int64()))
    write_deltalake(str(path), wider, mode="append", schema_mode="merge")


@pytest.mark.parametrize("append", [_append_with_another_codec, _append_with_another_column])
def test_a_group_that_cannot_be_copied_is_recoded(path, append):
    append(path)
    before = _read(path)

    work, group, result = _run_first_group(path)
    _commit(work, group, result)

    assert (result.method, result.proof.kind) == ("recode", "digest")
    assert _read(path).equals(before)


def test_compaction_copies_files_with_healthy_row_groups(tmp_path):
    for start in range(5):
        numbers = np.arange(start * 110_000, (start + 1) * 110_000)
        write_deltalake(str(tmp_path), pa.table({"id": numbers}), mode="append")
    before = _read(tmp_path)

    report = compact(delta_table(tmp_path), settings=LOCAL)
    again = compact(delta_table(tmp_path), settings=LOCAL)

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 1, "ranges")
    assert again.outcome == "nothing_to_do"
    assert _read(tmp_path).equals(before)


def test_a_copy_that_leaves_a_row_group_out_is_caught(path, monkeypatch):
    def without_the_last(sources, sink, **options):
        return copy_row_groups(sources[:-1], sink, **options)

    monkeypatch.setattr(copier, "copy_row_groups", without_the_last)
    with pytest.raises(ProofError, match="inputs hold 3000 rows"):
        _run_first_group(path)


def test_copies_are_proved_while_they_go_to_the_disk_and_recorded_when_they_are_there(
    path, monkeypatch
):
    seen, real = [], os.fsync

    def note(descriptor):
        real(descriptor)
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name[:8])

    monkeypatch.setattr(os, "fsync", note)
    listen(lambda step: seen.append(step) if step.startswith("task-") else None)
    _run_first_group(path)
    listen(None)

    steps = [Step.TASK_RESERVED, Step.TASK_WRITTEN, "lakehand", "t", Step.TASK_PROVED]
    assert seen[seen.index(Step.TASK_RESERVED) :][:5] == steps


def test_copies_that_do_not_reach_the_disk_are_not_recorded(path, monkeypatch):
    def fail(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        _run_first_group(path)

    [run] = list_runs(delta_table(path).store)
    assert Run.open(delta_table(path).store, run).results() == []


def test_an_input_cut_off_during_the_copy_is_an_error(path, monkeypatch):
    def copy_what_was_cut_off(sources, sink, **options):
        os.truncate(path / sources[-1].key, 100)
        return copy_row_groups(sources, sink, **options)

    monkeypatch.setattr(copier, "copy_row_groups", copy_what_was_cut_off)
    with pytest.raises(CorruptFileError, match="within a column chunk"):
        _run_first_group(path)


@pytest.mark.parametrize(
    ("codec", "features", "reason"),
    [
        ("snappy", (), None),
        ("snappy+uncompressed", (), "snappy\\+uncompressed"),
        ("uncompressed", (), "uncompressed"),
        ("snappy", ("materializePartitionColumns",), "partition columns"),
    ],
)
def test_only_files_that_new_ones_may_look_like_are_copied(path, codec, features, reason):
    table = delta_table(path)
    context = WriteContext.of(table.snapshot().native)
    context = replace(context, writer_features=frozenset(features), partition_columns=("id",))
    file = table.data_files(table.snapshot(), [0])[0]
    found = replace(copy_class(read_footer(table.store, file.path)), codec=codec)

    why_not = why_not_of_class(context, found)
    assert why_not is None if reason is None else re.search(reason, why_not)
