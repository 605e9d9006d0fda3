"""Tables that delta-spark clusters: what lakehand puts in order stays so in its eyes."""

from __future__ import annotations

import pytest

import lakehand
from support.compactions import tasks_inline
from support.rows import assert_same_rows, delta_rs_rows, lakehand_rows, spark_rows

ROWS = """
SELECT id, CAST(hash(id) % 1000 AS INT) AS x, concat('name ', hash(id, 1) % 1000) AS name,
  IF(id % 7 = 0, NULL, CAST(id % 13 AS DOUBLE)) AS y
FROM range(9000)
"""


@pytest.fixture
def path(oracle, tmp_path):
    path = tmp_path / "table"
    oracle.sql(
        f"CREATE TABLE delta.`{path}` (id LONG, x INT, name STRING, y DOUBLE) USING delta"
        " CLUSTER BY (x, name)"
    )
    for part in range(2):
        oracle.sql(f"INSERT INTO delta.`{path}` {ROWS} WHERE id % 2 = {part}")
    return path


def cluster(path, **options):
    with tasks_inline():
        return lakehand.open_table(path, engine="local", target_file_bytes=10_000).cluster(
            **options
        )


def removed_by_optimize(oracle, path):
    [row] = oracle.sql(f"OPTIMIZE delta.`{path}`")
    return row["metrics"]["numFilesRemoved"]


def test_a_clustered_table_stays_clustered_and_is_left_alone(oracle, path):
    before = spark_rows(oracle, path)

    report = cluster(path)

    assert (report.columns, report.curve, report.outcome) == (("x", "name"), "hilbert", "committed")
    assert report.files_after > 4
    assert_same_rows(spark_rows(oracle, path), before)
    assert_same_rows(lakehand_rows(path), before)
    assert oracle.detail(path)["clusteringColumns"] == ["x", "name"]
    assert removed_by_optimize(oracle, path) == 0


def test_what_delta_spark_clustered_is_in_order_for_us(oracle, path):
    oracle.sql(f"OPTIMIZE delta.`{path}`")

    assert cluster(path).outcome == "nothing_to_do"


def test_delta_spark_skips_files_by_the_order(oracle, tmp_path):
    path = tmp_path / "plain"
    oracle.write(path, ROWS, files=4)
    before = spark_rows(oracle, path)
    assert len(oracle.files_read(path, where="x = 17 AND y = 3.0")) == 4

    report = cluster(path, by="x, y")

    read = oracle.files_read(path, where="x = 17 AND y = 3.0")
    assert len(read) < report.files_after / 2
    assert_same_rows(spark_rows(oracle, path), before)
    assert_same_rows(delta_rs_rows(path), before)
