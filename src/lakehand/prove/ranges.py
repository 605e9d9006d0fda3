"""Evidence that row groups moved byte for byte arrived as they left."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn
from zlib import crc32

from lakehand.errors import ProofError
from lakehand.model.work import Proof
from lakehand.parquet.copy import BLOCK_BYTES
from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    chunk_range,
    chunks,
    elements,
    field,
    read_footer,
)
from lakehand.parquet.thrift import decode

if TYPE_CHECKING:
    from lakehand.parquet.copy import Copied, CopiedRange
    from lakehand.parquet.footer import Footer
    from lakehand.parquet.thrift import Struct
    from lakehand.storage import Store

__all__ = ["prove_copied"]

ALGORITHM = "lakehand-ranges-1"
ENGINE = "crc32"


def prove_copied(store: Store, key: str, copied: Copied, *, expected_rows: int) -> Proof:
    """Read a copied file back and return the evidence that it holds the source's bytes.

    Every range has the checksum that was taken at its source, the footer counts `expected_rows`,
    and the page locations tile their chunks. ProofError if any of it is not so.
    """
    footer = read_footer(store, key)
    if footer.rows != expected_rows:
        _fail(key, f"its footer counts {footer.rows} rows, and {expected_rows} were to be copied")
    checksum = 0
    for piece in copied.ranges:
        if _checksum(store, key, piece) != piece.crc:
            _fail(key, f"the bytes from {piece.start} on differ from their source")
        checksum = crc32(piece.crc.to_bytes(4), checksum)
    _check_chunks(key, footer, copied)
    _check_page_locations(store, key, footer)
    return Proof(
        kind="ranges",
        rows=expected_rows,
        digest=f"{checksum:08x}",
        bytes=sum(piece.length for piece in copied.ranges),
        algorithm=ALGORITHM,
        engine=ENGINE,
    )


def _checksum(store: Store, key: str, piece: CopiedRange) -> int:
    crc = 0
    for start in range(piece.start, piece.start + piece.length, BLOCK_BYTES):
        length = min(BLOCK_BYTES, piece.start + piece.length - start)
        crc = crc32(store.get_range(key, start=start, length=length), crc)
    return crc


def _check_chunks(key: str, footer: Footer, copied: Copied) -> None:
    """Check that the chunks of the footer are the ranges that were copied, and nothing else."""
    spans = [chunk_range(chunk) for group in footer.row_groups for chunk in chunks(group)]
    at = iter(sorted(spans))
    for piece in sorted(copied.ranges, key=lambda piece: piece.start):
        position = piece.start
        while position < piece.start + piece.length:
            start, length = next(at, (-1, 0))
            if start != position:
                _fail(key, f"no column chunk begins at {position}, where one was copied to")
            position += length
    if next(at, None) is not None:
        _fail(key, "its footer names a column chunk that was not copied")


def _check_page_locations(store: Store, key: str, footer: Footer) -> None:
    indexed = [
        chunk
        for group in footer.row_groups
        for chunk in chunks(group)
        if ChunkField.OFFSET_INDEX in chunk
    ]
    places = [
        (field(chunk, ChunkField.OFFSET_INDEX), field(chunk, ChunkField.OFFSET_INDEX_BYTES))
        for chunk in indexed
    ]
    for chunk, blob in zip(indexed, store.get_ranges(key, places), strict=True):
        _check_tiling(key, chunk, blob)


def _check_tiling(key: str, chunk: Struct, offset_index: bytes) -> None:
    start, length = chunk_range(chunk)
    position = field(field(chunk, ChunkField.METADATA), ColumnField.DATA_PAGE)
    for location in elements(decode(offset_index)[0], 1):
        if field(location, 1) != position:
            _fail(key, f"its page index places a page at {field(location, 1)}, not at {position}")
        position += field(location, 2)
    if position != start + length:
        _fail(key, f"its page index ends at {position}, its chunk at {start + length}")


def _fail(key: str, difference: str) -> NoReturn:
    raise ProofError(
        f"{key} was not copied faithfully: {difference}; nothing was changed",
        hint="a defect of lakehand or of the storage: please report it, and verify the table",
        path=key,
    )
