"""Tables of delta-spark that lakehand purged: delta-spark reads them and goes on writing."""

from __future__ import annotations

from datetime import timedelta

import lakehand
from support.erasures import SECRET, Days, codes, places_with

PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "3",
}


def spark_emails(oracle, path):
    rows = oracle.sql(f"SELECT email FROM delta.`{path}`")
    return sorted(row["email"] for row in rows)


def make_and_delete(oracle, path):
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
    oracle.sql(
        f"CREATE TABLE delta.`{path}` USING delta TBLPROPERTIES ({properties}) AS "
        f"SELECT id, IF(id = 7, '{SECRET}', concat(id, '@example')) AS email FROM range(10)"
    )
    oracle.sql(f"UPDATE delta.`{path}` SET email = 'x@example' WHERE id = 3")
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE email = '{SECRET}'")


def test_delta_spark_reads_and_writes_a_purged_table_until_nothing_is_left(oracle, tmp_path):
    path = tmp_path / "table"
    make_and_delete(oracle, path)
    expected = spark_emails(oracle, path)
    days = Days(path)
    first = days.purge()
    assert spark_emails(oracle, path) == expected
    assert len(oracle.sql(f"SELECT * FROM delta.`{path}` VERSION AS OF 0")) == 10
    for number in range(4):
        oracle.sql(f"INSERT INTO delta.`{path}` VALUES ({20 + number}, 'y@example')")
        expected.append("y@example")
    oracle.sql(f"OPTIMIZE delta.`{path}`")
    days.date_files()
    assert days.purge(days=7.2).remaining
    days.purge(days=1.2)
    days.now = max(first.log_gone_at, days.now) + timedelta(days=1)
    last = days.purge()
    assert (codes(last), places_with(path)) == ([], [])
    assert spark_emails(oracle, path) == sorted(expected)
    assert sorted(lakehand.open_table(path).to_arrow()["email"].to_pylist()) == sorted(expected)
