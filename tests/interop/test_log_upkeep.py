"""delta-spark and delta-rs read tables whose log lakehand has cleaned."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from lakehand import open_table
from support.aged_tables import commits_in, make_aged_table


def test_other_engines_read_and_write_on_after_a_cleanup(oracle, tmp_path):
    path = make_aged_table(tmp_path / "t")
    before = oracle.rows(path)
    report = open_table(path).clean_logs()
    assert (report.oldest_version, commits_in(path)) == (8, [8, 9])
    assert oracle.rows(path) == before
    assert DeltaTable(path).to_pyarrow_table().num_rows == 10
    oracle.sql(f"INSERT INTO delta.`{path}` VALUES (10)")
    assert sorted(open_table(path).to_arrow()["id"].to_pylist()) == list(range(11))


def test_delta_spark_reads_a_restored_version_as_it_read_the_old_one(oracle, tmp_path):
    path = tmp_path / "t"
    oracle.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true')"
    )
    oracle.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(20)")
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id % 5 = 0")
    before = oracle.rows(path)
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id > 3")
    oracle.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (note STRING)")
    assert open_table(path).restore(version=2).metadata_restored
    assert oracle.rows(path) == before
    assert oracle.history(path)[0]["operation"] == "RESTORE"
    oracle.sql(f"INSERT INTO delta.`{path}` VALUES (100)")
    assert len(oracle.rows(path)) == len(before) + 1


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.one_in(2)
def test_tombstones_in_checkpoints_of_delta_spark_are_those_of_its_commits(
    oracle, tmp_path, policy
):
    """A checkpoint every second commit, over files that are removed and whose vectors change."""
    path = tmp_path / "t"
    oracle.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '2',"
        f" 'delta.checkpointPolicy' = '{policy}')"
    )
    oracle.sql(f"INSERT INTO delta.`{path}` SELECT id, concat('a b%', id % 2) FROM range(20)")
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id = 5")
    oracle.sql(f"INSERT OVERWRITE delta.`{path}` SELECT id, 'c' FROM range(5)")
    report = open_table(path).verify(proofs=False)
    assert (report.findings, report.checkpoints_checked) == ((), 2)
