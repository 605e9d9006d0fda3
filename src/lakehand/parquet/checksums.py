"""Reads byte ranges in blocks of bounded memory, and checks page checksums without decoding."""

from __future__ import annotations

import mmap
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

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
from lakehand.parquet.thrift import Struct, ThriftError, decode
from lakehand.storage import Store
from lakehand.storage.local_files import read_file_blocks
from lakehand.storage.objects import fetch_ahead

try:
    from isal.isal_zlib import crc32 as crc32  # noqa: PLC0414  exported
except ImportError:
    from zlib import crc32 as crc32  # noqa: PLC0414  exported

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from lakehand.parquet.footer import Footer

# Byte ranges

#: Fits into the processor's cache from reading a block to writing it.
_LOCAL_BLOCK_BYTES = 512 * 1024
#: Over a network a request costs more than its bytes; this many are in flight.
_REMOTE_BLOCK_BYTES = 4 * 2**20
_REMOTE_WINDOW = 4
#: Ranges with a smaller gap between them are read together.
_GAP_BYTES = 64 * 1024


class Ranges(Protocol):
    """A source of byte ranges: a store, or memory."""

    def get_range(self, key: str, *, start: int, length: int) -> bytes: ...


def read_blocks(
    store: Ranges, key: str, ranges: Iterable[tuple[int, int]]
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of `ranges` (start and length) one by one; no block spans two of them.

    A block is valid until the next one is requested. Raises CorruptFileError if the file ends
    before a range does.
    """
    path = store.local_path(key) if isinstance(store, Store) else None
    if path is not None:
        yield from _blocks_of_file(path, key, list(ranges))
    elif isinstance(store, Store):
        read = partial(_read, store, key)
        yield from fetch_ahead(_cut(ranges, _REMOTE_BLOCK_BYTES), read, window=_REMOTE_WINDOW)
    else:
        yield from (
            _read(store, key, byte_range) for byte_range in _cut(ranges, _LOCAL_BLOCK_BYTES)
        )


def _blocks_of_file(
    path: Path, key: str, ranges: Sequence[tuple[int, int]]
) -> Iterator[memoryview]:
    for block in read_file_blocks(path, ranges, block_bytes=_LOCAL_BLOCK_BYTES):
        if not block:
            raise _cut_off(key)
        yield block


def _read(store: Ranges, key: str, byte_range: tuple[int, int]) -> bytes:
    start, length = byte_range
    data = store.get_range(key, start=start, length=length)
    if len(data) < length:
        raise _cut_off(key)
    return data


def _cut_off(key: str) -> CorruptFileError:
    return CorruptFileError(
        f"{key} ends within a column chunk",
        path=key,
        hint="it was truncated after its footer was read; restore it from a backup",
    )


def _cut(ranges: Iterable[tuple[int, int]], block_bytes: int) -> Iterator[tuple[int, int]]:
    for start, length in ranges:
        for at in range(start, start + length, block_bytes):
            yield at, min(block_bytes, start + length - at)


def read_ranges(
    store: Ranges, key: str, byte_ranges: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the bytes of many small ranges (start and length), read with few requests."""
    found: dict[tuple[int, int], bytes] = {}
    for first, end, inside in _joined(sorted(set(byte_ranges))):
        data = store.get_range(key, start=first, length=end - first)
        for start, length in inside:
            found[start, length] = data[start - first : start - first + length]
    return found


def _joined(
    byte_ranges: Iterable[tuple[int, int]],
) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    first = end = 0
    inside: list[tuple[int, int]] = []
    for start, length in byte_ranges:
        if inside and (start - end > _GAP_BYTES or start - first > _REMOTE_BLOCK_BYTES):
            yield first, end, inside
            inside = []
        first, end = (first, max(end, start + length)) if inside else (start, start + length)
        inside.append((start, length))
    if inside:
        yield first, end, inside


# Page checksums

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

    Most writers write it directly after the magic bytes. The bytes there are a page header
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
