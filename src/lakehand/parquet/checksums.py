"""CRC-32, and checks of page checksums without decoding."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NoReturn

from lakehand.errors import CorruptFileError, RefusedError
from lakehand.parquet.footer import (
    MAGIC,
    ChunkField,
    ColumnField,
    chunk_range,
    chunks,
    elements,
    field,
    read_local_footer,
)
from lakehand.parquet.thrift import ThriftError, decode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from lakehand.parquet.footer import Footer
    from lakehand.parquet.thrift import Struct

__all__ = ["PageChecker", "crc32", "pages_are_intact"]


try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32


_PAGE_TYPE, _PLAIN_BYTES, _COMPRESSED_BYTES, _CRC = 1, 2, 3, 4
#: Data, index, dictionary, and data page V2.
_PAGE_TYPES = range(4)
#: This many headers in sequence, each at the position given by the one before, are not a
#: coincidence.
_PAGES_IN_A_ROW = 2
#: A page header is never larger, whatever its statistics are.
_MAX_HEADER_BYTES = 16 * 2**20


class PageChecker:
    """Checks the checksums of consecutive pages while their bytes stream through.

    Each page must have the checksum in its header. If the first one has none, the file was written
    without checksums, and no page is checked.
    """

    def __init__(self, key: str, *, start: int, is_on: bool = True) -> None:
        self._key = key
        self._position = start
        self._head = b""
        self._left = 0
        self._crc = 0
        self._expected: int | None = None
        self._is_first = True
        self._is_on = is_on

    def feed(self, block: bytes | memoryview) -> None:
        """Add the next bytes; CorruptFileError if a page that ends in them has changed."""
        if not self._is_on:
            return
        view = memoryview(self._head + block if self._head else block)
        self._head = b""
        while view and self._is_on:
            view = self._follow(view) if self._left else self._enter(view)

    def finish(self) -> None:
        """Finish; CorruptFileError if a page is incomplete."""
        if self._is_on and (self._left or self._head):
            self._fail("its last page ends too early")

    def _enter(self, view: memoryview) -> memoryview:
        try:
            header, end = decode(view)
        except ThriftError:
            if len(view) > _MAX_HEADER_BYTES:
                self._fail("a page header cannot be read")
            self._head = bytes(view)
            return view[:0]
        self._is_on = _CRC in header or not self._is_first
        self._is_first = False
        size, self._expected = field(header, _COMPRESSED_BYTES, 0), field(header, _CRC)
        if not isinstance(size, int) or size < 0:
            self._fail("a page has no size")
        self._left = size
        self._crc = 0
        self._position += end
        if not self._left:
            self._leave()
        return view[end:]

    def _follow(self, view: memoryview) -> memoryview:
        body = view[: self._left]
        if self._expected is not None:
            self._crc = crc32(body, self._crc)
        self._left -= len(body)
        self._position += len(body)
        if not self._left:
            self._leave()
        return view[len(body) :]

    def _leave(self) -> None:
        if self._expected is not None and self._crc != self._expected % 2**32:
            self._fail("a page does not match its checksum")

    def _fail(self, difference: str) -> NoReturn:
        raise CorruptFileError(
            f"{self._key} is corrupt before byte {self._position}: {difference}",
            path=self._key,
            hint="restore the file from a backup, or accept the loss of its rows and remove it",
        )


def pages_are_intact(path: Path, *, columns: Collection[str] | None = None) -> bool:
    """Return whether every page of a local file has the checksum in its header.

    `columns` are the top-level columns to check, in lower case; None: all. A file whose first page
    has no checksum was written without them, and passes.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if _begins_without(data):
            return True
        try:
            spans = list(_chunk_spans(read_local_footer(path), columns))
            if not spans or _CRC not in decode(data, spans[0][0])[0]:
                return True
            return all(_is_intact(data, start, end) for start, end in spans)
        except (CorruptFileError, RefusedError, ThriftError, TypeError):
            # A flipped bit may change the type of a number as well.
            return False


def _begins_without(data: mmap.mmap) -> bool:
    """Return whether the first page has no checksum, as far as this is visible without a footer.

    Most writers put the first page right after the magic bytes. The bytes there are a page header
    if the next page starts where it says, and has no checksum either.
    """
    position = len(MAGIC)
    try:
        for _ in range(_PAGES_IN_A_ROW):
            header, start = decode(data, position)
            sizes = field(header, _PLAIN_BYTES, -1), field(header, _COMPRESSED_BYTES, -1)
            if _CRC in header or field(header, _PAGE_TYPE) not in _PAGE_TYPES or min(sizes) < 0:
                return False
            position = start + sizes[1]
    except (ThriftError, TypeError):
        return False
    return True


def _chunk_spans(footer: Footer, columns: Collection[str] | None) -> Iterator[tuple[int, int]]:
    for group in footer.row_groups:
        for chunk in chunks(group):
            if columns is None or _top_level(chunk) in columns:
                start, length = chunk_range(chunk)
                yield start, start + length


def _top_level(chunk: Struct) -> str | None:
    """Return the name of a chunk's top-level column, in lower case."""
    path = elements(field(chunk, ChunkField.METADATA, {}), ColumnField.PATH)
    return path[0].decode("utf-8", "replace").lower() if path else None


def _is_intact(data: mmap.mmap, position: int, end: int) -> bool:
    while position < end:
        header, start = decode(data, position)
        size, expected = field(header, _COMPRESSED_BYTES, 0), field(header, _CRC)
        position = start + size
        if size < 0 or position > end:
            return False
        if expected is not None and crc32(memoryview(data)[start:position]) != expected % 2**32:
            return False
    return True
