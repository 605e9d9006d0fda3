from __future__ import annotations

import logging

import pytest

from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.features import (
    FEATURES,
    Verdict,
    require_read,
    require_write,
    supported_features,
)
from lakehand.formats.delta.protocol.schema import ArrayType, PrimitiveType, StructField, StructType

HARD_HALF = [
    "deletionVectors",
    "columnMapping",
    "rowTracking",
    "clustering",
    "domainMetadata",
    "inCommitTimestamp",
    "v2Checkpoint",
    "changeDataFeed",
    "checkConstraints",
    "invariants",
    "generatedColumns",
    "identityColumns",
    "typeWidening",
    "timestampNtz",
    "appendOnly",
]
LONG = PrimitiveType("long")


def metadata(*columns: StructField, **properties: str) -> Metadata:
    schema = StructType(columns or (StructField("id", LONG),))
    configuration = {name.replace("__", "."): value for name, value in properties.items()}
    return Metadata(id="1", schema_string=schema.to_json(), configuration=configuration)


def listing(*features: str) -> Protocol:
    readers = tuple(f for f in features if f not in FEATURES or FEATURES[f].is_reader_feature)
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=readers,
        writer_features=features,
    )


def writer_only(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)


def legacy(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


@pytest.mark.parametrize("name", HARD_HALF)
def test_the_hard_half_is_read_and_rewritten(name):
    assert FEATURES[name].read is Verdict.SUPPORTED
    assert FEATURES[name].rewrite is Verdict.SUPPORTED
    require_write("rewrite", listing(name), metadata(), table="t")


def test_what_cannot_be_read_is_never_rewritten():
    unreadable = [f for f in FEATURES.values() if f.read is Verdict.REFUSED]
    assert unreadable
    assert all(f.rewrite is Verdict.REFUSED and f.append is Verdict.REFUSED for f in unreadable)


def test_every_feature_gives_a_reason():
    assert all(len(feature.reason) > 20 for feature in FEATURES.values())


@pytest.mark.parametrize("operation", ["read", "inspect", "rewrite", "append", "checkpoint"])
def test_an_unknown_reader_feature_is_refused_by_name(operation):
    with pytest.raises(RefusedError, match="timeMachine") as caught:
        require_write(operation, listing("timeMachine"), metadata(), table="t")
    assert caught.value.attributes["feature"] == "timeMachine"


def test_an_unknown_writer_feature_blocks_writes_and_not_reads():
    protocol = writer_only("timeMachine")
    require_read(protocol, metadata(), table="t")
    require_write("inspect", protocol, metadata(), table="t")
    for operation in ("rewrite", "append", "checkpoint", "vacuum"):
        with pytest.raises(RefusedError, match="timeMachine"):
            require_write(operation, protocol, metadata(), table="t")


@pytest.mark.parametrize(
    ("writer", "newest"),
    [(1, None), (2, "invariants"), (3, "checkConstraints"), (4, "generatedColumns")],
)
def test_old_writer_versions_stand_for_features(writer, newest):
    features = supported_features(legacy(1, writer))
    assert (features[-1] if features else None) == newest


def test_old_reader_version_two_stands_for_column_mapping():
    assert "columnMapping" in supported_features(legacy(2, 5))
    assert "identityColumns" in supported_features(legacy(2, 6))


@pytest.mark.parametrize(("reader", "writer"), [(99, 7), (4, 7)])
def test_reader_versions_of_the_future_are_refused(reader, writer):
    with pytest.raises(RefusedError, match=f"reader version {reader}"):
        require_read(legacy(reader, writer), metadata(), table="t")


def test_writer_versions_of_the_future_are_refused_for_writing_only():
    require_read(legacy(1, 8), metadata(), table="t")
    with pytest.raises(RefusedError, match="writer version 8"):
        require_write("rewrite", legacy(1, 8), metadata(), table="t")


def test_identity_columns_block_appends_and_not_rewrites():
    counted = StructField("g", LONG, metadata={"delta.identity.start": 1})
    table = metadata(StructField("id", LONG), counted)
    require_write("rewrite", legacy(1, 6), table, table="t")
    with pytest.raises(RefusedError, match="identityColumns"):
        require_write("append", legacy(1, 6), table, table="t")
    require_write("append", legacy(1, 6), metadata(), table="t")


def test_iceberg_compatibility_is_refused_only_while_it_is_on():
    protocol = listing("columnMapping", "icebergCompatV2")
    require_write("rewrite", protocol, metadata(), table="t")
    on = metadata(delta__enableIcebergCompatV2="true")
    with pytest.raises(RefusedError, match="icebergCompatV2"):
        require_write("rewrite", protocol, on, table="t")


@pytest.mark.parametrize(
    "properties",
    [
        {"delta__universalFormat__enabledFormats": "iceberg"},
        {"delta__compatibility__symlinkFormatManifest__enabled": "true"},
    ],
)
def test_foreign_metadata_blocks_rewrites_unless_forced(properties):
    table = metadata(**properties)
    require_write("append", legacy(1, 2), table, table="t")
    with pytest.raises(RefusedError, match="stale"):
        require_write("rewrite", legacy(1, 2), table, table="t")
    require_write("vacuum", legacy(1, 2), table, table="t", force=True)


def test_coordinated_commits_block_every_write_and_warn_on_read(caplog):
    properties = {"delta.coordinatedCommits.commitCoordinator-preview": "dynamo"}
    table = Metadata(id="1", schema_string=None, configuration=properties)
    with caplog.at_level(logging.WARNING, logger="lakehand"):
        require_read(legacy(1, 2), table, table="t")
    assert "may be newer" in caplog.text
    for operation in ("rewrite", "append", "checkpoint", "vacuum"):
        with pytest.raises(RefusedError, match="catalog"):
            require_write(operation, legacy(1, 2), table, table="t", force=True)


@pytest.mark.parametrize("name", ["catalogManaged", "adaptiveMetadata", "timestampNanos"])
def test_tables_that_keep_their_truth_elsewhere_are_not_read(name):
    with pytest.raises(RefusedError, match=name):
        require_read(listing(name), metadata(), table="t")


def test_void_inside_an_array_is_not_written():
    voids = metadata(StructField("id", LONG), StructField("a", ArrayType(PrimitiveType("void"))))
    with pytest.raises(RefusedError, match="void"):
        require_write("rewrite", legacy(1, 2), voids, table="t")
    plain = metadata(StructField("id", LONG), StructField("v", PrimitiveType("void")))
    require_write("rewrite", legacy(1, 2), plain, table="t")


def test_a_missing_list_of_reader_features_hides_nothing():
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, writer_features=("timeMachine", "appendOnly")
    )
    with pytest.raises(RefusedError, match="timeMachine"):
        require_read(protocol, metadata(), table="t")
