"""Files of the wanted size, with healthy row groups, that every engine reads alike."""

from __future__ import annotations

import gc
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.parquet.rolling_writer import ParquetLayout, RollingWriter
from lakehand.storage import open_store

MIB = 2**20
SCHEMA = pa.schema({"id": pa.int64(), "noise": pa.int64()})


def noise(rows: int, *, seed: int = 1) -> pa.Table:
    """Rows that do not compress: about 16 bytes each."""
    values = np.random.default_rng(seed).integers(0, 2**62, size=(2, rows))
    return pa.table({"id": values[0], "noise": values[1]}, schema=SCHEMA)


def write(store, table: pa.Table, *, batch_rows: int = 1000, **layout):
    layout = ParquetLayout(**{"target_file_bytes": MIB, **layout})
    batches = table.to_batches(max_chunksize=batch_rows)
    return write_batches(store, batches, layout, schema=table.schema)


def write_batches(store, batches, layout: ParquetLayout, *, schema: pa.Schema = SCHEMA):
    name = "file-{}.parquet".format
    with RollingWriter(store, schema, layout, name=name) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def read(store, file) -> pq.ParquetFile:
    return pq.ParquetFile(store.open_reader(file.key))


@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_is_written_once_and_in_order(store, threads):
    table = noise(200_000)

    files = write(store, table, threads=threads)

    assert pa.concat_tables([read(store, file).read() for file in files]).equals(table)
    assert [file.rows for file in files] == [read(store, f).metadata.num_rows for f in files]
    assert [file.bytes for file in files] == [store.head(file.key).bytes for file in files]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("known", [{}, {"expected_rows": 400_000, "expected_bytes_per_row": 30.0}])
def test_files_roll_within_ten_percent_of_the_target(store, known, threads):
    files = write(store, noise(400_000), threads=threads, **known)

    assert len(files) >= 5
    assert all(0.9 <= file.bytes / MIB <= 1.1 for file in files[:-1])


def test_a_wrong_expectation_spoils_the_first_file_only(store):
    files = write(store, noise(400_000), expected_rows=10, expected_bytes_per_row=1.0)

    assert sum(file.rows for file in files) == 400_000
    assert all(0.9 <= file.bytes / MIB <= 1.1 for file in files[1:-1])


def test_a_crumb_goes_into_the_file_before_it(store):
    [file] = write(store, noise(68_000), expected_rows=68_000)

    assert 1.02 < file.bytes / MIB < 1.1


def test_small_batches_are_gathered_into_row_groups(store):
    [file] = write(
        store, noise(30_000), batch_rows=10, target_file_bytes=64 * MIB, row_group_rows=20_000
    )

    groups = read(store, file).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [20_000, 10_000]


