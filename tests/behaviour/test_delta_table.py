"""A Delta table through the format protocol: what the driver asks, and what a commit leaves."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from lakehand.errors import CorruptLogError, NotATableError, RefusedError
from lakehand.formats.delta.log.listing import read_commit
from lakehand.formats.delta.log.snapshot import file_keys
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, classic_checkpoint_key
from lakehand.formats.delta.table import DeltaFormat, DeltaTable
from lakehand.model.work import Change, Replacement, StagedFile, Transaction
from lakehand.storage import CountingStore, Fault, FaultKind, FaultStore, open_store
from support.changes import stats

SCHEMA = pa.schema([("id", pa.int64())])


def new_table(place, **properties):
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return DeltaFormat().create(open_store(place), SCHEMA, properties=named)


def append(table, path, *, rows=1, txn=None, token=None):
    file = StagedFile(
        path=path, bytes=10, rows=rows, native={"partitionValues": {}, "stats": stats(rows)}
    )
    change = Change(
        kind="append",
        base_version=table.snapshot().version,
        operation="WRITE",
        adds=(file,),
        transaction=Transaction(application=txn[0], version=txn[1]) if txn else None,
    )
    return table.commit(change, token=token or path)


def compact(table, *, output="out.parquet"):
    snapshot = table.snapshot()
    inputs = table.data_files(snapshot, range(snapshot.file_count))
    rows = sum(file.rows for file in inputs)
    staged = StagedFile(
        path=output, bytes=10, rows=rows, native={"partitionValues": {}, "stats": stats(rows)}
    )
    group = Replacement(group=0, removes=inputs, adds=(staged,))
    change = Change(
        kind="rewrite",
        base_version=snapshot.version,
        operation="OPTIMIZE",
        replacements=(group,),
    )
    return table.commit(change, token=output)


def test_a_directory_without_a_log_is_no_table(tmp_path):
    with pytest.raises(NotATableError, match="no Delta table"):
        DeltaFormat().open(open_store(tmp_path))


def test_data_files_carry_their_entry_as_the_log_has_it(tmp_path):
    table = new_table(tmp_path)
    append(table, "a b%.parquet", rows=3)

    snapshot = table.snapshot()
    [file] = table.data_files(snapshot, [0])

    assert (file.path, file.bytes, file.rows) == ("a b%.parquet", 10, 3)
    assert file.native["add"] == read_commit(table.store, 1).adds[0]


def test_data_files_that_are_not_in_the_version_are_an_error(tmp_path):
    table = new_table(tmp_path)
    append(table, "a")
    snapshot = table.snapshot()
    compact(table)
    older = DeltaTable(table.store).snapshot(version=0)

    with pytest.raises(CorruptLogError, match="'a' is not in version"):
        table._adds(older, file_keys(snapshot.files))


def test_transactions_are_the_newest_of_every_application(tmp_path):
    table = new_table(tmp_path)
    for name, version in [("x", 1), ("y", 7), ("x", 2)]:
        append(table, f"{name}-{version}", txn=(name, version))

    assert table.transactions() == {"x": 2, "y": 7}


def test_an_operation_that_the_table_forbids_is_refused_by_name(tmp_path):
    table = new_table(tmp_path)
    snapshot = table.snapshot()
    table.require("rewrite", snapshot)

    uniform = {"delta.universalFormat.enabledFormats": "iceberg"}
    snapshot.native.metadata.configuration.update(uniform)
    with pytest.raises(RefusedError, match="UniForm"):
        table.require("rewrite", snapshot)


def test_a_commit_that_completes_the_interval_writes_a_checkpoint(tmp_path):
    table = new_table(tmp_path, delta__checkpointInterval="3")
    for number in range(3):
        append(table, f"f{number}")

    assert table.store.exists(classic_checkpoint_key(2))
    assert json.loads(table.store.get(LAST_CHECKPOINT_KEY))["version"] == 2
    assert table.snapshot().file_count == 3


def test_a_failing_checkpoint_does_not_fail_the_commit(tmp_path, caplog):
    new_table(tmp_path, delta__checkpointInterval="1")
    fault = Fault(kind=FaultKind.FAIL_BEFORE, key="*.checkpoint.parquet", times=None)
    table = DeltaTable(FaultStore(open_store(tmp_path), [fault]))
    change = Change(kind="metadata", base_version=0, operation="TEST")

    with caplog.at_level(logging.WARNING, logger="lakehand"):
        receipt = table.commit(change, token="t")

    assert receipt.version == 1
    assert "checkpoint_failed" in [getattr(record, "event", None) for record in caplog.records]


def test_a_checkpoint_can_be_asked_for(tmp_path):
    table = new_table(tmp_path)
    append(table, "a")

    assert table.checkpoint()["version"] == 1


def test_the_second_commit_of_a_writer_reads_only_what_is_new(tmp_path):
    new_table(tmp_path)
    store = CountingStore(open_store(tmp_path))
    table = DeltaTable(store)
    for version in range(3):
        store.reset()
        change = Change(kind="metadata", base_version=version, operation="TEST")
        table.commit(change, token=str(version))

    # The base, its own commit read back, and the hint of the newest checkpoint.
    assert store.requests["get"] <= 4


def test_a_table_that_was_replaced_is_read_from_scratch(tmp_path):
    table = new_table(tmp_path / "t")
    append(table, "a", txn=("sink", 9))
    append(table, "b")
    (tmp_path / "t").rename(tmp_path / "old")
    other = new_table(tmp_path / "t")
    append(other, "c")
    append(other, "d")

    receipt = append(table, "e", txn=("sink", 9))

    assert (receipt.version, receipt.already_committed) == (3, False)


def test_a_checkpoint_that_cannot_be_read_does_not_stop_commits(tmp_path):
    table = new_table(tmp_path)
    append(table, "a")
    table.checkpoint()
    table.store.put(classic_checkpoint_key(1), b"PAR1 no checkpoint PAR1")

    assert append(DeltaTable(table.store), "b").version == 2


def test_row_ids_stay_unique_and_in_commit_times_rise(tmp_path):
    table = new_table(
        tmp_path, delta__enableRowTracking="true", delta__enableInCommitTimestamps="true"
    )
    append(table, "a", rows=5)
    append(table, "b", rows=7)
    compact(table)

    log = [read_commit(table.store, version) for version in range(4)]
    bases = [add["baseRowId"] for commit in log for add in commit.adds]
    times = [commit.in_commit_timestamp for commit in log]
    assert bases == [0, 5, 12]
    assert [remove["baseRowId"] for remove in log[3].removes] == [0, 5]
    assert times == sorted(set(times))
    assert json.loads(log[3].domains[0]["configuration"]) == {"rowIdHighWaterMark": 23}


def test_a_commit_that_rebased_gets_row_ids_above_those_of_the_winner(tmp_path):
    table = new_table(tmp_path, delta__enableRowTracking="true")
    late = DeltaTable(table.store)
    file = StagedFile(
        path="late", bytes=1, rows=3, native={"partitionValues": {}, "stats": stats(3)}
    )
    change = Change(kind="append", base_version=0, operation="WRITE", adds=(file,))
    append(table, "early", rows=10)

    late.commit(change, token="late")

    [add] = read_commit(table.store, 2).adds
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (10, 2)
