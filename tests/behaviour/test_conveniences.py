"""Rows and schemas in the types of other libraries, checkpoints listed and read, small helpers."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    ChangeFeedError,
    CommitConflictError,
    CorruptFileError,
    NotInstalledError,
    ValidationError,
    VersionNotFoundError,
)
from lakehand.model.work import Change

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": pa.array(["a", None, "c"]),
        "at": pa.array([0, 1, 2], pa.timestamp("us", tz="UTC")),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
    }
)


@pytest.fixture
def table(tmp_path):
    table = lakehand.create_table(tmp_path / "t", ROWS.schema)
    table.append(ROWS)
    return table


def test_the_latest_version_is_asked_for(table):
    assert table.version() == 1
    table.append(ROWS)
    assert table.version() == 2


def test_rows_become_a_pandas_frame(table):
    found = table.to_pandas(columns=["id", "name"], where="name = 'a'")

    assert found.to_dict("list") == {"id": [1], "name": ["a"]}
    assert table.to_pandas(arrow_types=True)["id"].dtype == pd.ArrowDtype(pa.int64())
    assert table.to_pandas(version=0).empty


def test_rows_become_a_polars_frame(table):
    found = table.to_polars(columns=["id", "name"])

    assert isinstance(found, pl.DataFrame)
    assert found["id"].to_list() == [1, 2, None]
    assert table.to_polars(version=0).height == 0


def test_rows_become_a_duckdb_relation_that_is_read_again_and_again(table):
    relation = table.to_duckdb(where="id > 1")
    assert relation.fetchall()[0][0] == 2
    assert relation.aggregate("count(*)").fetchall() == [(1,)]

    connection = duckdb.connect()
    mine = table.to_duckdb(connection=connection)
    assert connection.sql("SELECT max(id) FROM mine").fetchall() == [(2,)]
    assert mine.columns == ROWS.column_names


@pytest.mark.parametrize("method", ["to_pandas", "to_polars"])
def test_a_library_that_is_missing_is_named(table, monkeypatch, method):
    name = method.removeprefix("to_")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotInstalledError, match=name):
        getattr(table, method)()


SCHEMAS = {
    "pyarrow": lambda: ROWS.schema,
    "pyarrow table": lambda: ROWS,
    "pandas": lambda: pd.DataFrame({"id": [1], "name": pd.Categorical(["a"])}),
    "polars": lambda: pl.from_arrow(ROWS),
    "duckdb": lambda: duckdb.sql("SELECT 1::BIGINT AS id, 'a' AS name"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_is_created_with_the_columns_of_any_library(tmp_path, name):
    table = lakehand.create_table(tmp_path / "t", SCHEMAS[name]())

    types = {"id": pa.int64(), "name": pa.string()}
    assert types.items() <= {field.name: field.type for field in table.schema()}.items()
    table.append(ROWS.select(table.schema().names))
    assert table.to_arrow().num_rows == 3


def test_a_table_is_created_with_a_spark_schema(tmp_path):
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    columns = StructType([StructField("id", LongType()), StructField("name", StringType())])
    table = lakehand.create_table(tmp_path / "t", columns)
    assert table.schema() == pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_what_has_no_columns_is_an_error(tmp_path):
    with pytest.raises(ValidationError):
        lakehand.create_table(tmp_path / "t", 7)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_checkpoints_are_listed_and_read(tmp_path, policy):
    properties = {"delta.checkpointPolicy": policy}
    table = lakehand.create_table(tmp_path / "t", ROWS.schema, properties=properties)
    table.append(ROWS)
    assert table.checkpoints() == []
    with pytest.raises(VersionNotFoundError, match="no complete checkpoint"):
        table.read_checkpoint()
    table.checkpoint()
    table.append(ROWS)
    table.checkpoint()

    newest, older = table.checkpoints()
    assert (newest.version, older.version, newest.kind) == (2, 1, policy)
    assert newest.bytes > 0
    for version, adds in ((None, 2), (1, 1)):
        found = table.read_checkpoint(version=version)
        paths = [add["path"] for add in found["add"].drop_null().to_pylist()]
        assert len(paths) == adds
        assert len(found["metaData"].drop_null()) == len(found["protocol"].drop_null()) == 1


def test_a_damaged_checkpoint_is_an_error(table, tmp_path):
    [key] = table.checkpoint().files
    (tmp_path / "t" / key).write_bytes(b"PAR1 no checkpoint PAR1")
    with pytest.raises(CorruptFileError, match="checkpoint of version 1"):
        table.read_checkpoint()


def test_a_checkpoint_is_due_after_as_many_commits_as_the_table_says(tmp_path):
    properties = {"delta.checkpointInterval": "3"}
    table = lakehand.create_table(tmp_path / "t", ROWS.schema, properties=properties)
    assert not table.should_checkpoint()
    handle = table._handle
    for number in range(2):
        change = Change(kind="metadata", base_version=number, operation="NOTHING")
        handle.commit(change, token=str(number), checkpoint=False)
    assert table.should_checkpoint()
    table.checkpoint()
    assert not table.should_checkpoint()


def test_a_preview_of_vacuum_says_how_many_bytes_it_would_free(table, tmp_path):
    orphan = tmp_path / "t" / "orphan.parquet"
    orphan.write_bytes(b"x" * 1000)
    os.utime(orphan, (1_700_000_000, 1_700_000_000))

    preview = table.vacuum(dry_run=True, grace=0, engine="local")

    assert (preview.files_deleted, preview.bytes_freed) == (1, 1000)
    assert table.vacuum(grace=0, engine="local").bytes_freed == 1000


def test_sizes_durations_and_errors_are_judged_by_public_functions():
    assert lakehand.format_bytes(1536) == "1.5 KiB"
    assert lakehand.format_duration(timedelta(seconds=90)) == "1 min 30 s"
    assert lakehand.is_retryable(CommitConflictError("lost"))
    assert not lakehand.is_retryable(ChangeFeedError("off"))
