"""Every golden table is understood exactly as the reference implementation understands it."""

from __future__ import annotations

import json
from itertools import pairwise

import duckdb
import pytest

from lakehand.errors import LakehandError
from lakehand.formats.delta.log.history import history
from lakehand.formats.delta.log.replay import live_actions
from lakehand.formats.delta.protocol.features import supported_features
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.scan import scan
from support.golden import (
    ABSENT_REASON,
    GOLDEN,
    expected_of,
    golden_names,
    golden_store,
    open_golden,
    opened_names,
    read_names,
    refused_names,
    unread_names,
)
from support.spark_json import to_json_lines
from support.streamed_adds import streamed_adds

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=ABSENT_REASON)


def without_metadata(schema):
    """Drop what the reference implementation hides: metadata of columns."""
    if isinstance(schema, dict):
        kept = {name: item for name, item in schema.items() if name != "metadata"}
        return {name: without_metadata(item) for name, item in kept.items()}
    return [without_metadata(item) for item in schema] if isinstance(schema, list) else schema


def test_the_golden_tables_are_complete():
    assert len(golden_names()) >= 100


@pytest.mark.parametrize("name", opened_names())
def test_version_files_and_bytes_agree(name):
    expected, snapshot = expected_of(name), open_golden(name).snapshot
    total_bytes = sum(snapshot.files["bytes"].to_pylist())
    assert snapshot.version == expected["version"]
    assert snapshot.file_count == expected["num_files"]
    assert total_bytes == expected["size_bytes"]


@pytest.mark.parametrize("name", opened_names())
def test_schema_and_partitioning_agree(name):
    expected, snapshot = expected_of(name), open_golden(name).snapshot
    assert list(snapshot.partition_columns) == expected["partition_columns"]
    found = without_metadata(json.loads(snapshot.native.schema.to_json()))
    assert found == without_metadata(expected["schema"])
    assert snapshot.schema.names == [field["name"] for field in expected["schema"]["fields"]]


@pytest.mark.parametrize("name", opened_names())
def test_protocol_agrees(name):
    expected, protocol = expected_of(name), open_golden(name).snapshot.native.protocol
    assert protocol.min_reader_version == expected["min_reader_version"]
    assert protocol.min_writer_version == expected["min_writer_version"]
    assert sorted(supported_features(protocol)) == sorted(expected["table_features"])


@pytest.mark.parametrize("name", refused_names())
def test_what_the_reference_refuses_is_refused_with_a_typed_error(name):
    with pytest.raises(LakehandError) as caught:
        open_golden(name)
    assert caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", opened_names())
def test_full_adds_agree_with_the_file_table(name):
    golden = open_golden(name)
    segment, files = golden.snapshot.native.segment, golden.snapshot.files
    adds = live_actions(golden.store, segment, files["path"].to_pylist())
    streamed = streamed_adds(golden.store, segment)
    assert sorted(add["path"] for add in adds) == sorted(row["path"] for row in streamed)
    assert sorted(add["size"] for add in adds) == sorted(files["bytes"].to_pylist())
    assert {add["path"]: add.get("stats") for add in adds} == {
        row["path"]: row["stats"] for row in streamed
    }


@pytest.mark.parametrize("name", opened_names())
def test_history_reaches_from_the_newest_version_to_the_oldest_commit(name):
    golden = open_golden(name)
    entries = history(golden.store)
    versions = [entry.version for entry in entries]
    assert versions[0] == golden.snapshot.version
    assert versions == sorted(versions, reverse=True)
    assert all(older.at <= newer.at for newer, older in pairwise(entries))


def test_parameters_of_any_type_are_kept():
    store = golden_store("commit-info-containing-arbitrary-operationParams-types")
    shapes = {type(value) for entry in history(store) for value in entry.parameters.values()}
    assert shapes == {str, bool, type(None)}


@pytest.mark.parametrize("name", read_names())
def test_rows_agree(name):
    expected, table = expected_of(name), DeltaTable(golden_store(name))
    rows = scan(table).read_all()
    assert rows.num_rows == expected["rows"]
    if "data" in expected:
        assert sorted(to_json_lines(rows, table.snapshot().native.schema)) == expected["data"]


@pytest.mark.parametrize("name", [n for n in read_names() if "data" not in expected_of(n)])
def test_rows_too_many_to_list_agree_with_another_reader(name):
    rows = scan(DeltaTable(golden_store(name))).read_all()
    files = [str(path) for path in (GOLDEN / "tables" / name).glob("*.parquet")]
    with duckdb.connect() as session:
        theirs = session.read_parquet(files).select(*rows.column_names).to_arrow_table()
    assert rows.equals(theirs.cast(rows.schema))


@pytest.mark.parametrize("name", unread_names())
def test_rows_that_the_reference_cannot_read_raise_a_typed_error(name):
    with pytest.raises(LakehandError) as caught:
        scan(DeltaTable(golden_store(name))).read_all()
    assert caught.value.hint


def test_every_table_is_opened_and_read_or_refused():
    names = [*read_names(), *unread_names(), *refused_names()]
    assert sorted(names) == golden_names()
