"""Checksums of pages, for readers that do not look at them."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow.parquet as pq

from lakehand.parquet.footer import field
from lakehand.parquet.thrift import ThriftError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["pages_are_intact"]

_COMPRESSED_BYTES, _CRC = 3, 4


def pages_are_intact(path: Path) -> bool:
    """Say whether every page of a local file has the checksum that was written with it.

    A file whose first page has none was written without them, and passes.
    """
    spans = list(_chunk_spans(pq.read_metadata(path)))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            if not spans or _CRC not in decode(data, spans[0][0])[0]:
                return True
            return all(_is_intact(data, start, end) for start, end in spans)
        except ThriftError:
            return False


def _chunk_spans(metadata: pq.FileMetaData) -> Iterator[tuple[int, int]]:
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for column in range(group.num_columns):
            chunk = group.column(column)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
                start = chunk.dictionary_page_offset
            yield start, start + chunk.total_compressed_size


def _is_intact(data: mmap.mmap, position: int, end: int) -> bool:
    while position < end:
        header, start = decode(data, position)
        position = start + field(header, _COMPRESSED_BYTES, 0)
        expected = field(header, _CRC)
        if expected is not None and crc32(memoryview(data)[start:position]) != expected % 2**32:
            return False
    return True
