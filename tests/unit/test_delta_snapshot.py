from __future__ import annotations

import pickle
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.log.snapshot import NATIVE_TYPE, load_snapshot, take_rows
from lakehand.formats.delta.protocol import names
from lakehand.model.file_columns import FILE_COLUMNS
from support.checkpoints import KINDS, put_checkpoint
from support.hand_written_logs import add, field, metadata, new_log, protocol, put_commit, remove

START = (protocol(), metadata())
BY_DAY = metadata(field("id", "long"), field("day", "date"), partition_by=["day"])
PHYSICAL = {"delta.columnMapping.physicalName": "col-7", "delta.columnMapping.id": 7}


def domain(name: str, configuration: str = "{}", *, removed: bool = False) -> dict:
    members = {"domain": name, "configuration": configuration, "removed": removed}
    return {"domainMetadata": members}


def test_the_file_table_has_the_columns_that_every_format_promises():
    files = load_snapshot(new_log(START, [add("a")])).files
    assert files.column_names == [*FILE_COLUMNS, "partition", "native"]
    assert [files.schema.field(name).type for name in FILE_COLUMNS] == list(FILE_COLUMNS.values())
    assert list(files.schema.field("native").type)[:-1] == list(NATIVE_TYPE)
    assert files.schema.field("partition").type == pa.struct([])


def test_a_table_without_files_has_the_same_columns():
    full, empty = load_snapshot(new_log(START, [add("a")])), load_snapshot(new_log(START))
    assert empty.files.schema == full.files.schema
    assert empty.file_count == 0


def test_facts_of_a_file_are_taken_from_the_log():
    vector = {"storageType": "u", "pathOrInlineDv": "v", "offset": 1, "sizeInBytes": 4}
    action = add("p%20q", rows=9, size=7, modificationTime=5, baseRowId=3,
                 defaultRowCommitVersion=2, clusteringProvider="liquid", tags={"k": "v"},
                 deletionVector={**vector, "cardinality": 2})  # fmt: skip
    (file,) = load_snapshot(new_log(START, [action])).files.to_pylist(maps_as_pydicts="strict")
    assert (file["path"], file["native"]["raw_path"]) == ("p q", "p%20q")
    assert (file["bytes"], file["rows"], file["deleted_rows"]) == (7, 9, 2)
    assert file["modified_at"] == datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)
    assert file["native"]["deletion_vector"]["cardinality"] == 2
    assert file["native"]["tags"] == {"k": "v"}
    assert (file["native"]["base_row_id"], file["native"]["default_row_commit_version"]) == (3, 2)


def test_partition_values_are_typed_and_kept_as_written():
    adds = [add("a", partitionValues={"day": "2026-01-02"}), add("b", partitionValues={"day": ""})]
    files = load_snapshot(new_log((protocol(), BY_DAY), adds)).files
    found = {file["path"]: file for file in files.to_pylist(maps_as_pydicts="strict")}
    assert found["a"]["partition"] == {"day": date(2026, 1, 2)}
    assert found["b"]["partition"] == {"day": None}
    assert found["b"]["native"]["partition_values"] == {"day": ""}


def test_partition_values_are_found_by_physical_name():
    properties = {"delta.columnMapping.mode": "name"}
    columns = (field("id", "long"), field("day", "date", **PHYSICAL))
    table = metadata(*columns, partition_by=["day"], properties=properties)
    store = new_log((protocol(), table), [add("a", partitionValues={"col-7": "2026-01-02"})])
    assert load_snapshot(store).files["partition"].to_pylist() == [{"day": date(2026, 1, 2)}]


def test_a_partition_column_outside_the_schema_is_an_error():
    store = new_log((protocol(), metadata(field("id", "long"), partition_by=["gone"])))
    with pytest.raises(CorruptLogError, match="gone"):
        load_snapshot(store)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_domains_and_transactions_are_the_newest(kind):
    txn = {"txn": {"appId": "app", "version": 9, "lastUpdated": 1}}
    before = [domain("a", "old"), domain("b"), txn]
    store = new_log((*START, *before))
    if kind is not None:
        put_checkpoint(store, 0, [*START, *before], kind)
    put_commit(store, 1, domain("a", "new"), domain("b", removed=True))
    put_commit(store, 2, {"txn": {"appId": "app", "version": 3}})
    native = load_snapshot(store).native
    assert native.domains == {"a": "new"}
    assert native.transactions["app"]["version"] == 3


def test_the_newest_protocol_and_metadata_are_in_force():
    store = new_log(START, [protocol("appendOnly")], [metadata(properties={"k": "v"})])
    snapshot = load_snapshot(store)
    assert snapshot.native.protocol.writer_features == ("appendOnly",)
    assert snapshot.properties == {"k": "v"}
    assert load_snapshot(store, version=1).properties == {}


def test_tombstones_are_read_when_asked_for():
    store = new_log((*START, add("a"), add("b")), [remove("a", at_ms=77)])
    tombstones = load_snapshot(store).native.tombstones()
    assert tombstones["path"].to_pylist() == ["a"]
    assert tombstones["deletionTimestamp"].to_pylist() == [77]


def test_a_version_without_its_commit_is_dated_by_its_checkpoint():
    store = new_log(START, [])
    put_checkpoint(store, 1, [*START])
    store.delete([names.commit_key(1)])
    snapshot = load_snapshot(store)
    assert snapshot.at == snapshot.native.segment.checkpoint.modified_at


@pytest.mark.parametrize("action", [{"txn": {"version": 1}}, {"domainMetadata": {}}])
def test_an_action_that_lacks_a_member_is_a_typed_error(action):
    with pytest.raises(CorruptLogError, match=r"version 1 of .* has no "):
        load_snapshot(new_log(START, [action]))


def test_a_snapshot_can_be_sent_to_another_process():
    snapshot = load_snapshot(new_log(START, [add("a")]))
    assert pickle.loads(pickle.dumps(snapshot)).files == snapshot.files


def test_columns_of_nulls_share_their_memory():
    files = load_snapshot(new_log(START, [add(f"p{n}") for n in range(1000)])).files
    native = files["native"].chunk(0)
    columns = [native.field("base_row_id"), native.field("default_row_commit_version")]
    deleted = files["deleted_rows"].chunk(0)

    assert [column.null_count for column in columns] == [1000, 1000]
    assert deleted.to_pylist() == [0] * 1000
    assert len({column.buffers()[1].address for column in (*columns, deleted)}) == 1


def test_some_files_are_taken_in_the_order_asked_for():
    files = load_snapshot(new_log(START, [add(f"p{n}") for n in range(9)])).files
    pieces = pa.concat_tables([files.slice(0, 4), files.slice(4)])
    rows = [7, 0, 3, 8, 3]

    assert take_rows(pieces, rows).equals(files.take(rows))
    assert take_rows(pieces, []).num_rows == 0