def test_a_row_group_is_bounded_by_its_bytes(store):
    [file] = write(store, noise(100_000), target_file_bytes=64 * MIB, row_group_bytes=MIB // 4)

    groups = read(store, file).metadata
    sizes = [groups.row_group(i).total_byte_size for i in range(groups.num_row_groups)]
    assert len(sizes) > 3
    assert max(sizes) < MIB // 2


def test_no_rows_make_no_file(store):
    assert write(store, noise(0)) == ()
    assert list(store.list()) == []


def test_a_failure_leaves_no_half_file(store):
    def broken():
        yield from noise(1000).to_batches()
        raise RuntimeError("the source failed")

    layout = ParquetLayout(target_file_bytes=64 * MIB, row_group_rows=100)
    with (
        pytest.raises(RuntimeError, match="source"),
        RollingWriter(store, SCHEMA, layout, name=lambda _: "x.parquet") as writer,
    ):
        list(map(writer.write, broken()))
    del writer
    gc.collect()

    assert list(store.list()) == []


def test_footer_tells_what_readers_rely_on(store):
    schema = pa.schema(
        [
            pa.field("d", pa.decimal128(9, 2), metadata={"PARQUET:field_id": "7"}),
            pa.field("t", pa.timestamp("us", tz="UTC")),
            pa.field("tags", pa.list_(pa.field("item", pa.string()))),
        ]
    )
    table = pa.table({"d": [Decimal("1.25")], "t": [0], "tags": [["a", None]]}, schema=schema)

    [file] = write(store, table, codec="snappy", key_values={"org.apache.spark.version": "4.0.0"})

    parquet = read(store, file)
    text = str(parquet.schema)
    assert "optional int32 field_id=7 d (Decimal(precision=9, scale=2))" in text
    assert "timeUnit=microseconds" in text
    assert "repeated group" in text
    assert "element" in text
    metadata = parquet.metadata
    assert metadata.metadata == {b"org.apache.spark.version": b"4.0.0"}
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert metadata.row_group(0).column(0).has_column_index


def test_watchers_see_the_rows_of_each_file(store):
    seen: dict[int, int] = {}
    table = noise(150_000)
    layout = ParquetLayout(target_file_bytes=MIB)

    def watch(index: int, rows: pa.Table) -> None:
        seen[index] = seen.get(index, 0) + rows.num_rows

    with RollingWriter(store, SCHEMA, layout, name=str, watch=watch) as writer:
        for batch in table.to_batches(max_chunksize=7_000):
            writer.write(batch)
        files = writer.close()

    assert list(seen.values()) == [file.rows for file in files]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(0, 60_000),
    target=st.integers(50_000, 400_000),
    expected=st.one_of(st.none(), st.integers(0, 80_000)),
    threads=st.integers(1, 3),
)
def test_no_row_is_lost_whatever_is_expected(tmp_path_factory, rows, target, expected, threads):
    store = open_store(tmp_path_factory.mktemp("rolling"))
    table = noise(rows)
    known = {"target_file_bytes": target, "expected_rows": expected, "threads": threads}

    files = write(store, table, batch_rows=777, **known)

    assert sum(file.rows for file in files) == rows
    tables = [SCHEMA.empty_table(), *(read(store, file).read() for file in files)]
    assert pa.concat_tables(tables).equals(table)


def growing(rows: int) -> pa.Table:
    """Rows of 16 bytes at first and of 200 at the end."""
    ends = np.cumsum(np.linspace(16, 200, rows).astype(int))
    data = np.random.default_rng(1).bytes(ends[-1])
    return pa.table({"bytes": [data[start:end] for start, end in pairwise(ends)]})


def test_files_roll_at_the_target_although_rows_grow(store):
    files = write(store, growing(100_000), batch_rows=500, threads=3, row_group_rows=1000)

    assert len(files) >= 5
    assert all(0.9 <= file.bytes / MIB <= 1.1 for file in files[:-1])


def fail_after(batches):
    yield from batches
    raise RuntimeError("no more rows")


def test_a_failure_while_row_groups_are_encoded_leaves_no_file(store):
    layout = ParquetLayout(target_file_bytes=MIB, row_group_rows=1000, threads=3, codec="none")
    batches = fail_after(noise(20_000).to_batches(max_chunksize=500))

    with pytest.raises(RuntimeError, match="no more rows"):
        write_batches(store, batches, layout)
    gc.collect()

    assert list(store.list()) == []


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_columns_get_a_dictionary_where_it_is_a_gain(store, codec):
    random = np.random.default_rng(1)
    words = random.choice(["red", "green", "blue"], size=300_000)
    table = noise(300_000)
    table = table.append_column("word", pa.array(words))
    table = table.append_column("words", pa.array([["red", "blue"]] * 300_000))
    table = table.append_column("run", pa.array(np.arange(300_000) // 4 * 12_345))
    table = table.append_column("nothing", pa.nulls(300_000, pa.int64()))
    big = {"target_file_bytes": 64 * MIB, "row_group_rows": 100_000, "codec": codec}

    [file] = write(store, table, **big)

    groups = [read(store, file).metadata.row_group(n) for n in range(3)]
    encodings = [["DICTIONARY" in str(g.column(n).encodings) for n in range(6)] for g in groups]
    is_worth_it = {"id": False, "noise": False, "word": True, "words": True, "run": False}
    assert encodings == [[*is_worth_it.values(), True]] * 3
    assert read(store, file).read().equals(table)
