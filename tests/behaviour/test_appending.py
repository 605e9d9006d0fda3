"""`append` and `overwrite` in one call, on tables of every kind."""

from __future__ import annotations

import asyncio
import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRsTable

import lakehand
from lakehand.errors import PredicateError, RefusedError, SchemaMismatchError, ValidationError
from lakehand.sink import AsyncTableSink
from support.sinks import SCHEMA, batch_of, ids_in

PARTS = {"partition_by": ["part"]}


def new_table(place, schema=SCHEMA, **options):
    return lakehand.create_table(place, schema, **options)


def last_commit(place) -> list[dict]:
    newest = max((place / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def test_rows_of_any_form_are_appended(tmp_path):
    table = new_table(tmp_path)
    frame = pd.DataFrame({"id": [3], "part": ["x"]})
    table.append(batch_of([1]))
    table.append(pa.Table.from_batches([batch_of([2])]).to_reader())
    report = table.append(frame)

    assert ids_in(tmp_path) == [1, 2, 3]
    assert (report.operation, report.outcome, report.version) == ("append", "committed", 3)
    assert (report.rows_written, report.files_added, report.files_removed) == (1, 1, 0)


def test_nothing_is_committed_for_no_rows(tmp_path):
    report = new_table(tmp_path).append(batch_of([]))
    assert (report.outcome, report.version) == ("nothing_to_do", 0)


def test_a_reader_larger_than_memory_is_written_as_it_comes(tmp_path):
    schema = pa.schema([("x", pa.float64())])
    table = new_table(tmp_path, schema)
    noise = np.random.default_rng(7)

    def rows():
        for _ in range(40):
            yield pa.record_batch({"x": noise.random(250_000)})

    before = pa.total_allocated_bytes()
    peaks = []
    watched = (batch for batch in rows() if not peaks.append(pa.total_allocated_bytes() - before))
    report = table.append(
        pa.RecordBatchReader.from_batches(schema, watched),
        target_file_bytes=8 * 2**20,
        write_memory_bytes=4 * 2**20,
    )

    assert report.rows_written == 10_000_000
    assert max(peaks) < 40 * 2**20  # of 80 MB
    sizes = sorted(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    # All but the last one are within a tenth of what was asked for.
    assert [size for size in sizes[1:] if abs(size / (8 * 2**20) - 1) > 0.1] == []


def test_rows_that_fail_half_way_leave_no_file(tmp_path):
    table = new_table(tmp_path)

    def rows():
        yield batch_of(list(range(1_000)))
        raise OSError("the source is gone")

    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows())
    with pytest.raises(OSError, match="the source is gone"):
        table.append(reader, target_file_bytes=2_000, row_group_rows=100)

    # Neither those that were complete nor the one that was open.
    assert [path.name for path in tmp_path.iterdir()] == ["_delta_log"]
    assert ids_in(tmp_path) == []


def test_partitions_of_every_type_are_read_as_they_were_written(tmp_path):
    columns = {
        "id": pa.array(range(4)),
        "s": ["a b", "ü/=%", "", None],
        "d": pa.array([0, 1, None, 2], pa.date32()),
        "t": pa.array([0, 1, 2, None], pa.timestamp("us", tz="UTC")),
        "b": [True, False, None, True],
    }
    data = pa.table(columns)
    table = new_table(tmp_path, data.schema, partition_by=["s", "d", "t", "b"])
    table.append(data)

    expected = data.set_column(1, "s", pa.array(["a b", "ü/=%", None, None]))
    assert table.to_arrow().sort_by("id").to_pylist() == expected.to_pylist()
    found = DeltaRsTable(str(tmp_path)).to_pyarrow_table().sort_by("id")
    assert found["s"].to_pylist() == ["a b", "ü/=%", None, None]


def test_values_that_look_like_paths_are_partitions_like_any_other(tmp_path):
    values = ["a/..", "a/../..", "../../..", "x/../y", "a\\..", "a%2F..", "..", ".", "a/.", "a\0b"]
    given = pa.table({"p": values, "n": pa.array(range(len(values)), pa.int64())})
    table = new_table(tmp_path / "t", given.schema, partition_by=["p"])
    table.append(given)
    readers = (table.to_arrow(), DeltaRsTable(str(tmp_path / "t")).to_pyarrow_table())
    for found in readers:
        assert found.sort_by("n")["p"].to_pylist() == values
    assert table.verify(proofs=False).outcome == "sound"
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


def test_many_partitions_take_no_more_memory_than_they_are_given(tmp_path):
    ids = list(range(4_000))
    data = pa.table({"id": ids, "part": [str(number % 200) for number in ids]})
    table = new_table(tmp_path, data.schema, **PARTS)

    report = table.append(data, write_memory_bytes=2**20)

    assert report.rows_written == 4_000
    assert ids_in(tmp_path) == ids
    assert table.snapshot().file_count >= 200


def test_a_part_of_the_table_is_overwritten_and_nothing_else(tmp_path):
    table = new_table(tmp_path, **PARTS)
    table.append(batch_of([0, 1, 2, 3, 4, 5]))

    report = table.overwrite(batch_of([30, 33]), where="part = 'p0'")

    assert ids_in(tmp_path) == [1, 2, 4, 5, 30, 33]
    assert (report.operation, report.files_removed, report.files_added) == ("overwrite", 1, 1)
    assert DeltaRsTable(str(tmp_path)).to_pyarrow_table().num_rows == 6


def test_rows_of_another_part_than_the_overwritten_one_are_refused(tmp_path):
    table = new_table(tmp_path, **PARTS)
    table.append(batch_of([0, 1]))

    with pytest.raises(ValidationError, match="1 of these rows do not fulfil"):
        table.overwrite(batch_of([3, 4]), where="part = 'p0'")
    with pytest.raises(PredicateError, match="cannot be evaluated"):
        table.overwrite(batch_of([0]), where="id % 2 = 0")

    assert ids_in(tmp_path) == [0, 1]
    assert len(list(tmp_path.rglob("part=*/*.parquet"))) == 2


def test_an_overwrite_takes_the_place_of_what_came_meanwhile_too(tmp_path, monkeypatch):
    table = new_table(tmp_path)
    table.append(batch_of([1]))
    commit = type(table._handle).commit

    def overtaken(handle, change, **options):
        monkeypatch.undo()
        lakehand.open_table(tmp_path).append(batch_of([2]))
        return commit(handle, change, **options)

    monkeypatch.setattr(type(table._handle), "commit", overtaken)
    report = table.overwrite(batch_of([9]))

    assert ids_in(tmp_path) == [9]
    assert report.files_removed == 2


def test_an_epoch_is_appended_once(tmp_path):
    table = new_table(tmp_path)
    for _ in range(2):
        report = table.append(batch_of([1]), writer_id="w", epoch=0)

    assert report.outcome == "nothing_to_do"
    assert ids_in(tmp_path) == [1]
    with pytest.raises(ValidationError, match="writer_id"):
        table.append(batch_of([1]), epoch=1)


def test_rows_may_not_be_overwritten_where_the_table_forbids_it(tmp_path):
    table = new_table(tmp_path, properties={"delta.appendOnly": "true"})
    table.append(batch_of([1]))

    with pytest.raises(RefusedError, match="appendOnly"):
        table.overwrite(batch_of([2]))

    assert ids_in(tmp_path) == [1]
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_nulls_that_the_table_forbids_are_refused(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = new_table(tmp_path, schema)
    with pytest.raises(SchemaMismatchError, match="'id' holds a null"):
        table.append(pa.table({"id": [1, None]}))

    table.append(pa.table({"id": [1]}))
    assert ids_in(tmp_path) == [1]


@pytest.mark.parametrize("properties", [{}, {"delta.enableRowTracking": "true"}])
def test_a_column_of_the_name_that_row_ids_have_here_is_refused_by_it(tmp_path, properties):
    rows = pa.table({"id": [1], "__lakehand_row_id": [7]})
    table = new_table(tmp_path, rows.schema, properties=properties)

    with pytest.raises(RefusedError, match="column '__lakehand_row_id', a name under which"):
        table.append(rows)

    assert not list(tmp_path.glob("*.parquet"))


def test_mapped_columns_are_written_under_their_physical_names(tmp_path):
    table = new_table(tmp_path, properties={"delta.columnMapping.mode": "name"}, **PARTS)
    table.append(batch_of([1, 2]))

    [add, _] = [line["add"] for line in last_commit(tmp_path) if "add" in line]
    physical = pq.ParquetFile(tmp_path / add["path"]).schema_arrow
    assert "id" not in physical.names
    assert all(b"PARQUET:field_id" in column.metadata for column in physical)
    assert list(json.loads(add["stats"])["minValues"]) == physical.names
    assert ids_in(tmp_path) == [1, 2]


def test_rows_get_ids_and_commits_times_where_tables_keep_them(tmp_path):
    properties = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
    table = new_table(tmp_path, properties=properties)
    table.append(batch_of([1, 2, 3]))
    table.append(batch_of([4]))

    lines = last_commit(tmp_path)
    [add] = [line["add"] for line in lines if "add" in line]
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (3, 2)
    assert "inCommitTimestamp" in lines[0]["commitInfo"]


def test_an_overwrite_takes_deletion_vectors_along(tmp_path):
    table = new_table(tmp_path, properties={"delta.enableDeletionVectors": "true"})
    table.append(batch_of([1, 2, 3]))
    table.delete(where="id = 2", engine="local")
    assert ids_in(tmp_path) == [1, 3]

    table.overwrite(batch_of([7]))

    assert ids_in(tmp_path) == [7]
    assert [line for line in last_commit(tmp_path) if "deletionVector" in line.get("remove", {})]


def test_columns_get_bloom_filters_that_other_engines_use(tmp_path):
    new_table(tmp_path).append(
        batch_of(list(range(0, 2_000, 2))), bloom_columns="id", codec="snappy"
    )

    [file] = tmp_path.glob("*.snappy.parquet")
    probe = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{file}', 'id', ?)"
    assert duckdb.execute(probe, [500]).fetchall() == [(False,)]
    assert duckdb.execute(probe, [501]).fetchall() == [(True,)]


def test_a_sink_can_be_awaited(tmp_path):
    async def write() -> int | None:
        async with AsyncTableSink(tmp_path, writer_id="w") as sink:
            for number in range(3):
                await sink.begin_epoch(number)
                assert await sink.write(batch_of([number])) == 1
                await sink.commit_epoch()
            return sink.last_committed_epoch

    assert asyncio.run(write()) == 2
    assert ids_in(tmp_path) == [0, 1, 2]
