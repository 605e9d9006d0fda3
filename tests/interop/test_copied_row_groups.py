"""Row groups of delta-spark moved byte for byte are the same rows to it, page indexes included."""

from __future__ import annotations

from lakehand.maintain import compact
from lakehand.settings import Settings
from support.rows import delta_rs_rows, delta_table, lakehand_rows, spark_rows

LOCAL = Settings({"engine": "local"}, environment={})
#: Enough rows that each file has a row group worth keeping.
ROWS = 440_000
TABLE = f"""
SELECT id, IF(id % 4 = 0, NULL, concat('name ', id, ' ✓')) AS name,
  CAST(id / 7 AS DECIMAL(18, 4)) AS precise, CAST(-id AS DECIMAL(38, 10)) AS wide,
  date_add(DATE'2026-01-01', CAST(id % 1000 AS INT)) AS day,
  timestamp_micros(1767225600000000 + id * 1234567) AS at,
  CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array(id, NULL) END AS list,
  IF(id % 5 = 1, NULL, named_struct('a', IF(id % 5 = 2, NULL, id))) AS nested
FROM range({ROWS})
"""


def _by_id(rows, schema):
    return rows.cast(schema).sort_by("id").combine_chunks()


def test_all_engines_read_a_copied_table_as_before(oracle, tmp_path):
    path = tmp_path / "table"
    oracle.write(path, TABLE, files=4)
    schema = lakehand_rows(path).schema
    before = _by_id(spark_rows(oracle, path), schema)

    report = compact(delta_table(path), settings=LOCAL)

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 1, "ranges")
    after = (spark_rows(oracle, path), delta_rs_rows(path), lakehand_rows(path))
    assert [_by_id(rows, schema).equals(before) for rows in after] == [True, True, True]
    for wanted in (0, 109_999, 110_000, 333_333, ROWS - 1):
        found = oracle.sql(f"SELECT wide FROM delta.`{path}` WHERE id = {wanted}")
        assert [float(row["wide"]) for row in found] == [-wanted]
