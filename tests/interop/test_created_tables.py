"""delta-spark accepts the tables that lakehand creates, and what lakehand commits to them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.formats.delta.table import DeltaFormat
from lakehand.model.work import Change, StagedFile, Transaction
from lakehand.storage import open_store
from support.changes import stats

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us"))])
PROPERTIES = {
    "plain": {"delta.appendOnly": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "row tracking": {"delta.enableRowTracking": "true"},
    "commit times": {"delta.enableInCommitTimestamps": "true"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2"},
    "mapped by name": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "widening": {"delta.enableTypeWidening": "true"},
}


@pytest.mark.parametrize("properties", PROPERTIES.values(), ids=PROPERTIES)
@pytest.mark.one_in(2)
def test_delta_spark_writes_into_a_table_that_lakehand_created(oracle, tmp_path, properties):
    table = DeltaFormat().create(open_store(tmp_path), SCHEMA, properties=properties)

    oracle.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (1, TIMESTAMP_NTZ'2026-01-01 00:00:00')")

    assert oracle.rows(tmp_path) == ['{"id":1,"at":"2026-01-01T00:00:00.000"}']
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.file_count, snapshot.schema) == (1, 1, SCHEMA)


def append(table, path, ids, *, version):
    with table.store.open_writer(path) as sink:
        pq.write_table(pa.table({"id": ids, "at": [None] * len(ids)}, schema=SCHEMA), sink)
        size = sink.tell()
    native = {"partitionValues": {}, "stats": stats(len(ids))}
    change = Change(
        kind="append",
        base_version=table.snapshot().version,
        operation="STREAMING UPDATE",
        parameters={"outputMode": "Append", "queryId": "q", "epochId": str(version)},
        adds=(StagedFile(path=path, bytes=size, rows=len(ids), native=native),),
        transaction=Transaction(application="sink", version=version),
    )
    return table.commit(change, token=f"token-{version}")


def test_what_lakehand_commits_is_what_delta_spark_sees(oracle, tmp_path):
    properties = PROPERTIES["row tracking"] | PROPERTIES["commit times"]
    table = DeltaFormat().create(open_store(tmp_path), SCHEMA, properties=properties)
    append(table, "part 1%.parquet", [1, 2], version=1)
    oracle.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (3, NULL)")
    append(table, "part 2.parquet", [4], version=2)

    rows = oracle.rows(tmp_path, columns=["id", "_metadata.row_id AS row"])
    newest, _, first, _ = oracle.history(tmp_path)

    assert rows == [f'{{"id":{id_},"row":{id_ - 1}}}' for id_ in (1, 2, 3, 4)]
    assert (newest["operation"], newest["isBlindAppend"]) == ("STREAMING UPDATE", True)
    assert newest["operationMetrics"]["numOutputRows"] == "1"
    assert first["engineInfo"].startswith("lakehand/")
