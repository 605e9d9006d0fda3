"""delta-spark and delta-rs accept tables whose properties lakehand changed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakehand

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
#: What delta-spark enables on an existing table, and lakehand in the same way.
PROPERTIES = {
    "append only": {"delta.appendOnly": "true"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "commit times": {"delta.enableInCommitTimestamps": "true"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2"},
    "type widening": {"delta.enableTypeWidening": "true"},
    "column mapping": {"delta.columnMapping.mode": "name"},
    "a feature": {"delta.feature.vacuumProtocolCheck": "supported"},
    "several": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
    "retention": {"delta.logRetentionDuration": "interval 60 days", "team": "x"},
}
#: delta-rs reads rows only where readers need no feature that it lacks.
READ_BY_DELTA_RS = {"append only", "change feed", "commit times", "retention"}
#: Properties whose values differ from table to table.
TIMES = {"delta.inCommitTimestampEnablementTimestamp"}


def new_table(path):
    table = lakehand.create_table(path, ROWS.schema)
    table.append(ROWS)
    return table


def spark_list(properties):
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def described(oracle, path):
    detail = oracle.detail(path)
    properties = {n: v for n, v in detail["properties"].items() if n not in TIMES}
    return properties, set(detail["tableFeatures"]), set(detail.get("clusteringColumns") or ())


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.one_in(4)
def test_a_table_becomes_what_delta_spark_makes_of_it(oracle, tmp_path, name):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    new_table(theirs)
    oracle.sql(f"ALTER TABLE delta.`{theirs}` SET TBLPROPERTIES ({spark_list(PROPERTIES[name])})")

    new_table(ours).set_properties(PROPERTIES[name])

    assert described(oracle, ours) == described(oracle, theirs)
    oracle.sql(f"INSERT INTO delta.`{ours}` VALUES (4, 'd')")
    assert len(oracle.rows(ours)) == 4
    assert lakehand.open_table(ours).to_arrow().num_rows == 4
    judge = DeltaTable(str(ours))
    assert judge.version() == 3
    if name in READ_BY_DELTA_RS:
        assert judge.to_pyarrow_table().num_rows == 4


def test_properties_go_as_in_delta_spark(oracle, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        new_table(path).set_properties({"team": "x", "delta.enableChangeDataFeed": "true"})
    names = ["team", "delta.enableChangeDataFeed"]
    oracle.sql(f"ALTER TABLE delta.`{theirs}` UNSET TBLPROPERTIES ('team', '{names[1]}')")

    lakehand.open_table(ours).unset_properties(names)

    assert described(oracle, ours) == described(oracle, theirs)
    [operation, *_] = (entry["operation"] for entry in oracle.history(ours))
    assert operation == "UNSET TBLPROPERTIES"


def test_clustering_columns_are_those_of_delta_spark(oracle, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    tables = [new_table(path) for path in (ours, theirs)]
    for columns, statement in ((["name", "id"], "(name, id)"), (None, "NONE")):
        oracle.sql(f"ALTER TABLE delta.`{theirs}` CLUSTER BY {statement}")
        tables[0].cluster_by(columns)

        assert described(oracle, ours) == described(oracle, theirs)
        version = tables[0].snapshot().version
        written = [domain(path, version) for path in (ours, theirs)]
        assert written[0] == written[1]
    oracle.sql(f"OPTIMIZE delta.`{ours}`")
    assert len(oracle.rows(ours)) == 3


def domain(path, version):
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    found = [json.loads(line).get("domainMetadata") for line in lines]
    return [(one["domain"], json.loads(one["configuration"])) for one in found if one]
