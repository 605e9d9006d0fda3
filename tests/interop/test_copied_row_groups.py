"""Row groups of delta-spark moved byte for byte are the same rows to it, page indexes included."""

from __future__ import annotations

import json

import datafusion
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder

from lakehand.rewrite.run import compact
from lakehand.settings import Settings
from support.copyable_tables import commit_copy, copy_files
from support.rows import delta_rs_rows, delta_table, lakehand_rows, spark_rows

LOCAL = Settings({"engine": "local", "min_files": 2}, environment={})
#: Enough rows for a row group worth keeping.
PART = 110_000
DIVIDED = 100_000
ROWS = """
SELECT id, IF(id % 4 = 0, NULL, concat('name ', id, ' ✓')) AS name,
  CAST(id / 7 AS DECIMAL(18, 4)) AS precise, CAST(-id AS DECIMAL(38, 10)) AS wide,
  date_add(DATE'2026-01-01', CAST(id % 1000 AS INT)) AS day,
  timestamp_micros(1767225600000000 + id * 1234567) AS at,
  CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array(id, NULL) END AS list,
  IF(id % 5 = 1, NULL, named_struct('a', IF(id % 5 = 2, NULL, id))) AS nested
FROM range({}, {})
"""


def _by_id(rows, schema):
    return rows.cast(schema).sort_by("id").combine_chunks()


def test_all_engines_read_a_copied_table_as_before(oracle, tmp_path):
    path = tmp_path / "table"
    oracle.write(path, ROWS.format(0, 2 * PART), files=2)
    schema = lakehand_rows(path).schema
    before = _by_id(spark_rows(oracle, path), schema)

    report = compact(delta_table(path), settings=LOCAL)

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 1, "ranges")
    _same_everywhere(oracle, path, schema, before)
    for wanted in (0, PART - 1, PART, 177_777, 2 * PART - 1):
        found = oracle.sql(f"SELECT wide FROM delta.`{path}` WHERE id = {wanted}")
        assert [float(row["wide"]) for row in found] == [-wanted]


def _same_everywhere(oracle, path, schema, before) -> None:
    after = (spark_rows(oracle, path), delta_rs_rows(path), lakehand_rows(path))
    assert [_by_id(rows, schema).equals(before) for rows in after] == [True, True, True]


def _found_everywhere(oracle, path, condition: str) -> list[int]:
    """Return the ids that all engines find; each skips files, row groups and pages by bounds."""
    query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    context = datafusion.SessionContext()
    files = [str(path / file) for file in delta_table(path).snapshot().files["path"].to_pylist()]
    for number, file in enumerate(files):
        context.register_parquet(f"t{number}", file)
    parts = " UNION ALL ".join(f"SELECT * FROM t{number}" for number in range(len(files)))
    pages = context.sql(f"SELECT id FROM ({parts}) WHERE {condition} ORDER BY id").to_pylist()
    spark = oracle.sql(f"SELECT id FROM delta.`{path}` WHERE {condition} ORDER BY id")
    rust = QueryBuilder().register("t", DeltaRsTable(str(path))).execute(query).read_all()
    ids = [row["id"] for row in spark]
    assert [row["id"] for row in pages] == ids
    assert rust["id"].to_pylist() == ids
    return ids


@pytest.fixture(scope="module")
def divided(oracle, tmp_path_factory):
    """Return a table of one file with many row groups, before and after it was divided."""
    path = tmp_path_factory.mktemp("divided") / "table"
    with oracle.configured({"parquet.block.size": str(2**20)}):
        oracle.write(path, ROWS.format(0, DIVIDED), files=1)
    schema = lakehand_rows(path).schema
    before = _by_id(spark_rows(oracle, path), schema)
    table = delta_table(path)
    result = copy_files(table, target_file_bytes=table.snapshot().files["bytes"][0].as_py() // 3)
    commit_copy(table, result)
    return path, schema, before, result


@pytest.mark.soak
def test_all_engines_read_the_parts_of_a_divided_file_as_before(oracle, divided):
    path, schema, before, result = divided
    assert (result.method, len(result.outputs)) == ("copy", 3)

    _same_everywhere(oracle, path, schema, before)
    for wanted in (0, 31_234, DIVIDED - 1):
        assert _found_everywhere(oracle, path, f"id = {wanted}") == [wanted]
    names = _found_everywhere(oracle, path, "name = 'name 70001 ✓'")
    assert names == [70_001]


@pytest.mark.soak
def test_delta_spark_skips_parts_of_a_divided_file_by_their_bounds(oracle, divided):
    path, _, _, result = divided
    bounds = [json.loads(file.native["stats"]) for file in result.outputs]
    assert bounds[0]["minValues"]["id"] == 0
    for file, stats in zip(result.outputs, bounds, strict=True):
        low, high = stats["minValues"], stats["maxValues"]
        read = oracle.files_read(path, where=f"id >= {low['id']} AND id <= {high['id']}")
        assert [name.rpartition("/")[2] for name in read] == [file.path]
        days = f"day >= '{low['day']}' AND day <= '{high['day']}' AND id = {high['id']}"
        assert _found_everywhere(oracle, path, days) == [high["id"]]


def test_all_engines_read_crumbs_and_worn_files_beside_copied_row_groups(oracle, tmp_path):
    path = tmp_path / "table"
    table = f"delta.`{path}`"
    # One that loses rows, one worth keeping and a crumb.
    for start, end in ((0, 20_000), (20_000, 20_000 + PART), (500_000, 500_050)):
        oracle.write(path, ROWS.format(start, end), files=1)
    oracle.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    oracle.sql(f"DELETE FROM {table} WHERE id < 1000 OR id = 500007")
    schema = lakehand_rows(path).schema
    before = _by_id(spark_rows(oracle, path), schema)

    report = compact(delta_table(path), settings=LOCAL)

    assert (report.methods.copy, report.files_after, report.proof.kind) == (1, 1, "mixed")
    _same_everywhere(oracle, path, schema, before)
    for wanted in (1_000, 77_777, 500_049):
        assert _found_everywhere(oracle, path, f"id = {wanted}") == [wanted]
    assert _found_everywhere(oracle, path, "id IN (5, 500007)") == []


def test_row_ids_are_those_of_before_where_their_columns_were_copied(oracle, tmp_path):
    path = tmp_path / "table"
    columns = "id BIGINT, name STRING"
    properties = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    oracle.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {properties}")
    for start in (0, 2_000):
        rows = f"SELECT id, concat('n', id) AS name FROM range({start}, {start + 2_000})"
        oracle.write(path, rows, files=4)
    identity = ("*", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS version")
    before = spark_rows(oracle, path, columns=identity).sort_by("id")
    size = delta_table(path).snapshot().files["bytes"][0].as_py()
    report = compact(delta_table(path), settings=LOCAL.with_call({"target_file_bytes": 4 * size}))
    assert (report.methods.recode, report.files_removed) == (2, 8)
    table = delta_table(path)

    result = copy_files(table)
    commit_copy(table, result)

    assert (result.method, result.proof.kind) == ("copy", "ranges")
    assert spark_rows(oracle, path, columns=identity).sort_by("id").equals(before)
