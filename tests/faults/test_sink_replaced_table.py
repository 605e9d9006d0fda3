"""A table that is deleted and created anew under a sink gets nothing made for the old one."""

from __future__ import annotations

import shutil

import pytest

import lakehand
from lakehand.errors import CommitUnknownError, ReplanError
from lakehand.sink import EpochState, TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from lakehand.storage.retry import NO_RETRY
from support.sinks import SCHEMA, batch_of, ids_in

UPSERT = {"write_mode": "upsert", "merge_key": "id"}


def make(place, *ids):
    table = lakehand.create_table(place, SCHEMA)
    for number in ids:
        table.append(batch_of([number]))


def replace(place):
    shutil.rmtree(place)
    make(place, 1, 2, 3)


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_an_epoch_is_refused_as_often_as_it_is_tried_and_written_again_after_a_rollback(
    tmp_path, options
):
    make(tmp_path, 1)
    with TableSink(tmp_path, writer_id="w", **options) as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([100]))
        sink.pre_commit()
        replace(tmp_path)
        for _ in range(2):
            with pytest.raises(ReplanError):
                sink.commit_epoch()
        assert ids_in(tmp_path) == [1, 2, 3]

        sink.rollback_epoch()
        sink.begin_epoch(1)
        sink.write(batch_of([100]))
        sink.commit_epoch()
    assert ids_in(tmp_path) == [1, 2, 3, 100]


def test_a_flush_is_refused_as_often_as_it_is_tried(tmp_path):
    make(tmp_path, 1)
    sink = TableSink(tmp_path, delivery="at-least-once").open()
    sink.write(batch_of([100]))
    sink.flush()
    sink.write(batch_of([101]))
    replace(tmp_path)
    for _ in range(2):
        with pytest.raises(ReplanError, match="recreated"):
            sink.flush()
    with pytest.raises(ReplanError, match="recreated"):
        sink.close()
    assert ids_in(tmp_path) == [1, 2, 3]


def test_another_table_is_no_proof_that_a_commit_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", NO_RETRY)
    make(tmp_path, 1)
    faults = [
        Fault(kind=FaultKind.FAIL_BEFORE, operation="put_if_absent", key="*.json", times=None),
        Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*2.json", times=None),
    ]
    with TableSink(FaultStore(open_store(tmp_path), faults), writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([100]))
        with pytest.raises(CommitUnknownError):
            sink.commit_epoch()
        replace(tmp_path)
        for fault in faults:
            fault.times = 0
        with pytest.raises(ReplanError, match="recreated"):
            sink.commit_epoch()
        assert sink.epoch_state is EpochState.UNKNOWN
        sink.rollback_epoch()
    assert ids_in(tmp_path) == [1, 2, 3]
