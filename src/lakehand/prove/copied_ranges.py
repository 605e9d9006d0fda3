"""Proofs that row groups were copied byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from lakehand.errors import CorruptFileError, ProofError
from lakehand.model.work import Proof
from lakehand.parquet.checksums import crc32, read_blocks, read_ranges
from lakehand.parquet.footer import ChunkField, ColumnField, chunk_range, chunks, field, read_footer
from lakehand.parquet.row_group_copy import Copied, CopiedRange, page_locations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.parquet.footer import Footer
    from lakehand.parquet.thrift import Struct
    from lakehand.storage import Store

ALGORITHM = "lakehand-ranges-1"
ENGINE = "crc32"
COMPOSED_ALGORITHM, COMPOSED_ENGINE = "lakehand-objects-1", "crc64nvme"


def prove_copied(store: Store, key: str, copied: Copied, *, expected_rows: int) -> Proof:
    """Read a copied file back and return the proof that it holds the bytes of its sources.

    Every range has the checksum computed at its source, indexes and footer are those made for the
    file, the footer has `expected_rows`, and page locations cover their column chunks without gaps.
    Raises ProofError otherwise.
    """
    try:
        return _prove(store, key, copied, expected_rows)
    except CorruptFileError as error:
        _fail(key, error.message)


def _prove(store: Store, key: str, copied: Copied, expected_rows: int) -> Proof:
    footer = read_footer(store, key)
    if footer.rows != expected_rows:
        _fail(key, f"its footer has {footer.rows} rows, but {expected_rows} were copied")
    _check_bytes(store, key, (*copied.ranges, copied.tail))
    _check_chunks(key, footer, copied)
    _check_page_locations(store, key, footer)
    if copied.composition is not None:
        # The bytes that the store moved are compared for all files of a group at once.
        stored = copied.composition.stored
        return Proof(
            kind="checksums",
            rows=expected_rows,
            digest=f"{stored.crc64:016x}",
            bytes=stored.bytes,
            algorithm=COMPOSED_ALGORITHM,
            engine=COMPOSED_ENGINE,
        )
    checksum = 0
    for piece in copied.ranges:
        checksum = crc32(piece.crc.to_bytes(4), checksum)
    return Proof(
        kind="ranges",
        rows=expected_rows,
        digest=f"{checksum:08x}",
        bytes=sum(piece.length for piece in copied.ranges),
        algorithm=ALGORITHM,
        engine=ENGINE,
    )


def _check_bytes(store: Store, key: str, pieces: Sequence[CopiedRange]) -> None:
    """Compare the stored bytes with checksums that were computed before they were written."""
    read_here = [piece for piece in pieces if not piece.is_moved]
    blocks = read_blocks(store, key, [(piece.start, piece.length) for piece in read_here])
    for piece in read_here:
        crc, left = 0, piece.length
        while left:
            block = next(blocks)
            crc = crc32(block, crc)
            left -= len(block)
        if crc != piece.crc:
            _fail(key, f"the bytes at offset {piece.start} differ from their source")


def _check_chunks(key: str, footer: Footer, copied: Copied) -> None:
    """Check that the column chunks of the footer are exactly the copied ranges."""
    spans = [chunk_range(chunk) for group in footer.row_groups for chunk in chunks(group)]
    at = iter(sorted(spans))
    for piece in sorted(copied.ranges, key=lambda piece: piece.start):
        position = piece.start
        while position < piece.start + piece.length:
            start, length = next(at, (-1, 0))
            if start != position:
                _fail(key, f"no column chunk starts at offset {position}, where one was copied")
            position += length
    if next(at, None) is not None:
        _fail(key, "its footer has a column chunk that was not copied")


def _check_page_locations(store: Store, key: str, footer: Footer) -> None:
    indexed = [
        chunk
        for group in footer.row_groups
        for chunk in chunks(group)
        if ChunkField.OFFSET_INDEX in chunk
    ]
    byte_ranges = [
        (field(chunk, ChunkField.OFFSET_INDEX), field(chunk, ChunkField.OFFSET_INDEX_BYTES))
        for chunk in indexed
    ]
    blobs = read_ranges(store, key, byte_ranges)
    for chunk, byte_range in zip(indexed, byte_ranges, strict=True):
        _check_tiling(key, chunk, blobs[byte_range])


def _check_tiling(key: str, chunk: Struct, offset_index: bytes) -> None:
    start, length = chunk_range(chunk)
    position = field(field(chunk, ChunkField.METADATA), ColumnField.DATA_PAGE)
    for offset, size in page_locations(offset_index):
        if offset != position:
            _fail(key, f"its page index has a page at offset {offset}, expected {position}")
        position += size
    if position != start + length:
        _fail(key, f"its page index ends at {position}, its chunk at {start + length}")


def _fail(key: str, difference: str) -> NoReturn:
    raise ProofError(
        f"{key} was not copied correctly: {difference}; nothing was changed",
        hint="this is a bug in lakehand or a storage error: report it, and verify the table",
        path=key,
    )
