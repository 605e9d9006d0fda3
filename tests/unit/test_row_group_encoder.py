"""Row groups in memory: kept for the next one, and never mixed up with it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.parquet.checksums import pages_are_intact
from lakehand.parquet.dictionaries import unify_dictionaries, without_dictionaries
from lakehand.parquet.rolling_writer import ParquetLayout, RowGroupEncoder

LAYOUT = ParquetLayout(target_file_bytes=2**30)


def numbers(first, count=10_000):
    return pa.table({"number": pa.array(range(first, first + count), pa.int64())})


def decoded(group):
    return pq.read_table(pa.BufferReader(group.content))


def test_memory_of_a_row_group_that_is_written_takes_the_next():
    encoder = RowGroupEncoder(numbers(0).schema, LAYOUT)
    first = encoder.encode(numbers(0))
    beside = encoder.encode(numbers(5))
    assert decoded(first).equals(numbers(0))

    encoder.reuse(first)
    second = encoder.encode(numbers(9))

    assert second.content.address == first.content.address != beside.content.address
    assert decoded(second).equals(numbers(9))
    assert decoded(beside).equals(numbers(5))


def test_a_row_group_larger_than_it_was_thought_to_be_is_whole():
    """The layout promises row groups of a byte; memory is for twice that, and some spare."""
    rows = pa.table({"noise": pa.array([str(i**7) * 20 for i in range(20_000)])})
    layout = ParquetLayout(target_file_bytes=2**30, row_group_bytes=1, codec="none")

    group = RowGroupEncoder(rows.schema, layout).encode(rows)

    assert group.room is None
    assert group.content.size > 2**20
    assert decoded(group).equals(rows)


def test_filters_stay_where_they_are():
    layout = ParquetLayout(target_file_bytes=2**30, bloom_columns=("number",))

    group = RowGroupEncoder(numbers(0).schema, layout).encode(numbers(0))

    assert group.room is None


def test_texts_of_several_dictionaries_become_plain():
    one = pa.array(["a", "b"]).dictionary_encode()
    other = pa.array(["b", "a", None]).dictionary_encode()
    same, mixed = pa.chunked_array([one, one]), pa.chunked_array([one, other])
    rows = pa.table({"mixed": mixed}).append_column("same", pa.chunked_array([one, one, one[:1]]))

    found = unify_dictionaries(rows)

    assert found.schema.types == [pa.string(), same.type]
    assert found.to_pylist() == rows.to_pylist()
    assert without_dictionaries(rows).schema.types == [pa.string(), pa.string()]


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_changed_page_is_seen_where_pages_have_checksums(tmp_path, has_checksums):
    path = tmp_path / "a.parquet"
    pq.write_table(numbers(0), path, write_page_checksum=has_checksums)
    assert pages_are_intact(path)

    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(0).column(0).data_page_offset + 500] ^= 1
    path.write_bytes(data)

    assert pages_are_intact(path) is not has_checksums
