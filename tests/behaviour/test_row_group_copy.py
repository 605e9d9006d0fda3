"""Row groups moved byte for byte are the same rows to every reader, page indexes included."""

from __future__ import annotations

import struct
from datetime import date

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.parquet import row_group_copy
from lakehand.parquet.footer import (
    TRAILER_BYTES,
    ChunkField,
    ColumnField,
    StatisticsField,
    chunks,
    field,
    read_footer,
)
from lakehand.parquet.row_group_copy import Source, copy_row_groups
from lakehand.parquet.thrift import decode, encode
from lakehand.storage import open_store


def _rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"name-{n % 17}" if n % 5 else None for n in numbers],
            "tags": [[n, None] if n % 3 else [] for n in numbers],
            "day": [date(2026, 1, 1 + n % 28) for n in numbers],
        }
    )


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    # What follows the pages is written in many pieces, as it is in large files.
    monkeypatch.setattr(row_group_copy, "_TAIL_PIECE_BYTES", 1_000)
    for number, start in enumerate((0, 4_000, 9_000)):
        pq.write_table(
            _rows(start, 3_000),
            tmp_path / f"in-{number}.parquet",
            row_group_size=1_000,
            write_page_index=True,
            max_rows_per_page=100,
            bloom_filter_options={"id": {"ndv": 1_000, "fpp": 0.01}},
        )
    return open_store(tmp_path)


def _copy(store) -> str:
    keys = [f"in-{number}.parquet" for number in range(3)]
    sources = [Source.stored(store, key) for key in keys]
    with store.open_writer("out.parquet") as sink:
        copied = copy_row_groups(sources, sink, created_by="lakehand", key_values={"a": "b"})
    assert (copied.rows, copied.row_groups) == (9_000, 9)
    return str(store.local_path("out.parquet"))


def _expected() -> pa.Table:
    return pa.concat_tables(_rows(start, 3_000) for start in (0, 4_000, 9_000))


def test_pyarrow_reads_the_same_rows_in_the_same_order(inputs):
    assert pq.read_table(_copy(inputs)) == _expected()


def test_duckdb_reads_the_same_rows_and_its_bloom_filters_answer(inputs):
    path = _copy(inputs)
    with duckdb.connect() as connection:
        rows = connection.sql(f"FROM read_parquet('{path}')").to_arrow_table()
        probe = connection.execute(
            "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'id', 4500)", [path]
        ).fetchall()
    assert rows.cast(_expected().schema) == _expected()
    assert probe[3] == (False,)
    assert sum(excluded for (excluded,) in probe) >= 7


def test_a_reader_that_uses_page_indexes_finds_single_rows(inputs):
    context = datafusion.SessionContext()
    context.register_parquet("out", _copy(inputs))
    for wanted in (0, 2_999, 4_000, 9_555, 11_999):
        found = context.sql(f"SELECT id, name FROM out WHERE id = {wanted}").to_pylist()
        name = f"name-{wanted % 17}" if wanted % 5 else None
        assert found == [{"id": wanted, "name": name}]


def test_copied_ranges_carry_the_checksum_of_their_bytes(inputs):
    from zlib import crc32

    keys = [f"in-{number}.parquet" for number in range(3)]
    sources = [Source.stored(inputs, key) for key in keys]
    with inputs.open_writer("out.parquet") as sink:
        copied = copy_row_groups(sources, sink, created_by="lakehand", key_values={})
    for piece in (*copied.ranges, copied.tail):
        data = inputs.get_range("out.parquet", start=piece.start, length=piece.length)
        assert crc32(data) == piece.crc


def test_bounds_are_kept_once_and_readers_find_them(inputs):
    footers = [
        read_footer(inputs, key) for key in ("in-0.parquet", _copy(inputs) and "out.parquet")
    ]
    before, after = (
        field(field(chunks(footer.row_groups[0])[0], ChunkField.METADATA), ColumnField.STATISTICS)
        for footer in footers
    )
    old = {StatisticsField.OLD_MIN, StatisticsField.OLD_MAX}
    assert old <= before.keys()
    assert after == {key: before[key] for key in before.keys() - old}
    statistics = pq.ParquetFile(inputs.local_path("out.parquet")).metadata.row_group(3).column(0)
    assert (statistics.statistics.min, statistics.statistics.max) == (4_000, 4_999)


def test_footers_encode_back_to_their_own_bytes(inputs):
    data = inputs.get("in-0.parquet")
    (length,) = struct.unpack("<I", data[-TRAILER_BYTES:-4])
    footer = data[-TRAILER_BYTES - length : -TRAILER_BYTES]
    decoded, end = decode(footer)
    assert (encode(decoded), end) == (footer, length)
