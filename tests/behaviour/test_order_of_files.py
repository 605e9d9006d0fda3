"""A version that is read again may list its files in another order: verdicts follow the files."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder

import lakehand
from lakehand.errors import CorruptLogError, TableError
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.scan import _rows_of, with_bounds
from lakehand.formats.worker import TaskLimits
from lakehand.storage import open_store


def rows(first):
    return pa.table({"id": list(range(first, first + 10)), "value": [first] * 10})


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table whose files come in the opposite order whenever bounds are asked for."""
    made = lakehand.create_table(tmp_path / "t", rows(0).schema)
    for first in range(0, 50, 10):
        made.append(rows(first))
    real = DeltaTable.snapshot

    def reordered(self, **options):
        found = real(self, **options)
        backwards = list(reversed(range(found.file_count)))
        return (
            replace(found, files=found.files.take(backwards))
            if options.get("statistics")
            else found
        )

    monkeypatch.setattr(DeltaTable, "snapshot", reordered)
    return made


def ids(table):
    return sorted(table.to_arrow()["id"].to_pylist())


def test_a_delete_of_whole_files_deletes_these(table):
    table.delete(where="id < 10", engine="local")
    assert ids(table) == list(range(10, 50))


def test_an_upsert_replaces_its_rows(table):
    table.upsert(pa.table({"id": [3, 100], "value": [7, 7]}), key=["id"], engine="local")
    found = {row["id"]: row["value"] for row in table.to_arrow().to_pylist()}
    assert (len(found), found[3], found[100]) == (51, 7, 7)
    assert ids(table) == [*range(50), 100]


def test_a_merge_finds_its_rows(table):
    source = pa.table({"id": [3, 41], "value": [7, 7]})
    merge = table.merge(source, on=["id"], engine="local")
    merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert ids(table) == [i for i in range(50) if i not in {3, 41}]


def test_a_read_with_a_condition_finds_its_rows(table):
    assert table.to_arrow(where="id < 10")["id"].to_pylist() == list(range(10))


# Real orders: where the commits after a checkpoint name as many files as it does, DuckDB joins from
# either side, depending on the columns that are read.
_BLOCKS = 6


@pytest.fixture
def checkpointed(tmp_path):
    """A table with partitions, a checkpoint of three appends, and three commits after it."""
    properties = {"delta.checkpointInterval": "4"}
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())])
    made = lakehand.create_table(
        tmp_path / "t", schema, partition_by=["part"], properties=properties
    )
    for block in range(_BLOCKS):
        made.append(block_of(block))
    return made, tmp_path / "t"


def block_of(block):
    numbers = list(range(100 * block, 100 * block + 30))
    parts = [f"p{number % 3}" for number in numbers]
    return pa.table({"id": numbers, "part": parts, "value": numbers})


def ids_of(blocks):
    return [number for block in blocks for number in block_of(block)["id"].to_pylist()]


def read_by_delta_rs(path):
    rows = pa.table(
        QueryBuilder()
        .register("t", DeltaRsTable(path))
        .execute("SELECT id, value FROM t")
        .read_all()
    )
    return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_a_delete_after_a_checkpoint_deletes_its_rows(checkpointed):
    table, path = checkpointed
    table.delete(where="(id >= 100 AND id < 200) OR id >= 300", engine="local")
    assert sorted(read_by_delta_rs(path)) == ids_of([0, 2])


def test_an_upsert_after_a_checkpoint_replaces_its_rows(checkpointed):
    table, path = checkpointed
    new = block_of(1).set_column(2, "value", pa.array([-1] * 30, pa.int64()))
    table.upsert(new, key=["id"], engine="local")
    expected = {number: -1 if 100 <= number < 200 else number for number in ids_of(range(_BLOCKS))}
    assert read_by_delta_rs(path) == expected


