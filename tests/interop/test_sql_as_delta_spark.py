"""The same statement gives on the same table what delta-spark gives."""

from __future__ import annotations

import json
import os
import shutil
import time
from urllib.parse import unquote

import pytest

import lakehand

#: Columns of DESCRIBE DETAIL that say where and when, and not what.
_PLACE = {"location", "lastModified", "id", "createdAt"}


def make(oracle, path):
    """Make a table with two partitions, many files, deleted rows and a property."""
    oracle.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, p STRING, s STRING) USING delta"
        " PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'team' = 'x')"
    )
    rows = "SELECT id, concat('p', id % 2) AS p, concat('s', id % 7) AS s FROM range({}, {})"
    for part in range(3):
        oracle.write(path, rows.format(20 * part, 20 * part + 20))
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3")


@pytest.fixture
def pair(oracle, tmp_path):
    """Two copies of a table: delta-spark changes the first one, lakehand the other."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    oracle.provide("test_sql_as_delta_spark", theirs, lambda path: make(oracle, path))
    shutil.copytree(theirs, ours, copy_function=shutil.copy2)
    return theirs, ours


def both(oracle, pair, statement):
    theirs, ours = pair
    expected = oracle.sql(statement.format(f"delta.`{theirs}`"))
    return expected, lakehand.run_sql(statement.format(f"delta.`{ours}`")).to_json()


def files(oracle, path):
    """Return how many files each partition has, as delta-spark reads the table."""
    query = f"SELECT p, count(DISTINCT _metadata.file_path) AS n FROM delta.`{path}` GROUP BY p"
    return {row["p"]: row["n"] for row in oracle.sql(query)}


@pytest.mark.parametrize(
    "statement",
    ["OPTIMIZE {}", "OPTIMIZE {} WHERE p = 'p1'", "OPTIMIZE {} WHERE p = 'p0' ZORDER BY (id, s)"],
)
@pytest.mark.one_in(2)
def test_optimize(oracle, pair, statement):
    (expected,), found = both(oracle, pair, statement)
    metrics, report = expected["metrics"], found["report"]
    assert (report["files_added"], report["files_removed"]) == (
        metrics["numFilesAdded"],
        metrics["numFilesRemoved"],
    )
    theirs, ours = pair
    assert files(oracle, ours) == files(oracle, theirs)
    assert oracle.rows(ours) == oracle.rows(theirs)
    commits = [oracle.history(path)[0] for path in pair]
    assert [commit["operation"] for commit in commits] == ["OPTIMIZE", "OPTIMIZE"]
    orders = [json.loads(one["operationParameters"]["zOrderBy"]) for one in commits]
    assert orders[0] == orders[1]


def test_vacuum_dry_run(oracle, pair):
    old = time.time() - 30 * 86_400
    for path in pair:
        for name in ("orphan.parquet", "p=p0/orphan 2.parquet", "young.parquet"):
            (path / name).write_bytes(b"x")
            if name != "young.parquet":
                os.utime(path / name, (old, old))
    # Spark makes so many tasks of every listing, 10,000 by default.
    few = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}
    with oracle.configured(few):
        expected, found = both(oracle, pair, "VACUUM {} RETAIN 200 HOURS DRY RUN")
    names = {unquote(row["path"]).rsplit("theirs/", 1)[1] for row in expected}
    assert names - {"p=p0"} == {"orphan.parquet", "p=p0/orphan 2.parquet"}
    assert set(found["report"]["files_to_delete"]) == names - {"p=p0"}


@pytest.mark.parametrize("point", ["VERSION AS OF 2", "TIMESTAMP AS OF '{at}'"])
@pytest.mark.one_in(2)
def test_restore(oracle, pair, point):
    at = oracle.history(pair[0])[2]["timestamp"]
    statement = "RESTORE TABLE {} TO " + point.format(at=at)
    (expected,), found = both(oracle, pair, statement)
    report = found["report"]
    assert (report["files_restored"], report["files_removed"], report["bytes_removed"]) == (
        expected["num_restored_files"],
        expected["num_removed_files"],
        expected["removed_files_size"],
    )
    assert oracle.rows(pair[1]) == oracle.rows(pair[0])


def test_describe(oracle, pair):
    (expected,), found = both(oracle, pair, "DESCRIBE DETAIL {}")
    (row,) = found["rows"]
    expected.pop("statistics", None)
    assert {name: row[name] for name in expected if name not in _PLACE} == {
        name: value for name, value in expected.items() if name not in _PLACE
    }
    assert expected["id"] == row["id"]
    expected, found = both(oracle, pair, "DESCRIBE HISTORY {}")
    for theirs, ours in zip(expected, found["rows"], strict=True):
        for name in ("version", "operation", "operationParameters", "operationMetrics"):
            assert ours[name] == theirs.get(name, {}), name
        assert ours["engineInfo"] == theirs["engineInfo"]
    (_, found) = both(oracle, pair, "DESCRIBE HISTORY {} LIMIT 2")
    assert [row["version"] for row in found["rows"]] == [4, 3]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '20', a.b = 'c')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true)",
        "ALTER TABLE {} UNSET TBLPROPERTIES ('team')",
        "ALTER TABLE {} UNSET TBLPROPERTIES IF EXISTS ('team', 'nothing')",
    ],
)
def test_alter_table(oracle, pair, statement):
    both(oracle, pair, statement)
    (theirs,), found = both(oracle, pair, "DESCRIBE DETAIL {}")
    (ours,) = found["rows"]
    names = ("properties", "minReaderVersion", "minWriterVersion", "tableFeatures")
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    assert oracle.detail(pair[1])["properties"] == theirs["properties"]


def test_clustering_columns(oracle, tmp_path):
    pair = tmp_path / "theirs", tmp_path / "ours"
    oracle.sql(f"CREATE TABLE delta.`{pair[0]}` (a INT, b INT) USING delta CLUSTER BY (a)")
    shutil.copytree(*pair)
    for clause in ("CLUSTER BY (b, a)", "CLUSTER BY NONE"):
        both(oracle, pair, f"ALTER TABLE {{}} {clause}")
        (theirs,), found = both(oracle, pair, "DESCRIBE DETAIL {}")
        assert found["rows"][0]["clusteringColumns"] == theirs["clusteringColumns"]
        assert oracle.detail(pair[1])["clusteringColumns"] == theirs["clusteringColumns"]


def test_reorg_purges_the_same_rows(oracle, pair):
    both(oracle, pair, "REORG TABLE {} APPLY (PURGE)")
    assert oracle.rows(pair[1]) == oracle.rows(pair[0])
    vectors = [lakehand.open_table(path).inspect().deleted_row_count for path in pair]
    assert vectors == [0, 0]
