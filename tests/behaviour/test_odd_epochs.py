"""Epochs and names of writers that no log can hold are refused before anything is written."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CorruptLogError, ValidationError
from lakehand.formats.delta.commits.head import assign_row_ids
from lakehand.model.work import Transaction
from lakehand.settings import Settings
from lakehand.sink import SinkCommitter, TableSink

ROWS = pa.table({"id": [1]})
LAST = 2**63 - 1
EPOCHS = [2**63, 10**30, -1, True, 1.0, "x", "1", np.float64(1)]
NAMES = [5, b"x", "", " ", "a" * 1025, "\ud800", True, ["a"], 1.5]
odd_epochs = pytest.mark.parametrize("epoch", EPOCHS, ids=repr)
odd_names = pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", ROWS.schema)
    return tmp_path / "t"


def newest(place):
    return lakehand.open_table(place).snapshot().version


@pytest.mark.parametrize("epoch", [*EPOCHS, None], ids=repr)
def test_a_sink_and_a_committer_refuse_what_is_no_epoch(place, epoch):
    for options in ({"writer_id": "w"}, {}):
        with (
            TableSink(place, **options) as sink,
            pytest.raises(ValidationError, match="an epoch must be an integer"),
        ):
            sink.begin_epoch(epoch)
    with (
        SinkCommitter(place, pipeline="p") as committer,
        pytest.raises(ValidationError, match="an epoch must be an integer"),
    ):
        committer.commit(epoch, [])
    assert newest(place) == 0


@odd_epochs
def test_calls_refuse_what_is_no_epoch(place, epoch):
    table, mark = lakehand.open_table(place), {"writer_id": "w", "epoch": epoch}
    calls = [
        lambda: table.append(ROWS, **mark),
        lambda: table.overwrite(ROWS, **mark),
        lambda: table.upsert(ROWS, key=["id"], **mark),
        lambda: table.delete_keys(ROWS, key=["id"], **mark),
    ]
    for call in calls:
        with pytest.raises(ValidationError, match="an epoch must be an integer"):
            call()
    assert newest(place) == 0


def test_the_last_epoch_and_integers_of_numpy_are_epochs(place):
    table = lakehand.open_table(place)
    table.append(ROWS, writer_id="w", epoch=np.int64(5))
    table.append(ROWS, writer_id="w", epoch=LAST)
    assert table.append(ROWS, writer_id="w", epoch=LAST).outcome == "nothing_to_do"
    assert table.checkpoint().outcome == "committed"
    assert lakehand.open_table(place).to_arrow().num_rows == 2


@odd_names
def test_names_of_writers_that_no_log_can_hold_are_refused(place, name):
    calls = [
        lambda: TableSink(place, writer_id=name),
        lambda: TableSink(place, writer_id="w", pipeline=name),
        lambda: SinkCommitter(place, pipeline=name),
        lambda: lakehand.open_table(place).append(ROWS, writer_id=name, epoch=1),
        lambda: Transaction(application=name, version=1),
    ]
    for call in calls:
        with pytest.raises(ValidationError):
            call()
    assert newest(place) == 0


@pytest.mark.parametrize(
    "transaction",
    [
        {"appId": "a", "version": 2**63},
        {"appId": "a", "version": 1, "lastUpdated": 2**63},
        {"appId": "a", "version": "x"},
        {"appId": "a", "version": None},
        {"appId": "a", "version": 1.5},
        {"appId": 5, "version": 1},
    ],
    ids=range(6),
)
def test_a_transaction_in_the_log_that_no_engine_can_read_is_typed(place, transaction):
    lakehand.open_table(place).append(ROWS)
    commit = place / "_delta_log" / f"{2:020d}.json"
    commit.write_text(json.dumps({"txn": transaction}) + "\n")
    table = lakehand.open_table(place)
    for call in (
        table.snapshot,
        table.checkpoint,
        lambda: table.append(ROWS, writer_id="b", epoch=3),
    ):
        with pytest.raises(CorruptLogError, match="version 2"):
            call()
    assert table.snapshot(version=1).version == 1


def test_row_ids_that_are_used_up_are_typed():
    add = {"path": "a", "stats": '{"numRecords": 2}'}
    assert assign_row_ids([add], mark=LAST - 2, version=1)[1] == LAST
    with pytest.raises(CorruptLogError, match="used up"):
        assign_row_ids([add], mark=LAST - 1, version=1)


@pytest.mark.parametrize("value", ["99999999999999d", "999999999d", 1e300, float("inf")])
def test_a_duration_that_no_calendar_holds_is_refused(value):
    with pytest.raises(ValidationError, match="retention cannot be set"):
        Settings({"retention": value}, environment={})


def test_properties_that_other_engines_cannot_read_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="checkpointInterval cannot be set"):
        lakehand.create_table(
            tmp_path / "t", ROWS.schema, properties={"delta.checkpointInterval": str(2**70)}
        ).append(ROWS)
    with pytest.raises(ValidationError, match="target_file_bytes"):
        Settings({"target_file_bytes": 2**63}, environment={})
