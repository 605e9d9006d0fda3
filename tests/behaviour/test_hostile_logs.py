"""Nonsense in the log: each is a typed error that says what is wrong, and a finding of verify."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lakehand import open_table
from lakehand.errors import CorruptFileError, CorruptLogError, RefusedError, ValidationError
from lakehand.formats.delta.log.history import history
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol.clustering import clustering_columns
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, commit_key
from lakehand.formats.delta.repair.log_findings import check_log
from lakehand.formats.delta.retention.references import protected_files
from lakehand.storage import open_store
from support.checkpoints import ADD, put_checkpoint
from support.fuzz_mutations import with_value
from support.hand_written_logs import add, field, metadata, new_log, protocol, remove
from support.small_tables import make_table

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
TXN = {"txn": {"appId": "sink", "version": 7}}
DOMAIN = {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}
LONG = "7" * 5_000
DEEP = "[" * 3_000 + "]" * 3_000
#: Which action, which member of it, and the JSON that takes its place.
WRONG_MEMBERS = [
    ("add", "add.size", "null"),
    ("add", "add.size", '"x"'),
    ("add", "add.size", "-1"),
    ("add", "add.size", "1000000000000000000"),
    ("add", "add.size", LONG),
    ("add", "add.partitionValues", "[]"),
    ("add", "add.deletionVector", "{}"),
    ("add", "add.deletionVector.storageType", "null"),
    ("add", "add.deletionVector.cardinality", "null"),
    ("add", "add.modificationTime", '"x"'),
    ("add", "add", '"x"'),
    ("add", "add", DEEP),
    ("txn", "txn.version", '"x"'),
    ("txn", "txn.version", "NaN"),
    ("txn", "txn.version", LONG),
    ("txn", "txn.version", DEEP),
    ("txn", "txn.appId", "7"),
    ("txn", "txn", '"x"'),
    ("domain", "domainMetadata.domain", "[]"),
    ("domain", "domainMetadata.configuration", "{}"),
    ("metadata", "metaData.configuration", '"{}"'),
    ("metadata", "metaData.configuration", '{"delta.appendOnly":true}'),
    ("metadata", "metaData.partitionColumns", '"id"'),
    ("metadata", "metaData.partitionColumns", "[7]"),
    ("metadata", "metaData.partitionColumns", '["region","Region"]'),
    ("metadata", "metaData.format", '"parquet"'),
    ("metadata", "metaData.schemaString", "7"),
    ("metadata", "metaData.schemaString", json.dumps(DEEP)),
    ("metadata", "metaData.schemaString.json.fields.0.type", '"decimal(99,5)"'),
    ("metadata", "metaData.schemaString.json.fields.0.type", f'"decimal({LONG},5)"'),
    ("metadata", "metaData.schemaString.json.fields.0.name", "7"),
    ("metadata", "metaData.schemaString.json.fields.0.name", '"region"'),
    ("metadata", "metaData.schemaString.json.fields.0.name", '"\\ud800"'),
    ("metadata", "metaData.schemaString.json.fields.0.name", '"\\u0000"'),
    ("metadata", "metaData.schemaString.json.fields.0.nullable", '"no"'),
    ("metadata", "metaData.schemaString.json.fields.0.metadata", '["x"]'),
    ("metadata", "metaData.schemaString.json.fields", "{}"),
    ("metadata", "metaData.schemaString.json.fields.0", "[]"),
    ("protocol", "protocol.minReaderVersion", '"x"'),
    ("protocol", "protocol", "{}"),
    ("info", "commitInfo", '"x"'),
    ("info", "commitInfo.inCommitTimestamp", "1e300"),
]


def place(text: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in text.split(".")]


def log_with(which: str, member: str, raw: str):
    """Return a table of one version in which one member is `raw`."""
    columns = field("id", "long"), field("region", "string")
    actions = {
        "info": {"commitInfo": {"operation": "WRITE", "inCommitTimestamp": 1}},
        "protocol": protocol(reader=("deletionVectors",)),
        "metadata": metadata(*columns),
        "add": add("a.parquet", deletionVector=VECTOR),
        "txn": TXN,
        "domain": DOMAIN,
    }
    lines = {name: json.dumps(action) for name, action in actions.items()}
    lines[which] = with_value(lines[which], place(member), raw)
    store = new_log()
    store.put(commit_key(0), "\n".join(lines.values()).encode())
    return store


@pytest.mark.parametrize(("which", "member", "raw"), WRONG_MEMBERS, ids=lambda t: t[:40])
def test_a_member_of_a_wrong_type_is_a_typed_error_and_a_finding(which, member, raw):
    store = log_with(which, member, raw)
    with pytest.raises(CorruptLogError):
        load_snapshot(store)
    assert check_log(store, now=datetime.now(UTC)).findings


@pytest.mark.parametrize("raw", ["7", '"x"', DEEP, LONG], ids=["number", "string", "deep", "long"])
def test_history_of_a_commit_that_says_nonsense_of_itself_is_a_typed_error(raw):
    with pytest.raises(CorruptLogError, match="version 0"):
        history(log_with("info", "commitInfo", raw))


@pytest.mark.parametrize(
    "stats",
    ["x", DEEP, "[]", "7", '{"numRecords":"x"}', '{"numRecords":{}}'],
    ids=["text", "deep", "list", "number", "count of text", "count of object"],
)
def test_statistics_that_are_nonsense_are_none(stats):
    store = new_log([protocol(), metadata(), add("a.parquet", stats=stats)])
    files = load_snapshot(store, statistics=["id"]).files
    assert files["rows"].to_pylist() == [None]
    assert files["bounds"].to_pylist() == [{"id": {"min": None, "max": None, "nulls": None}}]


@pytest.mark.parametrize("time", [-1, 10**17])
def test_a_time_beyond_all_years_is_the_nearest_that_has_a_name(time):
    store = new_log([protocol(), metadata(), add("a.parquet", modificationTime=time)])
    [at] = load_snapshot(store).files["modified_at"].to_pylist()
    assert at.year == (1970 if time < 0 else 9999)


def changed(type_: pa.StructType, name: str, other: pa.DataType) -> pa.StructType:
    return pa.struct([member if member.name != name else (name, other) for member in type_])


@pytest.mark.parametrize(
    "type_",
    [
        pa.string(),
        changed(ADD, "deletionVector", pa.int64()),
        changed(ADD, "path", pa.int64()),
        pa.struct([*ADD, ("stats_parsed", pa.string())]),
    ],
    ids=["add", "deletionVector", "path", "stats_parsed"],
)
def test_a_checkpoint_with_a_column_of_another_type_is_read_around(type_):
    start = [protocol(), metadata(), add("a.parquet")]
    store = new_log(start, [add("b.parquet")])
    put_checkpoint(store, 1, start[:2], add=type_)
    assert load_snapshot(store).file_count == 2
    [finding] = check_log(store, now=datetime.now(UTC)).findings[:1]
    assert finding.name == "broken_checkpoint"


@pytest.mark.parametrize("levels", [300, 3_000, 100_000])
def test_a_pointer_to_checkpoints_that_is_nested_too_deeply_is_passed_over(levels):
    store = new_log([protocol(), metadata(), add("a.parquet")])
    deep = "[" * levels + "]" * levels
    store.put(LAST_CHECKPOINT_KEY, f'{{"version":0,"x":{deep},"checksum":"x"}}'.encode())
    assert load_snapshot(store).file_count == 1
    [finding] = check_log(store, now=datetime.now(UTC)).findings
    assert finding.name == "corrupt_last_checkpoint"


def test_a_checkpoint_whose_values_cannot_be_cast_is_read_around():
    start = [protocol(), metadata(), add("a.parquet")]
    store = new_log(start)
    listed = add("a.parquet", baseRowId=["x"])
    type_ = changed(ADD, "baseRowId", pa.list_(pa.string()))
    put_checkpoint(store, 0, [*start[:2], listed], add=type_)
    assert load_snapshot(store).file_count == 1


@pytest.mark.parametrize("member", ["size", "path"])
def test_a_checkpoint_that_leaves_a_member_out_is_read_around(member):
    start = [protocol(), metadata(), add("a.parquet")]
    store = new_log(start)
    without = pa.struct([field for field in ADD if field.name != member])
    put_checkpoint(store, 0, start, add=without)
    assert load_snapshot(store).file_count == 1


@pytest.mark.parametrize("text", ["x", "[]", "7", '{"clusteringColumns":7}'])
def test_clustering_columns_that_are_nonsense_are_a_typed_error(text):
    domain = {"domainMetadata": {"domain": "delta.clustering", "configuration": text}}
    state = load_snapshot(new_log([protocol(), metadata(), domain])).native
    with pytest.raises(CorruptLogError, match="clustering columns"):
        clustering_columns(state.domains)


def test_a_property_that_is_no_number_is_a_typed_error(tmp_path):
    properties = {"delta.dataSkippingNumIndexedCols": "x"}
    table = make_table(tmp_path / "t", commits=4, configuration=properties)
    with pytest.raises(ValidationError, match="dataSkippingNumIndexedCols"):
        open_table(table, engine="local").statistics(full=True)


def test_a_table_of_partition_columns_alone_is_read_and_not_rewritten(tmp_path):
    path = make_table(tmp_path / "t", commits=2)
    commit = path / "_delta_log" / f"{0:020}.json"
    text = commit.read_text().replace('["region"]', '["region","id","amount"]')
    commit.write_text(text)
    table = open_table(path, engine="local")
    assert table.to_arrow().num_rows == 20
    assert table.verify(deep=True).files_checked == 4
    with pytest.raises(RefusedError, match="partition columns only"):
        table.compact()


def test_a_directory_with_the_name_of_a_commit_is_no_version(tmp_path):
    path = make_table(tmp_path / "t", commits=2)
    (path / "_delta_log" / f"{2:020}.json").mkdir()
    assert load_snapshot(open_store(path)).version == 1


def test_verify_goes_on_past_a_commit_that_a_checkpoint_stands_in_for(tmp_path):
    path = make_table(tmp_path / "t", commits=3)
    open_table(path).checkpoint()
    commit = path / "_delta_log" / f"{1:020}.json"
    commit.write_text(commit.read_text().replace('{"commitInfo":{', '{"commitInfo":7,"x":{', 1))
    report = open_table(path, engine="local").verify()
    assert "corrupt_commit" in {finding.name for finding in report.findings}
    assert report.files_checked == 6


@pytest.mark.parametrize("verb", ["compact", "deduplicate", "statistics"])
def test_a_size_that_is_wrong_starts_no_spark(tmp_path, monkeypatch, verb):
    path = make_table(tmp_path / "t", commits=2)
    commit = path / "_delta_log" / f"{1:020}.json"
    text = re.sub(r'"size":\d+', '"size":100000000000000', commit.read_text(), count=1)
    commit.write_text(text)
    monkeypatch.setattr("lakehand.engine.spark.SparkRunner", None)
    call = {
        "compact": lambda table: table.compact(target_file_bytes=2**49, min_files=2),
        "deduplicate": lambda table: table.deduplicate(key=["id"]),
        "statistics": lambda table: table.statistics(full=True),
    }
    with pytest.raises(CorruptFileError, match="where the table says 100,000,000,000,000"):
        call[verb](open_table(path))


def test_vacuum_refuses_a_checkpoint_that_names_no_deletion_vector():
    now = int(datetime.now(UTC).timestamp() * 1000)
    removed = remove("a.parquet", at_ms=now, deletionVector={**VECTOR, "storageType": "u"})
    removed["remove"]["deletionVector"]["pathOrInlineDv"] = None
    store = new_log([], [])
    put_checkpoint(store, 1, [protocol(), metadata(), removed])
    store.delete([commit_key(0)])
    with pytest.raises(CorruptFileError, match="without a path"):
        protected_files(store, since=datetime.now(UTC) - timedelta(days=1))


@pytest.mark.parametrize("member", ["added_digest", "removed_digest", "rows"])
def test_a_proof_that_makes_no_sense_is_not_compared(tmp_path, member):
    path = make_table(tmp_path / "t", commits=2)
    table = open_table(path, engine="local")
    version = table.compact(min_files=2).version
    commit = path / "_delta_log" / f"{version:020}.json"
    lines = commit.read_text().splitlines()
    lines[0] = with_value(lines[0], ["commitInfo", "lakehand", "proof", member], '"7"')
    commit.write_text("\n".join(lines))
    [check] = table.verify().proofs
    assert (check.outcome, check.reason) == ("cannot_compare", "unreadable_proof")