def test_a_read_after_a_checkpoint_finds_its_rows(checkpointed):
    table, _ = checkpointed
    rows = table.to_arrow(where="id >= 100 AND id < 200")
    assert sorted(rows["id"].to_pylist()) == ids_of([1])


def test_a_version_with_other_files_when_read_again_is_an_error(table, monkeypatch):
    real = DeltaTable.snapshot

    def shorter(self, **options):
        found = real(self, **options)
        return replace(found, files=found.files.slice(1)) if options.get("statistics") else found

    monkeypatch.setattr(DeltaTable, "snapshot", shorter)
    with pytest.raises(TableError, match="was read twice"):
        table.delete(where="id < 10", engine="local")
    assert table.version() == 5


def test_a_file_that_a_damaged_log_names_twice_is_told_from_itself(checkpointed):
    """Its entries differ in the rows that are deleted, and the order of files in two readings."""
    table, _ = checkpointed
    snapshot = table._handle.snapshot()
    bounded = table._handle.snapshot(version=snapshot.version, statistics=["id"])
    twin = snapshot.files.slice(0, 1)
    row = twin.column_names.index("deleted_rows")
    twin = twin.set_column(row, "deleted_rows", pa.array([3], pa.int64()))
    twice = pa.concat_tables([snapshot.files, twin])
    backwards = list(reversed(range(twice.num_rows)))
    with_more = twice.append_column("bounds", pa.nulls(twice.num_rows)).take(backwards)
    assert _rows_of(twice, with_more).to_pylist() == backwards
    assert _rows_of(bounded.files, bounded.files.slice(1)).null_count == 1


def test_a_delete_refuses_a_file_that_the_log_names_twice(tmp_path):
    properties = {"delta.enableDeletionVectors": "true"}
    table = lakehand.create_table(tmp_path / "t", rows(0).schema, properties=properties)
    table.append(rows(0))
    table.delete(where="id = 1", engine="local")
    log = tmp_path / "t" / "_delta_log"
    [add] = [
        action["add"]
        for line in (log / f"{2:020}.json").read_text().splitlines()
        if "add" in (action := json.loads(line))
    ]
    del add["deletionVector"]
    (log / f"{3:020}.json").write_text(json.dumps({"add": add}) + "\n")
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*range(10), 0, *range(2, 10)])
    with pytest.raises(CorruptLogError, match="twice, with different rows deleted"):
        table.delete(where="id = 5 AND value = 0", engine="local")
    assert table.version() == 3


def test_lance_says_of_each_file_which_rows_are_deleted(tmp_path):
    table = lakehand.create_table(tmp_path / "t.lance", rows(0).schema, format="lance")
    for first in (0, 10, 20):
        table.append(rows(first))
    table.delete(where="id IN (1, 12, 13, 24, 25, 26)", engine="local")
    snapshot = table._handle.snapshot()
    files = table._handle.data_files(snapshot, [2, 0, 1])
    worker = table._handle.worker(snapshot)
    found = worker.deleted_positions(files, limits=TaskLimits())
    assert [rows.tolist() for rows in found] == [[4, 5, 6], [1], [2, 3]]


def test_a_file_that_is_named_twice_keeps_its_deleted_rows_when_its_entries_change_places(tmp_path):
    """The paths are the same in both orders, and the verdicts are not."""
    lakehand.create_table(tmp_path / "t", rows(0).schema).append(rows(0))
    real = DeltaTable(open_store(tmp_path / "t"))
    first = real.snapshot()
    twice = pa.concat_tables([first.files, first.files])
    place = twice.column_names.index("deleted_rows")
    field = twice.schema.field(place)
    named_twice = twice.set_column(place, field, pa.chunked_array([pa.array([1, 2], field.type)]))
    snapshot = replace(first, files=named_twice)
    other = replace(first, files=named_twice.take([1, 0]))

    found = with_bounds(SimpleNamespace(snapshot=lambda **_: other), snapshot, ["id"])

    assert found.files["deleted_rows"].to_pylist() == [1, 2]
