"""Tables of delta-spark with each feature on are read equal, and so is what lakehand commits."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakehand.errors import RefusedError
from lakehand.formats.worker import WriteSpec
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.model.work import Change
from lakehand.rewrite.run import compact
from lakehand.settings import Settings
from support.featured_tables import FEATURED_TABLES, FeaturedTable
from support.rows import assert_same_rows, delta_rs_rows, delta_table, lakehand_rows, spark_rows

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = Settings({"engine": "local", "min_files": 2}, environment={})
IDENTITY = ("*", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_version")


@dataclass(frozen=True)
class Made:
    """A fresh copy of a table, and its rows as delta-spark read them from the original."""

    path: Path
    rows: pa.Table


@pytest.fixture(scope="module")
def originals() -> dict[str, Made]:
    return {}


@pytest.fixture
def make(oracle, originals, tmp_path_factory, tmp_path):
    """Return a function from a feature to a copy of its table, which is made only once."""

    def get(feature: FeaturedTable) -> Made:
        if feature.name not in originals:
            path = tmp_path_factory.mktemp("featured") / "table"
            feature.provide(oracle, path)
            originals[feature.name] = Made(path, spark_rows(oracle, path))
        original = originals[feature.name]
        shutil.copytree(original.path, tmp_path / "table")
        return Made(tmp_path / "table", original.rows)

    return get


@pytest.fixture(params=FEATURED_TABLES, ids=lambda feature: feature.name.replace(" ", "-"))
def feature(request) -> FeaturedTable:
    return request.param


@pytest.fixture
def made(feature, make) -> Made:
    return make(feature)


@pytest.fixture
def named_table(make):
    """Return a function that gives a copy of one of the tables by its name."""

    def get(name: str) -> Path:
        [feature] = [feature for feature in FEATURED_TABLES if feature.name == name]
        return make(feature).path

    return get


@pytest.mark.one_in(4)
def test_lakehand_reads_what_delta_spark_reads(made):
    assert_same_rows(lakehand_rows(made.path), made.rows)


@pytest.mark.one_in(4)
def test_a_compacted_table_is_read_equal_by_all_and_can_be_written_to(oracle, feature, made):
    report = compact(delta_table(made.path), settings=LOCAL)

    assert (report.outcome, report.files_after) == ("committed", 1)
    assert_same_rows(spark_rows(oracle, made.path), made.rows)
    assert_same_rows(lakehand_rows(made.path), made.rows)
    if feature.delta_rs_reads:
        assert_same_rows(delta_rs_rows(made.path), made.rows)
    oracle.sql(f"INSERT INTO delta.`{made.path}` (id) VALUES (5000)")
    assert lakehand_rows(made.path).num_rows == made.rows.num_rows + 1


def test_older_versions_are_read_equal(oracle, named_table):
    table = named_table("row tracking")

    for version in range(1, 4):
        expected = spark_rows(oracle, table, version=version)
        assert_same_rows(lakehand_rows(table, version=version), expected)


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


@pytest.mark.one_in(4)
def test_an_appended_file_is_read_equal_by_all(oracle, feature, made):
    if feature.append_refused:
        with pytest.raises(RefusedError, match=feature.append_refused):
            append_first_row(made.path)
        return

    append_first_row(made.path)

    after = spark_rows(oracle, made.path)
    assert after.num_rows == made.rows.num_rows + 1
    assert_same_rows(lakehand_rows(made.path), after)
    if feature.delta_rs_reads:
        assert_same_rows(delta_rs_rows(made.path), after)


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
    assert oracle.stream(table, tmp_path / "place")

    compact(delta_table(table), settings=LOCAL)

    assert oracle.stream(table, tmp_path / "place") == []


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
