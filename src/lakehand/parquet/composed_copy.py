"""Parquet files that S3 composes of the row groups of others: their bytes stay in the store.

This process reads the end of every source, with its indexes and footer, and sends the end of the
new file. The store copies what is between, and has a checksum of every object that tells whether
it did so: see `prove.composed_files`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from lakehand.errors import CorruptFileError
from lakehand.parquet.checksums import read_blocks
from lakehand.parquet.footer import MAGIC, chunk_range, chunks
from lakehand.parquet.row_group_copy import Composition, Copied, copy_row_groups
from lakehand.storage.crc64 import crc64
from lakehand.storage.objects import NotComposable
from lakehand.storage.s3_composer import MIN_PART_BYTES, KnownRange, MovedRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.parquet.row_group_copy import Source
    from lakehand.storage import Store
    from lakehand.storage.s3_composer import ComposingWriter, S3Composer, StoredObject

#: A file is worth composing if the store moves at least this fraction of it.
_WORTH_MOVING = 0.5
#: The end of a source is held in memory: large Bloom filters are read when they are needed.
_MAX_TAIL_BYTES = 64 * 2**20
#: So are those of all sources of a group.
_MAX_TAILS_BYTES = 256 * 2**20
_PARALLEL_READS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class MovableFile:
    """A source whose row groups the store can move."""

    stored: StoredObject
    #: Ranges that were read, with their checksums: together with what is moved, all of the file.
    known: list[KnownRange] = field(default_factory=list)


class _ReadTail:
    """Reads a file whose end is in memory already."""

    def __init__(self, store: Store, start: int, tail: bytes) -> None:
        self._store = store
        self._start = start
        self._tail = tail

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        if start < self._start:
            return self._store.get_range(key, start=start, length=length)
        first = start - self._start
        return self._tail[first : first + length]


def find_movable(composer: S3Composer, store: Store, sources: Sequence[Source]) -> list[Source]:
    """Return `sources`, movable where the store can move their row groups.

    NotComposable if that is less than half of all bytes; it says why.
    """
    ends = accumulate(map(_tail_bytes, sources))
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = list(pool.map(partial(_movable, composer, store), sources, ends))
    result = [
        source if isinstance(each, str) else each
        for source, each in zip(sources, found, strict=True)
    ]
    sizes = [_data_span(source)[1] for source in sources]
    moved = sum(s for s, source in zip(sizes, result, strict=True) if source.movable is not None)
    if moved < _WORTH_MOVING * sum(sizes):
        reasons = sorted({each for each in found if isinstance(each, str)})
        raise NotComposable("; ".join(reasons[:3]))
    return result


def _movable(composer: S3Composer, store: Store, source: Source, held_bytes: int) -> Source | str:
    """Return a source that can be moved, or why it cannot.

    `held_bytes` are those of its end and of the ends of the sources before it.
    """
    why_not = _why_not_movable(store, source, held_bytes)
    if why_not is not None:
        return why_not
    start, length, _ = _data_span(source)
    tail_start, size = start + length, source.footer.file_bytes
    try:
        stored = composer.describe(source.key)
    except NotComposable as reason:
        return str(reason)
    if stored.bytes != size:
        raise CorruptFileError(
            f"{source.key} had {size:,} bytes when its footer was read, and has {stored.bytes:,}",
            path=source.key,
            hint="another program replaced it; restore the file from a backup",
        )
    head = MAGIC if start == len(MAGIC) else store.get_range(source.key, start=0, length=start)
    tail = _read(store, source.key, tail_start, size - tail_start)
    file = MovableFile(stored=stored)
    file.known.append(KnownRange(start=0, length=start, crc64=crc64(head)))
    file.known.append(KnownRange(start=tail_start, length=len(tail), crc64=crc64(tail)))
    return replace(source, store=_ReadTail(store, tail_start, tail), movable=file)


def _why_not_movable(store: Store, source: Source, held_bytes: int) -> str | None:
    _, length, is_contiguous = _data_span(source)
    if source.store is not store:
        return f"{source.key} is not in the table's directory"
    if not is_contiguous:
        return f"{source.key} has other bytes between its row groups"
    if length < 2 * MIN_PART_BYTES:
        return f"{source.key} is too small: a part has at least 5 MiB"
    if _tail_bytes(source) > _MAX_TAIL_BYTES:
        return f"{source.key} has indexes of more than {_MAX_TAIL_BYTES // 2**20} MiB"
    if held_bytes > _MAX_TAILS_BYTES:
        return f"the files have indexes of more than {_MAX_TAILS_BYTES // 2**20} MiB"
    return None


def _tail_bytes(source: Source) -> int:
    """Return the bytes after the row groups."""
    start, length, _ = _data_span(source)
    return source.footer.file_bytes - start - length


def _data_span(source: Source) -> tuple[int, int, bool]:
    """Return start and length of the row groups, and whether nothing else is among them."""
    spans = [chunk_range(chunk) for group in source.row_groups for chunk in chunks(group)]
    if not spans:
        return 0, 0, False
    start, end = spans[0][0], spans[0][0]
    for first, length in spans:
        if first != end:
            return start, sum(length for _, length in spans), False
        end += length
    return start, end - start, True


def _read(store: Store, key: str, start: int, length: int) -> bytes:
    return b"".join(read_blocks(store, key, [(start, length)]))


class _ComposedSink:
    """The output file: bytes that are written, and ranges that are moved, with their checksums."""

    def __init__(self, composer: S3Composer, store: Store, key: str) -> None:
        self._store = store
        self._crc = 0
        self._ranges: list[KnownRange | MovedRange] = []
        #: Whether the magic bytes are still to be written, or moved with the first row group.
        self._owes_magic = False
        self.writer: ComposingWriter = composer.open_writer(key, read=self._travel)

    def tell(self) -> int:
        return self.writer.tell() + (len(MAGIC) if self._owes_magic else 0)

    def write(self, data: bytes | memoryview) -> None:
        if not self.tell() and data == MAGIC:
            self._owes_magic = True
            return
        self._pay_magic()
        self._write(data)

    def move(self, file: MovableFile, start: int, length: int) -> None:
        """Add a range of a source; what is too short for a part is read and sent."""
        if self._owes_magic and start == len(MAGIC) and length >= MIN_PART_BYTES:
            # Every file begins alike; otherwise four bytes, and 5 MiB with them, would travel.
            self._owes_magic = False
            self._ranges.append(KnownRange(start=0, length=start, crc64=crc64(MAGIC)))
            self.writer.copy(file.stored, 0, start + length)
            self._add_moved(file, start, start, length)
            return
        self._pay_magic()
        position = self.writer.tell()
        travelled = self.writer.copy(file.stored, start, length)
        if travelled:
            self._ranges.append(KnownRange(start=position, length=travelled, crc64=self._crc))
            file.known.append(KnownRange(start=start, length=travelled, crc64=self._crc))
        if travelled < length:
            self._add_moved(file, position + travelled, start + travelled, length - travelled)

    def _add_moved(self, file: MovableFile, start: int, source_start: int, length: int) -> None:
        key = file.stored.key
        moved = MovedRange(start=start, length=length, source=key, source_start=source_start)
        self._ranges.append(moved)

    def ranges(self) -> tuple[KnownRange | MovedRange, ...]:
        return tuple(self._ranges)

    def _pay_magic(self) -> None:
        if self._owes_magic:
            self._owes_magic = False
            self._write(MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        piece = KnownRange(start=self.writer.tell(), length=len(data), crc64=crc64(data))
        self._ranges.append(piece)
        self.writer.write(data)

    def _travel(self, key: str, start: int, length: int) -> bytes:
        data = _read(self._store, key, start, length)
        self._crc = crc64(data)
        return data


def compose_row_groups(
    composer: S3Composer,
    store: Store,
    key: str,
    sources: Sequence[Source],
    *,
    created_by: str,
    key_values: Mapping[str, str],
) -> Copied:
    """Have the store compose a file of the row groups of `sources`, and return what it consists of.

    NotComposable if the store has no checksum of the new file. The file is visible on return, and
    its bytes are not compared with those of the sources yet.
    """
    sink = _ComposedSink(composer, store, key)
    with sink.writer:
        copied = copy_row_groups(
            sources, sink, created_by=created_by, key_values=key_values, move=sink.move
        )
    composition = Composition(ranges=sink.ranges(), stored=composer.describe(key))
    return replace(copied, composition=composition)
