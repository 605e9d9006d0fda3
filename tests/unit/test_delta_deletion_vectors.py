from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import replace

import pytest
from pyroaring import BitMap, BitMap64

from lakehand.errors import CorruptFileError, RefusedError
from lakehand.formats.delta.deletion_vectors.format import (
    DvDescriptor,
    read_deletion_vector,
    write_deletion_vectors,
    z85_encode,
)
from lakehand.storage import MemoryStore, open_store

ROWS = [3, 4, 7, 11, 18, 29]
DATA = bytes.fromhex(
    "d1d33964 0100000000000000 00000000"
    "3a300000 01000000 00000500 10000000 0300 0400 0700 0b00 1200 1d00"
)
INLINE = DvDescriptor(
    storage_type="i",
    path_or_inline="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_bytes=44,
    cardinality=6,
)
_names = itertools.count()


@pytest.fixture
def store():
    return MemoryStore(f"vectors-{next(_names)}")


def test_an_inline_vector_is_read(store):
    assert list(read_deletion_vector(store, INLINE, rows=30)) == ROWS


def test_the_name_of_a_vector_file_is_decoded():
    descriptor = DvDescriptor(
        storage_type="u",
        path_or_inline="ab^-aqEH.-t@S}K{vb[*k^",
        offset=1,
        size_bytes=44,
        cardinality=6,
    )
    assert descriptor.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert DvDescriptor.from_json(descriptor.to_json()) == descriptor


def test_a_descriptor_keeps_whether_it_states_an_offset():
    assert "offset" not in INLINE.to_json()
    assert replace(INLINE, offset=0).to_json()["offset"] == 0


def test_vectors_share_one_file_and_are_read_back(store):
    vectors = [BitMap64(ROWS), BitMap64([0, 2**33 + 5]), BitMap64()]
    descriptors = write_deletion_vectors(store, vectors)

    assert {d.storage_type for d in descriptors} == {"u"}
    assert len({d.path for d in descriptors}) == 1
    assert [d.offset for d in descriptors][:2] == [1, 1 + 44 + 8]
    assert [read_deletion_vector(store, d) for d in descriptors] == vectors
    written = store.get(descriptors[0].path)
    assert written[:49] == b"\x01" + struct.pack(">i", 44) + DATA


def test_no_vectors_write_no_file(store):
    assert write_deletion_vectors(store, []) == []
    assert list(store.list()) == []


def test_a_vector_far_into_a_file_is_read(store):
    vectors = [BitMap64(range(0, 200_000, 2)), BitMap64(ROWS)]
    far = write_deletion_vectors(store, vectors)[1]
    assert read_deletion_vector(store, replace(far, offset=far.offset)) == vectors[1]


def test_an_absolute_vector_is_read(tmp_path):
    written = write_deletion_vectors(open_store(tmp_path / "a b"), [BitMap64(ROWS)])[0]
    place = f"file://{tmp_path}/a%20b/{written.path}"
    absolute = replace(written, storage_type="p", path_or_inline=place)

    assert list(read_deletion_vector(open_store(tmp_path / "table"), absolute)) == ROWS


def test_the_layout_of_the_first_tables_is_read(store):
    low, high = BitMap(ROWS).serialize(), BitMap([1]).serialize()
    data = struct.pack("<II", 1681511376, 2)
    data += struct.pack("<I", len(low)) + low + struct.pack("<I", len(high)) + high
    assert list(read_deletion_vector(store, inline(data, cardinality=7))) == [*ROWS, 2**32 + 1]


def inline(data: bytes, *, cardinality: int) -> DvDescriptor:
    return DvDescriptor(
        storage_type="i",
        path_or_inline=z85_encode(data),
        size_bytes=len(data),
        cardinality=cardinality,
    )


@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        (replace(INLINE, cardinality=5), "holds 6 rows where the log says 5"),
        (replace(INLINE, size_bytes=40), "has 44 bytes where the log says 40"),
        (replace(INLINE, path_or_inline="~~~~~"), "is no Z85 character"),
        (replace(INLINE, path_or_inline="abc"), "no whole number"),
        (replace(INLINE, path_or_inline="#####"), "more than four bytes"),
        (inline(b"ab", cardinality=0), "too short"),
        (inline(DATA[:30], cardinality=6), "bitmap cannot be read"),
        (inline(DATA[:4], cardinality=6), "bitmap cannot be read"),
        (inline(bytes.fromhex("6439d3d0") + DATA[4:], cardinality=6), "its magic number is"),
        (inline(struct.pack("<III", 1681511376, 1, 99), cardinality=1), "ends behind the data"),
        (inline(struct.pack("<I", 1681511376), cardinality=1), "bitmap cannot be read"),
    ],
)
def test_an_inline_vector_that_cannot_be_trusted_is_refused(store, descriptor, reason):
    with pytest.raises(CorruptFileError, match=reason):
        read_deletion_vector(store, descriptor)


def test_a_vector_beyond_the_end_of_the_data_file_is_refused(store):
    with pytest.raises(CorruptFileError, match="deletes row 29 of a file with 29 rows"):
        read_deletion_vector(store, INLINE, rows=29)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: b"\x02" + file[1:], "version is 02"),
        (lambda file: b"", "version is missing"),
        (lambda file: file[:20] + b"\xff" + file[21:], "checksum"),
        (lambda file: file[:-2], "ends after 50 of 52 bytes"),
        (lambda file: file[:4] + b"\x2b" + file[5:], "has 43 bytes where the log says 44"),
    ],
)
def test_a_damaged_vector_file_is_refused(store, damage, reason):
    descriptor = write_deletion_vectors(store, [BitMap64(ROWS)])[0]
    store.put(descriptor.path, damage(store.get(descriptor.path)))

    with pytest.raises(CorruptFileError, match=reason) as caught:
        read_deletion_vector(store, descriptor)
    assert caught.value.path == descriptor.path
    assert caught.value.hint


def test_a_missing_vector_file_is_named(store):
    descriptor = write_deletion_vectors(store, [BitMap64(ROWS)])[0]
    store.delete([descriptor.path])
    with pytest.raises(CorruptFileError, match=r"deletion_vector_.*the file is missing"):
        read_deletion_vector(store, descriptor)


def test_a_name_that_is_no_identifier_is_refused(store):
    with pytest.raises(CorruptFileError, match="cannot be decoded"):
        read_deletion_vector(store, replace(INLINE, storage_type="u", path_or_inline="short"))


def test_an_unknown_kind_of_storage_is_refused(store):
    with pytest.raises(RefusedError, match="storage type 'r'"):
        read_deletion_vector(store, replace(INLINE, storage_type="r"))


def test_the_checksum_is_that_of_the_data(store):
    descriptor = write_deletion_vectors(store, [BitMap64(ROWS)])[0]
    assert store.get(descriptor.path)[-4:] == struct.pack(">I", zlib.crc32(DATA))
