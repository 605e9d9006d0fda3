"""A page that changed after it was written is not copied, where its writer left a checksum."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import CorruptFileError, ProofError
from lakehand.parquet import checksums
from lakehand.parquet.footer import chunk_range, chunks, read_footer
from lakehand.parquet.row_group_copy import Source, copy_row_groups
from lakehand.parquet.thrift import decode, encode
from lakehand.prove.copied_ranges import prove_copied
from lakehand.storage import open_store

ROWS = 3_000


def _write(path, *, checksums: bool, version: str = "1.0") -> None:
    rows = pa.table({"id": range(ROWS), "name": [f"name {n % 50}" for n in range(ROWS)]})
    pq.write_table(
        rows,
        path / "in.parquet",
        row_group_size=1_000,
        max_rows_per_page=100,
        write_page_checksum=checksums,
        data_page_version=version,
        write_page_index=True,
    )


def _copy(path):
    store = open_store(path)
    source = Source.stored(store, "in.parquet")
    with store.open_writer("out.parquet") as sink:
        copied = copy_row_groups([source], sink, created_by="lakehand", key_values={})
    return store, copied


def _flip(file, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def _chunk_ends(path) -> list[tuple[int, int]]:
    footer = read_footer(open_store(path), "in.parquet")
    spans = [chunk_range(chunk) for group in footer.row_groups for chunk in chunks(group)]
    return [(start, start + length) for start, length in spans]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("block_bytes", [7, 1_000, 2**20])
def test_intact_pages_are_copied_however_their_bytes_come(
    tmp_path, monkeypatch, version, block_bytes
):
    monkeypatch.setattr(checksums, "_LOCAL_BLOCK_BYTES", block_bytes)
    _write(tmp_path, checksums=True, version=version)

    store, copied = _copy(tmp_path)

    assert prove_copied(store, "out.parquet", copied, expected_rows=ROWS).rows == ROWS
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(tmp_path / "in.parquet")


@pytest.mark.parametrize("number", [0, 3, -1])
@pytest.mark.parametrize("block_bytes", [100, 2**20])
def test_a_flipped_bit_in_any_page_is_found_while_it_is_copied(
    tmp_path, monkeypatch, number, block_bytes
):
    monkeypatch.setattr(checksums, "_LOCAL_BLOCK_BYTES", block_bytes)
    _write(tmp_path, checksums=True)
    _flip(tmp_path / "in.parquet", _chunk_ends(tmp_path)[number][1] - 1)

    with pytest.raises(CorruptFileError, match=r"in.parquet is corrupt before byte \d+: a page"):
        _copy(tmp_path)

    assert not (tmp_path / "out.parquet").exists()


def test_a_page_header_that_lies_about_its_size_is_found(tmp_path):
    _write(tmp_path, checksums=True)
    start = _chunk_ends(tmp_path)[-1][0]
    header, _ = decode((tmp_path / "in.parquet").read_bytes(), start)
    before_size = encode({field: header[field] for field in (1, 2)})
    _flip(tmp_path / "in.parquet", start + len(before_size))

    with pytest.raises(CorruptFileError, match="is corrupt"):
        _copy(tmp_path)


def test_pages_without_checksums_are_copied_as_they_are(tmp_path):
    _write(tmp_path, checksums=False)
    _flip(tmp_path / "in.parquet", _chunk_ends(tmp_path)[0][1] - 1)

    store, copied = _copy(tmp_path)

    assert prove_copied(store, "out.parquet", copied, expected_rows=ROWS).rows == ROWS


def test_an_index_that_changed_after_it_was_written_is_caught(tmp_path):
    _write(tmp_path, checksums=True)
    store, copied = _copy(tmp_path)
    _flip(tmp_path / "out.parquet", copied.tail.start + 10)

    with pytest.raises(ProofError, match="differ"):
        prove_copied(store, "out.parquet", copied, expected_rows=ROWS)
