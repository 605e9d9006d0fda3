"""Properties, features and clustering columns of an existing table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakehand
from lakehand.cli.main import run
from lakehand.errors import RefusedError, ReplanError, UnknownColumnError, ValidationError
from lakehand.model.work import PropertyWish

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "point": [{"x": 1, "y": 2}] * 3})


@pytest.fixture
def table(tmp_path):
    table = lakehand.create_table(tmp_path / "t", ROWS.schema)
    table.append(ROWS)
    return table


def last_commit(table):
    log = Path(table.url.removeprefix("file://"), "_delta_log")
    text = (log / f"{table.snapshot().version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def action(table, kind):
    return next((line[kind] for line in last_commit(table) if kind in line), None)


def judge(table):
    return DeltaTable(table.url.removeprefix("file://"))


def test_properties_are_set_in_one_commit(table):
    report = table.set_properties({"delta.logRetentionDuration": "interval 60 days", "team": "x"})

    assert (report.outcome, report.version, report.features_added) == ("committed", 2, ())
    assert report.before == {"delta.logRetentionDuration": None, "team": None}
    assert report.after == {"delta.logRetentionDuration": "interval 60 days", "team": "x"}
    assert table.snapshot().properties == report.after
    assert action(table, "protocol") is None
    info = action(table, "commitInfo")
    assert info["operation"] == "SET TBLPROPERTIES"
    assert json.loads(info["operationParameters"]["properties"]) == report.after


def test_what_is_set_already_is_nothing_to_do(table):
    table.set_properties({"team": "x"})

    report = table.set_properties({"team": "x"})

    assert (report.outcome, report.version) == ("nothing_to_do", 2)
    assert table.snapshot().version == 2


def test_a_dry_run_says_what_would_change(table):
    report = table.set_properties({"delta.enableDeletionVectors": True}, dry_run=True)

    assert (report.outcome, report.version) == ("dry_run", 1)
    assert report.after == {"delta.enableDeletionVectors": "true"}
    assert report.features_added == ("deletionVectors",)
    assert table.snapshot().version == 1


def test_names_that_delta_knows_have_any_case(table):
    table.set_properties({"DELTA.appendonly": "true", "Mine": "1", "mine": "2"})

    expected = {"delta.appendOnly": "true", "Mine": "1", "mine": "2"}
    assert table.snapshot().properties == expected


FEATURES = {
    "delta.enableChangeDataFeed": ({"changeDataFeed"}, 1),
    "delta.enableDeletionVectors": ({"deletionVectors"}, 3),
    "delta.enableInCommitTimestamps": ({"inCommitTimestamp"}, 1),
    "delta.enableTypeWidening": ({"typeWidening"}, 3),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_property_adds_the_feature_that_it_needs(table, name):
    features, reader_version = FEATURES[name]

    report = table.set_properties({name: True})

    assert set(report.features_added) == features
    protocol = action(table, "protocol")
    assert protocol["minWriterVersion"] == 7
    assert protocol["minReaderVersion"] == reader_version
    # Features that the old versions implied are listed by name.
    assert set(protocol["writerFeatures"]) == {"appendOnly", "invariants", *features}
    assert ("readerFeatures" in protocol) == (reader_version == 3)
    table.append(ROWS)
    assert table.to_arrow().num_rows == 6


def test_v2_checkpoints_are_written_once_they_are_enabled(table):
    table.set_properties({"delta.checkpointPolicy": "v2"})

    assert table.checkpoint().kind == "v2"
    assert judge(table).version() == 2


def test_commit_times_begin_with_the_commit_that_enables_them(table):
    table.set_properties({"delta.enableInCommitTimestamps": "true"})

    time = action(table, "commitInfo")["inCommitTimestamp"]
    expected = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(time),
    }
    assert table.snapshot().properties == expected
    table.append(ROWS)
    assert action(table, "commitInfo")["inCommitTimestamp"] > time
    assert table.snapshot(timestamp=table.history()[0].at).version == 3


def test_the_enablement_version_follows_concurrent_appends(table):
    handle = table._handle
    plan = handle.plan_properties(
        handle.snapshot(), PropertyWish(set={"delta.enableInCommitTimestamps": "true"})
    )
    table.append(ROWS)

    receipt = handle.commit(plan.change, token="t")

    assert receipt.version == 3
    properties = table.snapshot().properties
    assert properties["delta.inCommitTimestampEnablementVersion"] == "3"


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.set_properties({"team": "y"}),
        lambda table: table.enable_feature("vacuumProtocolCheck"),
        lambda table: table.cluster_by("name"),
    ],
)
@pytest.mark.parametrize(
    "wish", [PropertyWish(set={"team": "x"}), PropertyWish(cluster_by=("id",))]
)
def test_a_concurrent_change_of_metadata_is_a_conflict(table, wish, other):
    handle = table._handle
    table.enable_feature("domainMetadata")
    plan = handle.plan_properties(handle.snapshot(), wish)
    other(table)
    version = table.snapshot().version

    with pytest.raises(ReplanError):
        handle.commit(plan.change, token="t")
    assert table.snapshot().version == version


def test_two_writers_that_declare_clustering_columns_conflict(table):
    table.cluster_by("id")
    handle = table._handle
    plan = handle.plan_properties(handle.snapshot(), PropertyWish(cluster_by=("name",)))
    table.cluster_by("point.x")

    with pytest.raises(ReplanError, match="clustered by"):
        handle.commit(plan.change, token="t")


def test_properties_are_removed(table):
    table.set_properties({"team": "x", "delta.enableChangeDataFeed": "true"})

    report = table.unset_properties(["team", "delta.enablechangedatafeed"])

    assert report.after == {"team": None, "delta.enableChangeDataFeed": None}
    assert table.snapshot().properties == {}
    assert action(table, "commitInfo")["operation"] == "UNSET TBLPROPERTIES"
    with pytest.raises(ValidationError, match="no property team"):
        table.unset_properties(["team"])
    assert table.unset_properties(["team"], if_exists=True).outcome == "nothing_to_do"


INVALID = {
    "delta.appendOnly": "maybe",
    "delta.logRetentionDuration": "soon",
    "delta.deletedFileRetentionDuration": "interval 90 days",
    "delta.checkpointInterval": "1.5",
    "delta.checkpointPolicy": "v3",
    "delta.targetFileSize": "large",
    "delta.isolationLevel": "None",
    "delta.columnMapping.mode": "position",
    "team": None,
    "owner": "x",
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_value_is_an_error(table, name):
    with pytest.raises(ValidationError):
        table.set_properties({name: INVALID[name]})
    assert table.snapshot().version == 1


REFUSED = {
    "delta.constraints.positive": "id > 0",
    "delta.unknown": "1",
    "delta.enableIcebergCompatV2": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "id",
    "delta.columnMapping.maxColumnId": "7",
    "delta.inCommitTimestampEnablementVersion": "1",
    "delta.feature.catalogManaged": "supported",
    "delta.feature.icebergCompatV2": "supported",
    "delta.feature.unknown": "supported",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_existing_table_cannot_have_is_refused(table, name):
    with pytest.raises(RefusedError) as caught:
        table.set_properties({name: REFUSED[name]})
    assert caught.value.operation == "set_properties"
    assert table.snapshot().version == 1


def test_vectors_are_refused_where_iceberg_or_manifests_forbid_them(tmp_path, table):
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    name = "delta.compatibility.symlinkFormatManifest.enabled"
    log.write_text(
        log.read_text().replace('"configuration":{}', f'"configuration":{{"{name}":"true"}}')
    )

    with pytest.raises(RefusedError, match="symlinkFormatManifest"):
        table.set_properties({"delta.enableDeletionVectors": "true"})
    table.unset_properties([name])
    table.set_properties({"delta.enableDeletionVectors": "true"})


def test_the_log_is_kept_as_long_as_deleted_files(table):
    short = {"delta.logRetentionDuration": "interval 2 days"}
    with pytest.raises(ValidationError, match="at least as long"):
        table.set_properties(short)
    table.set_properties({**short, "delta.deletedFileRetentionDuration": "interval 2 days"})
    with pytest.raises(ValidationError, match="at least as long"):
        table.unset_properties(["delta.deletedFileRetentionDuration"])


def test_row_tracking_starts_on_a_table_without_files(tmp_path):
    table = lakehand.create_table(tmp_path, ROWS.schema)

    report = table.set_properties({"delta.enableRowTracking": "true"})

    assert report.features_added == ("domainMetadata", "rowTracking")
    table.append(ROWS)
    assert action(table, "add")["baseRowId"] == 0


def test_row_tracking_does_not_start_over_a_concurrent_append(tmp_path):
    table = lakehand.create_table(tmp_path, ROWS.schema)
    handle = table._handle
    plan = handle.plan_properties(handle.snapshot(), PropertyWish(features=("rowTracking",)))
    table.append(ROWS)

    with pytest.raises(ReplanError, match="without row ids"):
        handle.commit(plan.change, token="t")


def test_column_mapping_keeps_the_names_of_existing_files(table):
    table.set_properties({"delta.columnMapping.mode": "name"})

    assert table.to_arrow().equals(ROWS)
    assert table.snapshot().properties["delta.columnMapping.maxColumnId"] == "5"
    table.append(ROWS)
    assert table.to_arrow().num_rows == 6
    with pytest.raises(RefusedError, match="from name to none"):
        table.set_properties({"delta.columnMapping.mode": "none"})
    with pytest.raises(RefusedError, match="readers need it"):
        table.unset_properties(["delta.columnMapping.mode"])


def test_a_feature_comes_with_those_it_depends_on(tmp_path):
    table = lakehand.create_table(tmp_path, ROWS.schema)

    assert table.enable_feature("rowTracking").features_added == ("domainMetadata", "rowTracking")
    assert table.enable_feature("rowTracking").outcome == "nothing_to_do"
    with pytest.raises(ValidationError, match="cluster_by"):
        table.enable_feature("clustering")


def test_clustering_columns_are_declared_changed_and_dropped(table):
    report = table.cluster_by(["name", "POINT.x"])

    assert report.clustering_columns == ("name", "point.x")
    assert report.features_added == ("clustering", "domainMetadata")
    assert action(table, "commitInfo")["operationParameters"] == {
        "oldClusteringColumns": "",
        "newClusteringColumns": "name,point.x",
    }
    assert table.cluster_by(["name", "point.x"]).outcome == "nothing_to_do"
    assert table.cluster_by(None).clustering_columns == ()
    assert table.cluster_by(None).outcome == "nothing_to_do"


def test_a_table_that_was_never_clustered_stays_as_it_is_without_columns(table):
    assert table.cluster_by(None).outcome == "nothing_to_do"


@pytest.mark.parametrize("columns", [["missing"], ["id", "ID"], ["point"]])
def test_columns_that_cannot_cluster_are_refused(table, columns):
    with pytest.raises((UnknownColumnError, ValidationError)):
        table.cluster_by(columns)


def test_a_partitioned_table_is_not_clustered(tmp_path):
    table = lakehand.create_table(tmp_path, ROWS.schema, partition_by=["name"])

    with pytest.raises(RefusedError, match="partitioned"):
        table.cluster_by("id")


def test_the_command_shows_and_changes_properties(table, capsys):
    def command(*words):
        code = run(["properties", words[0], table.url, *words[1:]])
        return code, capsys.readouterr().out

    assert command("set", "team=a=b", "delta.appendOnly=true")[0] == 0
    assert command("list") == (0, "delta.appendOnly=true\nteam=a=b\n")
    code, out = command("unset", "team", "--json")
    assert (code, json.loads(out)["after"]) == (0, {"team": None})
    assert command("unset", "team")[0] == 2
    assert "features added: deletionVectors" in command("enable", "deletionVectors")[1]
    assert "clustering columns: id, name" in command("cluster-by", "id, name")[1]
    assert "clustering columns: none" in command("cluster-by", "--none")[1]
    assert command("set", "team")[0] == 2
