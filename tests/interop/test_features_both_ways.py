"""Tables of delta-spark with each feature on are read equal, and so is what lakehand commits."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakehand.errors import RefusedError
from lakehand.formats.base import WriteSpec
from lakehand.maintain import compact
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.model.work import Change
from lakehand.settings import Settings
from support.featured_tables import FEATURED_TABLES, FeaturedTable
from support.rows import (
    assert_same_rows,
    delta_rs_rows,
    delta_table,
    lakehand_rows,
    spark_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = Settings({"engine": "local", "min_files": 2}, environment={})
IDENTITY = ("*", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_version")


@pytest.fixture(scope="module")
def made_tables() -> dict[str, Path]:
    return {}


def made(feature: FeaturedTable, oracle, made_tables, tmp_path_factory, tmp_path) -> Path:
    """Return a copy of the table; the original is made once for the module."""
    if feature.name not in made_tables:
        path = tmp_path_factory.mktemp("featured") / "table"
        feature.create(oracle, path)
        made_tables[feature.name] = path
    copy = tmp_path / "table"
    shutil.copytree(made_tables[feature.name], copy)
    return copy


@pytest.fixture(params=FEATURED_TABLES, ids=lambda feature: feature.name.replace(" ", "-"))
def feature(request) -> FeaturedTable:
    return request.param


@pytest.fixture
def table(feature, oracle, made_tables, tmp_path_factory, tmp_path) -> Path:
    return made(feature, oracle, made_tables, tmp_path_factory, tmp_path)


@pytest.fixture
def named_table(oracle, made_tables, tmp_path_factory, tmp_path):
    """Return a function that gives a copy of one of the tables by its name."""

    def get(name: str) -> Path:
        [feature] = [feature for feature in FEATURED_TABLES if feature.name == name]
        return made(feature, oracle, made_tables, tmp_path_factory, tmp_path)

    return get


def test_lakehand_reads_what_delta_spark_reads(oracle, table):
    for version in range(1, delta_table(table).snapshot().version + 1):
        expected = spark_rows(oracle, table, version=version)

        assert_same_rows(lakehand_rows(table, version=version), expected)


def test_a_compacted_table_is_read_equal_by_all(oracle, feature, table):
    before = spark_rows(oracle, table)

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.outcome, report.files_after) == ("committed", 1)
    assert_same_rows(spark_rows(oracle, table), before)
    assert_same_rows(lakehand_rows(table), before)
    if feature.delta_rs_reads:
        assert_same_rows(delta_rs_rows(table), before)


def test_delta_spark_can_go_on_writing_after_a_compaction(oracle, feature, table):
    compact(delta_table(table), settings=LOCAL)
    rows = spark_rows(oracle, table)

    oracle.sql(f"INSERT INTO delta.`{table}` (id) VALUES (5000)")

    assert spark_rows(oracle, table).num_rows == rows.num_rows + 1
    assert_same_rows(lakehand_rows(table), spark_rows(oracle, table))


def append_first_row(path: Path) -> None:
    """Commit one more file that holds a row of the table once more."""
    table = delta_table(path)
    snapshot = table.snapshot()
    table.require("append", snapshot)
    row = lakehand_rows(path).slice(0, 1)
    [file] = table.worker(snapshot).write(
        row.to_batches(), WriteSpec(target_file_bytes=2**20), like=(), stem="appended"
    )
    change = Change(kind="append", base_version=snapshot.version, operation="WRITE", adds=(file,))
    table.commit(change, token="append-of-one-row")


def test_an_appended_file_is_read_equal_by_all(oracle, feature, table):
    if feature.append_refused:
        with pytest.raises(RefusedError, match=feature.append_refused):
            append_first_row(table)
        return
    before = spark_rows(oracle, table)

    append_first_row(table)

    after = spark_rows(oracle, table)
    assert after.num_rows == before.num_rows + 1
    assert_same_rows(lakehand_rows(table), after)
    if feature.delta_rs_reads:
        assert_same_rows(delta_rs_rows(table), after)


def test_row_ids_and_row_versions_survive_a_compaction(oracle, named_table):
    table = named_table("row tracking")
    before = spark_rows(oracle, table, columns=IDENTITY)

    compact(delta_table(table), settings=LOCAL)

    assert_same_rows(spark_rows(oracle, table, columns=IDENTITY), before)


def test_lakehand_and_delta_spark_agree_on_the_identity_of_rows(oracle, named_table):
    table = named_table("row tracking")

    rows = lakehand_rows(table, row_identity=True)

    renamed = rows.rename_columns(
        [
            "row_id" if n == ROW_ID else "row_version" if n == ROW_VERSION else n
            for n in rows.column_names
        ]
    )
    assert_same_rows(renamed, spark_rows(oracle, table, columns=IDENTITY))


def test_new_rows_after_a_compaction_get_new_row_ids(oracle, named_table):
    table = named_table("row tracking")
    compact(delta_table(table), settings=LOCAL)

    oracle.sql(f"INSERT INTO delta.`{table}` VALUES (5000, 'new'), (5001, 'new')")

    ids = spark_rows(oracle, table, columns=["_metadata.row_id AS row_id"])["row_id"]
    assert len(set(ids.to_pylist())) == len(ids)


def test_the_change_feed_sees_nothing_of_a_compaction(oracle, named_table):
    table = named_table("change feed")
    before = oracle.changes(table, starting_version=0)

    report = compact(delta_table(table), settings=LOCAL)

    assert oracle.changes(table, starting_version=report.version) == []
    assert oracle.changes(table, starting_version=0) == before


@pytest.mark.parametrize("name", ["append-only", "row tracking", "column mapping by name"])
def test_a_stream_sees_nothing_of_a_compaction(oracle, named_table, tmp_path, name):
    table = named_table(name)
    options = {"skipChangeCommits": "true"}
    assert oracle.stream(table, tmp_path / "place", options=options)

    compact(delta_table(table), settings=LOCAL)

    assert oracle.stream(table, tmp_path / "place", options=options) == []


def test_statistics_of_a_compacted_file_let_delta_spark_skip_it(oracle, named_table):
    table = named_table("in-commit timestamps")
    compact(delta_table(table), settings=LOCAL)

    assert oracle.rows(table, where="id = 99") == ['{"id":99,"name":"name 99"}']
    assert oracle.rows(table, where="id > 99") == []
    assert oracle.rows(table, where="name = 'name 50'") == ['{"id":50,"name":"name 50"}']


def test_a_table_without_rows_is_no_work(named_table, oracle):
    table = named_table("deletion vectors")
    oracle.sql(f"DELETE FROM delta.`{table}`")

    report = compact(delta_table(table), settings=LOCAL)

    assert (report.outcome, report.files_after) == ("nothing_to_do", 0)


def test_rows_added_by_lakehand_are_typed_as_the_table_says(oracle, tmp_path):
    oracle.sql(
        f"CREATE TABLE delta.`{tmp_path}/t` (id BIGINT NOT NULL, tags ARRAY<INT>) USING delta"
    )
    table = delta_table(tmp_path / "t")
    snapshot = table.snapshot()
    rows = pa.table({"id": [1], "tags": [[2, None]]}, schema=snapshot.schema)
    spec = WriteSpec(target_file_bytes=2**20)

    files = table.worker(snapshot).write(rows.to_batches(), spec, like=(), stem="new")
    change = Change(kind="append", base_version=snapshot.version, operation="WRITE", adds=files)
    table.commit(change, token="typed")

    assert oracle.rows(tmp_path / "t") == ['{"id":1,"tags":[2,null]}']
