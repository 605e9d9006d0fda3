"""A table in Python: what each verb returns, on real tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import lakehand
from lakehand.errors import (
    NotATableError,
    TableExistsError,
    UnknownColumnError,
    UnknownSettingError,
    ValidationError,
    VersionNotFoundError,
)
from lakehand.settings import Settings
from lakehand.storage import CountingStore
from lakehand.table import Table
from support.small_tables import fingerprint, make_table, read_sorted, rows


@pytest.fixture
def path(tmp_path):
    return make_table(tmp_path / "events")


@pytest.fixture
def table(path):
    return lakehand.open_table(path)


def test_a_table_knows_its_place_and_format(table, path):
    assert (table.url, table.format) == (f"file://{path}", "delta")
    assert repr(table) == f"<Table file://{path} (delta)>"


def test_what_is_no_table_is_not_opened(tmp_path):
    with pytest.raises(NotATableError):
        lakehand.open_table(tmp_path)


def test_an_unknown_setting_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UnknownSettingError):
        lakehand.open_table(tmp_path / "nowhere", target_file_byte=1)


def test_every_call_reads_the_newest_version(table, path):
    assert table.snapshot().version == 5
    write_deltalake(str(path), rows(60, 10), mode="append")
    assert table.snapshot().version == 6
    assert table.to_arrow().num_rows == 70
    assert table.inspect().row_count == 70


def test_rows_are_those_that_another_engine_reads(table, path):
    DeltaTable(str(path)).delete("id % 3 = 0")
    mine = table.to_arrow().sort_by("id")
    assert mine.select(["id", "region", "amount"]).equals(read_sorted(path), check_metadata=False)


def test_rows_of_an_earlier_version(table):
    assert table.to_arrow(version=1).num_rows == 20


def test_only_the_columns_asked_for_are_read(table):
    assert table.to_arrow(columns=["amount", "id"]).column_names == ["amount", "id"]


def test_a_predicate_keeps_the_rows_that_another_engine_keeps(table, path):
    mine = table.to_arrow(where="region = 'eu' AND amount > 5").sort_by("id")
    theirs = read_sorted(path)
    wanted = [
        row["id"]
        for row in theirs.to_pylist()
        if row["region"] == "eu" and row["amount"] is not None and row["amount"] > 5
    ]
    assert mine["id"].to_pylist() == wanted


def files_read(table, **options):
    """Return the data files of which a byte is read."""
    counted = CountingStore(table._handle.store)
    handle = type(table._handle)(counted)
    Table(handle, format_name="delta", settings=Settings()).to_arrow(**options)
    paths = table.snapshot().files["path"].to_pylist()
    return [path for path in paths if counted.bytes_read_of(path)]


def test_a_predicate_skips_files_by_statistics_and_partition(table):
    assert len(files_read(table)) == 12
    assert len(files_read(table, where="id = 9")) == 1
    assert len(files_read(table, where="id < 20 AND region = 'us'")) == 2
    assert len(files_read(table, where="region = 'asia'")) == 0


def test_rows_can_be_streamed(table):
    assert sum(batch.num_rows for batch in table.to_batches()) == 60


def test_an_unknown_column_is_named_with_those_there_are(table):
    with pytest.raises(UnknownColumnError, match=r"'colour'.*id, region, amount"):
        table.to_arrow(columns=["colour"])


def test_the_schema_has_partition_columns_in_their_place(table):
    assert table.schema().names == ["id", "region", "amount"]
    assert table.schema().field("id").type == pa.int64()


def test_time_travel_by_time(table):
    times = {entry.version: entry.at for entry in table.history()}
    assert table.snapshot(timestamp=times[5]).version == 5
    assert table.snapshot(timestamp=(times[5] + timedelta(days=1)).isoformat()).version == 5
    with pytest.raises(VersionNotFoundError):
        table.snapshot(timestamp=times[0] - timedelta(days=1))


def test_a_time_without_zone_is_utc(table):
    future = datetime.now(UTC) + timedelta(days=1)
    assert table.snapshot(timestamp=future.replace(tzinfo=None)).version == 5


def test_a_version_and_a_time_at_once_are_refused(table):
    with pytest.raises(ValidationError, match="not both"):
        table.snapshot(version=1, timestamp="2026-01-01")


def test_a_limit_below_one_is_refused(table):
    with pytest.raises(ValidationError, match="at least 1"):
        table.history(limit=0)


def test_the_difference_of_two_versions(table):
    difference = table.diff(3, 5)
    assert (difference.added.num_rows, difference.removed.num_rows) == (4, 0)
    assert not difference.schema_changed


def test_transactions_of_applications(table, path):
    mark = CommitProperties(app_transactions=[Transaction("loader", 7)])
    write_deltalake(str(path), rows(60, 1), mode="append", commit_properties=mark)
    assert table.transactions() == {"loader": 7}


def test_a_new_table_is_empty_and_opens_for_others(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    created = lakehand.create_table(tmp_path / "new", schema, partition_by=["day"])
    assert created.to_arrow().num_rows == 0
    judge = DeltaTable(str(tmp_path / "new"))
    assert judge.metadata().partition_columns == ["day"]
    assert [field.name for field in judge.schema().fields] == ["id", "day"]


def test_a_table_is_not_created_over_another(path):
    before = fingerprint(path)
    with pytest.raises(TableExistsError):
        lakehand.create_table(path, pa.schema([("id", pa.int64())]))
    assert fingerprint(path) == before


def test_a_format_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="no format named 'csv'"):
        lakehand.create_table(tmp_path / "new", pa.schema([("id", pa.int64())]), format="csv")


def test_a_table_in_memory():
    schema = pa.schema([("id", pa.int64())])
    created = lakehand.create_table("memory://test-a-table-in-memory", schema)
    assert created.inspect().file_count == 0
    assert created.checkpoint().outcome == "committed"
    assert created.checkpoint().outcome == "nothing_to_do"
