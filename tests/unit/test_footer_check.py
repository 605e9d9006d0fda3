"""A footer that passes the check is one that Arrow can be asked about; any other is typed."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import CorruptFileError, RefusedError
from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    FileField,
    FooterError,
    check_footer,
    chunks,
    parse_footer,
    split_footer,
)
from lakehand.parquet.footer_facts import read_facts, read_facts_and_size
from lakehand.parquet.thrift import BINARY, I32, I64, LIST, ThriftError, decode
from lakehand.storage.memory import MemoryStore
from support.flipped_bits import flips
from support.forks import run_forked

ROWS = pa.table(
    {
        "id": pa.array(range(20), pa.int32()),
        "tags": [[f"tag {i % 3}"] * (i % 3) for i in range(20)],
    }
)


def file_of(rows: pa.Table = ROWS, **options) -> bytes:
    sink = io.BytesIO()
    usual = {
        "row_group_size": 12,
        "compression": "zstd",
        "write_page_index": True,
        "store_schema": False,
    }
    pq.write_table(rows, sink, **usual | options)
    return sink.getvalue()


def passes(data: bytes) -> bool:
    try:
        parse_footer(split_footer(data), path="a file", file_bytes=len(data))
    except (CorruptFileError, RefusedError):
        return False
    return True


def ask_arrow_about_all_that_pass(files: list[bytes]) -> None:
    for data in files:
        try:
            metadata = pq.read_metadata(pa.BufferReader(data))
            _ = metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError):
            continue
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                _ = chunk.compression, chunk.encodings, chunk.total_compressed_size
                if chunk.physical_type != "FIXED_LEN_BYTE_ARRAY" and chunk.is_stats_set:
                    _ = chunk.statistics.min_raw, chunk.statistics.max_raw


def test_arrow_survives_every_flipped_bit_that_passes():
    found = [data for data in flips(file_of()) if passes(data)]
    done = run_forked(ask_arrow_about_all_that_pass, found)

    assert 0 < len(found) < len(list(flips(file_of()))) * 0.7
    assert done.returncode == 0, done.said


@pytest.mark.parametrize("read", [read_facts, read_facts_and_size])
def test_every_flipped_bit_is_a_typed_error_where_only_the_footer_is_read(read):
    done = run_forked(read_flips, read, list(flips(file_of(), stride=3)))

    assert done.returncode == 0, done.said


def read_flips(read, files: list[bytes]) -> None:
    for data in files:
        store = MemoryStore()
        store.put("a.parquet", data)
        with suppress(CorruptFileError):
            read(store, "a.parquet")


def test_footers_of_usual_writers_pass():
    options = [
        {"version": "1.0", "use_dictionary": False},
        {"data_page_version": "2.0", "compression": "zstd", "store_schema": False},
        {"sorting_columns": [pq.SortingColumn(0)], "write_page_checksum": True},
        {"use_deprecated_int96_timestamps": True, "write_statistics": False},
    ]
    assert all(passes(file_of(**option)) for option in options)
    assert passes(file_of(ROWS.slice(0, 0)))
    assert passes(file_of(pa.table({"a": pa.nulls(3), "b": pa.array([b"12"] * 3, pa.binary(2))})))


def chunk_field(number: int, kind: int, value):
    def change(meta):
        chunks(meta[FileField.ROW_GROUPS][1][1][0])[0][ChunkField.METADATA][1][number] = kind, value

    return change


def histogram(meta):
    sizes = chunks(meta[FileField.ROW_GROUPS][1][1][0])[0][ChunkField.METADATA][1]
    sizes[ColumnField.SIZE_STATISTICS] = 12, {3: (LIST, (I64, [1, 2, 3]))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (chunk_field(ColumnField.CODEC, I32, 9), "unknown codec"),
        (chunk_field(ColumnField.TYPE, I32, 2), "different type"),
        (chunk_field(ColumnField.VALUES, I64, 11), "11 values in 12 rows"),
        (chunk_field(ColumnField.DATA_PAGE, I64, 2**40), "outside the file"),
        (chunk_field(ColumnField.COMPRESSED_BYTES, I64, -5), "outside the file"),
        (chunk_field(ColumnField.COMPRESSED_BYTES, BINARY, b""), "cannot be decoded"),
        (chunk_field(ColumnField.STATISTICS, 12, {5: (BINARY, b"12345")}), "has 5 bytes"),
        (histogram, "histogram of 3 levels"),
        (lambda meta: meta.update({FileField.ROWS: (I64, 21)}), "do not add up"),
        (lambda meta: meta.update({FileField.SCHEMA: (I64, 21)}), "wire type 6"),
        (lambda meta: meta[FileField.SCHEMA][1][1].pop(), "fewer elements"),
        (lambda meta: meta[FileField.SCHEMA][1][1].clear(), "no schema"),
    ],
)
def test_what_no_writer_writes_is_named(change, message):
    data = file_of()
    meta, _ = decode(split_footer(data))
    check_footer(meta, file_bytes=len(data))
    change(meta)

    with pytest.raises(FooterError, match=message):
        check_footer(meta, file_bytes=len(data))


@pytest.mark.parametrize("data", [b"\x19" * 5000, b"\x1c" * 5000, b"\x16" + b"\xff" * 20 + b"\1\0"])
def test_bytes_that_nest_or_go_on_without_end_are_no_thrift(data):
    with pytest.raises(ThriftError):
        decode(data)
