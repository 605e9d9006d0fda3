"""New tables: what version 0 says, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakehand.errors import (
    AccessDeniedError,
    CommitUnknownError,
    ConditionalPutError,
    RefusedError,
    TableExistsError,
    UnknownColumnError,
    ValidationError,
)
from lakehand.formats.delta.commits.create import create_table
from lakehand.formats.delta.protocol.features import require_write, supported_features
from lakehand.formats.delta.protocol.schema import parse_schema
from lakehand.observe.clock import ManualClock
from lakehand.storage import Fault, FaultKind, FaultStore
from support.log_tables import SCHEMA, commits, empty_store, new_table


def created(schema=SCHEMA, **options):
    store = empty_store()
    create_table(store, schema, clock=ManualClock(), **options)
    [version_0] = commits(store)
    return version_0


def features(commit):
    return commit.protocol.reader_features, commit.protocol.writer_features


def test_a_plain_table_has_the_oldest_protocol():
    version_0 = created()

    versions = version_0.protocol.min_reader_version, version_0.protocol.min_writer_version
    assert versions == (1, 2)
    assert features(version_0) == (None, None)


def test_version_0_reads_like_one_of_delta_spark():
    version_0 = created(partition_by=(), properties={"delta.appendOnly": "true"})

    info = version_0.commit_info
    assert info["operation"] == "CREATE TABLE"
    assert info["operationParameters"] == {
        "partitionBy": "[]",
        "clusterBy": "[]",
        "isManaged": "false",
        "properties": '{"delta.appendOnly":"true"}',
    }
    assert version_0.metadata.configuration == {"delta.appendOnly": "true"}
    assert version_0.metadata.format["provider"] == "parquet"


def test_the_columns_survive():
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.decimal128(9, 2))]))),
        ]
    )

    fields = json.loads(created(schema).metadata.schema_string)["fields"]

    assert [(field["name"], field["nullable"]) for field in fields] == [
        ("id", False),
        ("at", True),
        ("tags", True),
    ]
    assert fields[2]["type"]["elementType"]["fields"][1]["type"] == "decimal(9,2)"


@pytest.mark.parametrize(
    ("name", "value", "for_readers", "for_writers"),
    [
        ("delta.enableDeletionVectors", "true", ["deletionVectors"], ["deletionVectors"]),
        ("delta.enableChangeDataFeed", "true", None, ["changeDataFeed"]),
        ("delta.enableRowTracking", "true", None, ["domainMetadata", "rowTracking"]),
        ("delta.enableInCommitTimestamps", "true", None, ["inCommitTimestamp"]),
        ("delta.enableTypeWidening", "true", ["typeWidening"], ["typeWidening"]),
        ("delta.checkpointPolicy", "v2", ["v2Checkpoint"], ["v2Checkpoint"]),
        ("delta.columnMapping.mode", "name", ["columnMapping"], ["columnMapping"]),
        ("delta.feature.deletionVectors", "supported", ["deletionVectors"], ["deletionVectors"]),
    ],
)
def test_the_protocol_lists_what_a_property_needs(name, value, for_readers, for_writers):
    readers, writers = features(created(properties={name: value}))

    assert readers == (tuple(for_readers) if for_readers else None)
    assert set(writers) == {*for_writers, "appendOnly", "invariants"}


def test_timestamps_without_zone_are_listed():
    schema = pa.schema([("s", pa.struct([("at", pa.timestamp("us"))]))])

    assert features(created(schema))[0] == ("timestampNtz",)


def test_a_feature_switched_off_is_not_listed():
    assert features(created(properties={"delta.enableDeletionVectors": "false"})) == (None, None)


def test_a_feature_that_was_asked_for_is_no_property():
    version_0 = created(properties={"delta.feature.deletionVectors": "supported"})

    assert version_0.metadata.configuration == {}


@pytest.mark.parametrize("name", ["rowTracking", "clustering"])
def test_a_feature_brings_those_along_that_it_needs(name):
    """delta-spark does not open a table whose protocol lists one without the other."""
    _, listed = features(created(properties={f"delta.feature.{name}": "supported"}))

    assert {name, "domainMetadata"} <= set(listed)


def test_columns_get_ids_and_physical_names_at_every_depth():
    schema = pa.schema([("a b", pa.list_(pa.struct([("x", pa.int32())]))), ("c", pa.int32())])

    metadata = created(schema, properties={"delta.columnMapping.mode": "id"}).metadata

    first, second = parse_schema(metadata.schema_string).fields
    inner = first.type.element.fields[0]
    ids = [f.metadata["delta.columnMapping.id"] for f in (first, inner, second)]
    names = {f.metadata["delta.columnMapping.physicalName"] for f in (first, inner, second)}
    assert ids == [1, 2, 3]
    assert len(names) == 3
    assert metadata.configuration["delta.columnMapping.maxColumnId"] == "3"


def test_row_tracking_names_the_columns_that_will_hold_row_ids():
    configuration = created(properties={"delta.enableRowTracking": "true"}).metadata.configuration

    assert configuration["delta.rowTracking.materializedRowIdColumnName"].startswith("_row-id-col-")
    assert "delta.rowTracking.materializedRowCommitVersionColumnName" in configuration


def test_a_table_born_with_commit_times_has_one_in_version_0():
    version_0 = created(properties={"delta.enableInCommitTimestamps": "true"})

    assert version_0.in_commit_timestamp == version_0.commit_info["timestamp"]


def test_lakehand_can_write_to_what_it_creates():
    names = ("DeletionVectors", "ChangeDataFeed", "RowTracking", "InCommitTimestamps")
    version_0 = created(properties={f"delta.enable{name}": "true" for name in names})

    listed = set(supported_features(version_0.protocol))
    for operation in ("rewrite", "append"):
        require_write(operation, version_0.protocol, version_0.metadata, table="t")
    assert {"deletionVectors", "changeDataFeed", "rowTracking", "inCommitTimestamp"} <= listed


@pytest.mark.parametrize(
    "name",
    [
        "delta.enableIcebergCompatV2",
        "delta.universalFormat.enabledFormats",
        "delta.compatibility.symlinkFormatManifest.enabled",
        "delta.coordinatedCommits.commitCoordinator-preview",
        "delta.feature.catalogManaged",
        "delta.feature.quantumRows",
        "delta.noSuchProperty",
    ],
)
def test_what_lakehand_cannot_keep_up_is_refused(name):
    store = empty_store()
    with pytest.raises(RefusedError, match="cannot be"):
        create_table(store, SCHEMA, properties={name: "supported"})
    assert store.file_count == 0


def test_a_misspelt_property_is_refused_with_the_nearest_name():
    with pytest.raises(RefusedError) as error:
        created(properties={"delta.appendOnIy": "true"})
    assert error.value.hint == "did you mean delta.appendOnly?"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.checkpointInterval", "ten"),
        ("delta.logRetentionDuration", "interval 1 month"),
        ("delta.columnMapping.mode", "position"),
        ("delta.isolationLevel", "Chaos"),
    ],
)
def test_a_property_with_a_bad_value_is_refused(name, value):
    with pytest.raises(ValidationError, match=name):
        created(properties={name: value})


def test_properties_of_the_user_are_kept():
    assert created(properties={"team": "birds"}).metadata.configuration == {"team": "birds"}


def test_partition_columns_are_kept_in_the_spelling_of_the_schema():
    schema = pa.schema([("Day", pa.date32()), ("id", pa.int64())])

    assert created(schema, partition_by=["day"]).metadata.partition_columns == ("Day",)


@pytest.mark.parametrize(
    ("partition_by", "error"),
    [
        (["nope"], UnknownColumnError),
        (["id", "id"], ValidationError),
        (["id", "tags"], ValidationError),
        (["id", "name"], ValidationError),
    ],
    ids=["unknown", "twice", "nested", "nothing left"],
)
def test_partition_columns_are_checked(partition_by, error):
    fields = [("id", pa.int64()), ("name", pa.string())]
    nested = [("tags", pa.list_(pa.string()))] if "tags" in partition_by else []

    with pytest.raises(error):
        created(pa.schema(fields + nested), partition_by=partition_by)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int32()), ("A", pa.int32())]),
        pa.schema([("a b", pa.int32())]),
        pa.schema([("s", pa.struct([("x=y", pa.int32())]))]),
    ],
    ids=["none", "same but for case", "space", "nested"],
)
def test_columns_that_delta_does_not_allow_are_refused(schema):
    with pytest.raises(ValidationError):
        created(schema)


def test_a_table_is_not_created_twice():
    store = new_table()
    before = store.snapshot()

    with pytest.raises(TableExistsError):
        create_table(store, SCHEMA)
    assert store.snapshot() == before


def test_a_table_whose_first_commits_are_gone_is_still_a_table():
    store = new_table()
    store.put("_delta_log/00000000000000000007.json", b"{}")
    store.delete(["_delta_log/00000000000000000000.json"])

    with pytest.raises(TableExistsError):
        create_table(store, SCHEMA)


class Racing(FaultStore):
    """A store in which another creates the table right before us."""

    def __init__(self, store):
        super().__init__(store, [])
        self._store = store

    def put_if_absent(self, key, data):
        create_table(self._store, SCHEMA)
        super().put_if_absent(key, data)


def test_of_two_creators_one_wins():
    store = empty_store()

    with pytest.raises(TableExistsError):
        create_table(Racing(store), SCHEMA)
    assert len(commits(store)) == 1


def faulty(kind, **fault):
    store = empty_store()
    fault = Fault(kind=kind, operation="put_if_absent", **fault)
    return store, FaultStore(store, [fault], clock=ManualClock())


def test_a_lost_answer_is_recognised_as_ours():
    store, lossy = faulty(FaultKind.LOST_ANSWER)

    create_table(lossy, SCHEMA)

    assert len(commits(store)) == 1


def test_a_silent_store_leaves_it_open_whether_the_table_exists():
    _, silent = faulty(FaultKind.FAIL_BEFORE)

    with pytest.raises(CommitUnknownError):
        create_table(silent, SCHEMA)


@pytest.mark.parametrize("error", [AccessDeniedError("no"), ConditionalPutError("cannot")])
def test_a_clear_no_of_the_store_is_raised(error):
    _, store = faulty(FaultKind.FAIL_BEFORE, error=error)

    with pytest.raises(type(error)):
        create_table(store, SCHEMA)
