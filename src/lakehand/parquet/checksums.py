"""CRC-32, and checksums of pages for code that does not decode them."""

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
#: Data, index, dictionary, and data of the second version.
_PAGE_TYPES = range(4)
#: So many headers, each where the one before says, are no chance.
_PAGES_IN_A_ROW = 2
#: More than this is no header of a page, whatever bounds it holds.
_MAX_HEADER_BYTES = 16 * 2**20


class PageChecker:
    """Follows pages that lie behind each other while their bytes go by.

    Each page must have the checksum that its header gives. Where the first one gives none, the file
    was written without them, and no other is looked at.
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
        """Take the next bytes; CorruptFileError if a page that ends in them was changed."""
        if not self._is_on:
            return
        view = memoryview(self._head + block if self._head else block)
        self._head = b""
        while view and self._is_on:
            view = self._follow(view) if self._left else self._enter(view)

    def finish(self) -> None:
        """Say that no more bytes come; CorruptFileError if a page should go on."""
        if self._is_on and (self._left or self._head):
            self._fail("its last page ends too early")

    def _enter(self, view: memoryview) -> memoryview:
        try:
            header, end = decode(view)
        except ThriftError:
            if len(view) > _MAX_HEADER_BYTES:
                self._fail("a page has no header that can be read")
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
            self._fail("a page does not have the checksum that was written with it")

    def _fail(self, difference: str) -> NoReturn:
        raise CorruptFileError(
            f"{self._key} is damaged before byte {self._position}: {difference}",
            path=self._key,
            hint="restore the file from a copy, or delete its rows knowingly",
        )


def pages_are_intact(path: Path, *, columns: Collection[str] | None = None) -> bool:
    """Say whether every page of a local file has the checksum that was written with it.

    `columns` are the top-level columns to look at, in small letters; None: all. A file whose first
    page has no checksum was written without them, and passes.
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
            # A changed bit may make another type of a number, too.
            return False


def _begins_without(data: mmap.mmap) -> bool:
    """Say whether a page without a checksum comes first, as far as that is seen without a footer.

    Most writers put it right behind the magic bytes. What is found there is one if the next page
    begins where its header says, and has no checksum either.
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
    """Return the name of the column that a chunk belongs to, in small letters."""
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
