"""One thin slice through everything: a table of delta-spark compacted, proved and read equal."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from lakehand.rewrite.run import compact
from lakehand.settings import Settings
from support.rows import assert_same_rows, delta_rs_rows, delta_table, lakehand_rows, spark_rows

EVERY_TYPE = """
SELECT
  id,
  CAST(id AS BYTE) AS tiny, CAST(-id AS SHORT) AS small, CAST(id * 7 AS INT) AS medium,
  CAST(id / 3 AS FLOAT) AS single, CASE id % 3 WHEN 0 THEN -0.0D WHEN 1 THEN 0.0D END AS zero,
  CAST(id AS DECIMAL(9, 2)) AS money, CAST(id / 7 AS DECIMAL(18, 4)) AS precise,
  CAST(-id AS DECIMAL(38, 10)) AS wide,
  IF(id % 4 = 0, NULL, concat('name ', id, ' ✓')) AS name, IF(id % 5 = 0, '', 'x') AS short,
  CAST(CAST(id AS STRING) AS BINARY) AS raw, id % 2 = 0 AS even,
  date_add(DATE'2026-01-01', CAST(id AS INT)) AS day,
  timestamp_micros(1767225600000000 + id * 1234567) AS at,
  CAST(timestamp_micros(1767225600000000 + id) AS TIMESTAMP_NTZ) AS local_at,
  CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array(id, NULL) END AS list,
  IF(id % 3 = 0, NULL, map('k', id, 'l', NULL)) AS labels,
  IF(id % 4 = 1, NULL, named_struct(
    'a', IF(id % 4 = 2, NULL, id), 'b', array(named_struct('c', id)))) AS nested
FROM range(100)
"""

LOCAL = Settings({"engine": "local"}, environment={})


@pytest.fixture
def table(oracle, tmp_path):
    path = tmp_path / "table"
    oracle.write(path, EVERY_TYPE, files=6)
    return path


def test_a_table_of_delta_spark_is_compacted_and_read_equal_by_all(oracle, table):
    spark_before, rust_before = spark_rows(oracle, table), delta_rs_rows(table)
    assert_same_rows(lakehand_rows(table), spark_before)

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.outcome, report.version, report.files_after) == ("committed", 1, 1)
    assert_same_rows(spark_rows(oracle, table), spark_before)
    assert_same_rows(delta_rs_rows(table), rust_before)
    assert_same_rows(lakehand_rows(table), spark_before)


# A second JVM for what tests/spark shows of Spark and the test above of delta-spark.
@pytest.mark.soak
def test_the_same_on_spark(oracle, table):
    before = spark_rows(oracle, table)

    report = compact(
        delta_table(table), settings=Settings({"master": "local[2,3]"}, environment={})
    )

    assert (report.outcome, report.methods.recode) == ("committed", 1)
    assert_same_rows(spark_rows(oracle, table), before)


def test_what_the_commit_says_is_what_users_of_delta_know(oracle, table):
    report = compact(delta_table(table), settings=LOCAL)

    newest = oracle.history(table)[0]
    assert (newest["operation"], newest["version"]) == ("OPTIMIZE", 1)
    assert newest["engineInfo"].startswith("lakehand/")
    metrics = newest["operationMetrics"]
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("6", "1")
    assert report.proof is not None
    [entry] = delta_table(table).history(limit=1)
    assert entry.proof["digest"] == report.proof.digest
    assert entry.proof["rows"] == report.proof.rows == 100


def test_every_number_of_the_report_is_computed(table):
    sizes = [file.stat().st_size for file in table.glob("*.parquet")]

    report = compact(delta_table(table), settings=LOCAL)

    document = json.loads(json.dumps(report.to_json()))
    [output] = table.glob("lakehand-*.parquet")
    assert (document["files_before"], document["files_removed"], document["files_added"]) == (
        6,
        6,
        1,
    )
    assert (document["bytes_before"], document["bytes_after"]) == (
        sum(sizes),
        output.stat().st_size,
    )
    assert (document["rows_read"], document["rows_written"]) == (100, 100)
    assert document["groups"] == {"planned": 1, "committed": 1, "dropped": 0, "adopted": 0}
    assert document["proof"]["bytes"] == output.stat().st_size
    assert all(
        document[f"{stage}_ms"] > 0 for stage in ("plan", "read", "write", "prove", "commit")
    )


def test_the_second_time_there_is_nothing_to_do(oracle, table):
    compact(delta_table(table), settings=LOCAL)

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.outcome, report.version, report.files_after) == ("nothing_to_do", 1, 1)


def test_a_dry_run_writes_nothing(table):
    before = sorted(table.rglob("*"))

    report = compact(delta_table(table), settings=LOCAL, dry_run=True)

    assert (report.outcome, report.groups.planned) == ("dry_run", 1)
    assert sorted(table.rglob("*")) == before


def test_nothing_of_the_run_is_left_in_the_table(table):
    compact(delta_table(table), settings=LOCAL)

    assert [file for file in (table / "_lakehand").rglob("*") if file.is_file()] == []


def test_the_output_keeps_codec_and_calendar_of_the_inputs(table):
    compact(delta_table(table), settings=LOCAL)

    [output] = table.glob("lakehand-*.parquet")
    metadata = pq.read_metadata(output)
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert b"org.apache.spark.version" in metadata.metadata


def test_partitions_are_compacted_each_for_itself(oracle, tmp_path):
    path = tmp_path / "table"
    query = """SELECT id, CASE id % 4 WHEN 0 THEN 'a b' WHEN 1 THEN 'x/y=z%' WHEN 2 THEN NULL
               ELSE 'ü' END AS p, CAST(id % 2 AS DECIMAL(5, 2)) AS q FROM range(200)"""
    oracle.write(path, query, partition_by=["p", "q"], files=5)
    before = spark_rows(oracle, path)

    report = compact(delta_table(path), settings=LOCAL)

    assert (report.files_after, report.groups.committed) == (4, 4)
    assert_same_rows(spark_rows(oracle, path), before)
    assert_same_rows(lakehand_rows(path), before)
    outputs = {
        file.parent.relative_to(path).as_posix() for file in path.rglob("lakehand-*.parquet")
    }
    assert "p=x%2Fy%3Dz%25/q=1.00" in outputs
    assert "p=__HIVE_DEFAULT_PARTITION__/q=0.00" in outputs
