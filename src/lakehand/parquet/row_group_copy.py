"""Copies row groups byte for byte from several files into one.

A file has one offset index per column chunk, with one location per page. They are parsed with a
pattern for the form that all writers use: four times as fast as generic Thrift, the fallback.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import partial
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self

from lakehand.errors import CorruptFileError
from lakehand.parquet.checksums import PageChecker, Ranges, crc32, read_blocks, read_ranges
from lakehand.parquet.footer import (
    MAGIC,
    ChunkField,
    ColumnField,
    FileField,
    Footer,
    RowGroupField,
    StatisticsField,
    chunk_range,
    chunks,
    dictionary_offset,
    elements,
    field,
    read_footer,
    row_group_bytes,
    struct_list,
)
from lakehand.parquet.leaves import BYTE_ARRAY, FIXED_BYTES, INT96
from lakehand.parquet.thrift import (
    BINARY,
    I32,
    I64,
    STRUCT,
    Struct,
    ThriftError,
    decode,
    encode,
    read_varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakehand.parquet.composed_copy import MovableFile
    from lakehand.storage import Store
    from lakehand.storage.s3_composer import KnownRange, MovedRange, StoredObject

# Offset indexes

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
#: Offset, size and first row of a page, each after its field header, and the struct's end.
_LOCATION = re.compile(rb"\x16(%b)\x15(%b)(\x16%b\x00)" % (_NUMBER, _NUMBER, _NUMBER))
#: Field 1, a list; the type of its elements, a struct; their number, if it exceeds a nibble.
_LIST, _STRUCT, _LONG_LIST = 0x19, 0x0C, 15
_MORE = 0x80


def shift_offset_index(data: bytes, delta: int) -> bytes:
    """Return the index of a chunk that is relocated by `delta` bytes."""
    locations = _usual_locations(data)
    if locations is None:
        return _shift_any(data, delta)
    first, end, found = locations
    moved = [
        b"\x16%b\x15%b%b" % (_varint(_number(offset) + delta), size, rest)
        for offset, size, rest in found
    ]
    return b"".join((data[:first], *moved, data[end:]))


def page_locations(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and size of every page."""
    locations = _usual_locations(data)
    if locations is None:
        for location in elements(decode(data)[0], 1):
            yield field(location, 1), field(location, 2)
        return
    for offset, size, _ in locations[2]:
        yield _number(offset), _number(size)


def _usual_locations(data: bytes) -> tuple[int, int, list[tuple[Any, ...]]] | None:
    """Return where the locations start and end, and their parts; None if one has another form."""
    if data[:1] != bytes([_LIST]) or data[1] & 0x0F != _STRUCT:
        return None
    count, first = data[1] >> 4, 2
    if count == _LONG_LIST:
        count, first = read_varint(data, first)
    found, end = [], first
    for _ in range(count):
        location = _LOCATION.match(data, end)
        if location is None:
            return None
        found.append(location.groups())
        end = location.end()
    return first, end, found


def _shift_any(data: bytes, delta: int) -> bytes:
    index, _ = decode(data)
    for location in elements(index, 1):
        location[1] = (I64, field(location, 1) + delta)
    return encode(index)


def _number(varint: bytes) -> int:
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= _MORE:
        out.append(number & 0x7F | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)


# Chunks, relocated

#: A field that vendors may fill with a copy of the whole footer, including offsets.
VENDOR_FIELD = 32767
_UNORDERED_TYPES = (BYTE_ARRAY, FIXED_BYTES, INT96)
_BLOOM_HEADER_BYTES = 64


@dataclass(kw_only=True, slots=True)
class Tail:
    """What follows the data: indexes, and the chunk or column each belongs to."""

    #: Bloom filters may be large, so they are read when they are written.
    blooms: list[tuple[Struct, Source, int, int]] = dataclass_field(default_factory=list)
    column_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)
    offset_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)

    def write(self, write: Callable[[bytes | memoryview], object], tell: Callable[[], int]) -> None:
        """Write Bloom filters, column indexes and offset indexes: contiguous, before the footer."""
        for column, source, offset, length in self.blooms:
            column[ColumnField.BLOOM] = (I64, tell())
            column[ColumnField.BLOOM_BYTES] = (I32, length)
            for block in source.read([(offset, length)]):
                write(block)
        for chunk, blob in self.column_indexes:
            chunk[ChunkField.COLUMN_INDEX] = (I64, tell())
            chunk[ChunkField.COLUMN_INDEX_BYTES] = (I32, len(blob))
            write(blob)
        for chunk, blob in self.offset_indexes:
            chunk[ChunkField.OFFSET_INDEX] = (I64, tell())
            chunk[ChunkField.OFFSET_INDEX_BYTES] = (I32, len(blob))
            write(blob)


class Relocation:
    """Relocates the chunks of one source; its indexes are read with few requests."""

    def __init__(self, source: Source, tail: Tail) -> None:
        self._source = source
        self._tail = tail
        byte_ranges = (
            byte_range for group in source.row_groups for byte_range in _index_ranges(group)
        )
        self._indexes: Mapping[tuple[int, int], bytes] = read_ranges(
            source.store, source.key, byte_ranges
        )

    def move(self, chunk: Struct, delta: int) -> Struct:
        """Return `chunk` relocated by `delta` bytes; its indexes are added to the tail."""
        column = dict(field(chunk, ChunkField.METADATA))
        column.pop(VENDOR_FIELD, None)
        column[ColumnField.DATA_PAGE] = (I64, field(column, ColumnField.DATA_PAGE) + delta)
        old_dictionary = dictionary_offset(field(chunk, ChunkField.METADATA))
        column.pop(ColumnField.DICTIONARY_PAGE, None)
        if old_dictionary is not None:
            column[ColumnField.DICTIONARY_PAGE] = (I64, old_dictionary + delta)
        if ColumnField.INDEX_PAGE in column:
            column[ColumnField.INDEX_PAGE] = (I64, field(column, ColumnField.INDEX_PAGE) + delta)
        _drop_old_bounds(column)
        moved: Struct = {ChunkField.FILE_OFFSET: (I64, 0), ChunkField.METADATA: (STRUCT, column)}
        try:
            self._collect_bloom(column)
            self._collect_indexes(chunk, moved, delta)
        except (ThriftError, LookupError, TypeError) as error:
            key = self._source.key
            message = f"an index of {key} is corrupt: {error}"
            hint = "restore the file from a backup, or the table to a version without it"
            raise CorruptFileError(message, path=key, hint=hint) from error
        return moved

    def _collect_bloom(self, column: Struct) -> None:
        offset = field(column, ColumnField.BLOOM)
        if offset is not None:
            length = field(column, ColumnField.BLOOM_BYTES) or self._bloom_bytes(offset)
            self._tail.blooms.append((column, self._source, offset, length))

    def _bloom_bytes(self, offset: int) -> int:
        """Return the length of a Bloom filter without a length in the footer: header and bitset."""
        source = self._source
        head_bytes = min(_BLOOM_HEADER_BYTES, source.footer.file_bytes - offset)
        header, end = decode(source.store.get_range(source.key, start=offset, length=head_bytes))
        return end + int(field(header, 1))

    def _collect_indexes(self, chunk: Struct, moved: Struct, delta: int) -> None:
        byte_ranges = list(_index_byte_ranges(chunk))
        if byte_ranges:
            offsets, *bounds = (self._indexes[byte_range] for byte_range in byte_ranges)
            self._tail.offset_indexes.append((moved, shift_offset_index(offsets, delta)))
            self._tail.column_indexes += [(moved, blob) for blob in bounds]


def _index_ranges(row_group: Struct) -> Iterator[tuple[int, int]]:
    for chunk in chunks(row_group):
        yield from _index_byte_ranges(chunk)


def _index_byte_ranges(chunk: Struct) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of the offset index and of the column index of a chunk."""
    # A column index without an offset index is useless.
    if ChunkField.OFFSET_INDEX in chunk:
        yield field(chunk, ChunkField.OFFSET_INDEX), field(chunk, ChunkField.OFFSET_INDEX_BYTES)
        if ChunkField.COLUMN_INDEX in chunk:
            yield field(chunk, ChunkField.COLUMN_INDEX), field(chunk, ChunkField.COLUMN_INDEX_BYTES)


def _drop_old_bounds(column: Struct) -> None:
    """Drop deprecated bounds that are redundant, or that readers trust by the writer's name."""
    if ColumnField.STATISTICS not in column:
        return
    kind, statistics = column[ColumnField.STATISTICS]
    is_unordered = field(column, ColumnField.TYPE) in _UNORDERED_TYPES
    if is_unordered or {StatisticsField.MIN, StatisticsField.MAX} <= statistics.keys():
        old = (StatisticsField.OLD_MAX, StatisticsField.OLD_MIN)
        column[ColumnField.STATISTICS] = (
            kind,
            {key: statistics[key] for key in statistics if key not in old},
        )


# Division of row groups among files

#: A boundary is moved to the end of a file if that changes an output by at most this fraction.
_BORDER_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Consecutive row groups of one file."""

    file: int
    first: int
    end: int


def divide(files: Sequence[Sequence[int]], *, target_bytes: int) -> list[list[Slice]]:
    """Return the slices of each output: even sizes near the target, each with row groups.

    `files` has the size of every row group of each file. A boundary is at the end of a file if one
    is near, because statistics of whole files are known; else at the end of a row group.

    >>> [len(slices) for slices in divide([[4, 4], [4, 4, 4, 4]], target_bytes=12)]
    [2, 1]
    """
    owners = [(file, group) for file, groups in enumerate(files) for group in range(len(groups))]
    ends = [0, *accumulate(size for groups in files for size in groups)]
    starts_file = [group == 0 for _, group in owners]
    count = max(1, round(ends[-1] / target_bytes))
    even = ends[-1] / count
    cuts = {_cut(ends, starts_file, number * even, even) for number in range(1, count)}
    bounds = sorted({0, *cuts, len(owners)})
    return [_slices(owners[first:end]) for first, end in pairwise(bounds)]


def _cut(ends: Sequence[int], starts_file: Sequence[bool], ideal: float, even: float) -> int:
    """Return the index of the row group before which to split."""

    def distance(number: int) -> float:
        return abs(ends[number] - ideal)

    borders = [number for number in range(1, len(starts_file)) if starts_file[number]]
    nearest = min(borders, key=distance, default=0)
    if nearest and distance(nearest) <= _BORDER_TOLERANCE * even:
        return nearest
    return min(range(1, len(starts_file)), key=distance, default=0)


def _slices(owners: Sequence[tuple[int, int]]) -> list[Slice]:
    found: list[Slice] = []
    for file, group in owners:
        if found and found[-1].file == file:
            found[-1] = Slice(file=file, first=found[-1].first, end=group + 1)
        else:
            found.append(Slice(file=file, first=group, end=group + 1))
    return found


# The copy

#: Indexes are small and many; they are written in blocks of this size.
_TAIL_PIECE_BYTES = 512 * 1024


class Sink(Protocol):
    """The output file."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def tell(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A file whose row groups are copied."""

    store: Ranges
    key: str
    footer: Footer
    #: Indexes of the row groups to copy.
    chosen: tuple[int, ...]
    #: Whether checksums are compared and computed; not for rows that were just encoded and are
    #: proved.
    is_checked: bool = False
    #: The file as its store knows it, if the store can move its row groups; None: they are read.
    movable: MovableFile | None = None

    @classmethod
    def of(cls, store: Ranges, key: str, footer: Footer) -> Self:
        """Return a source with all nonempty row groups: some readers fail on empty ones."""
        groups = enumerate(footer.row_groups)
        chosen = tuple(number for number, group in groups if field(group, RowGroupField.ROWS))
        return cls(store=store, key=key, footer=footer, chosen=chosen)

    @classmethod
    def stored(cls, store: Store, key: str, footer: Footer | None = None) -> Self:
        """Return a file of `store` as a source; its footer is read unless given."""
        source = cls.of(store, key, footer or read_footer(store, key))
        return replace(source, is_checked=True)

    def part(self, first: int, end: int) -> Self:
        """Return a source with some of these row groups."""
        return replace(self, chosen=self.chosen[first:end])

    @property
    def row_groups(self) -> list[Struct]:
        groups = self.footer.row_groups
        return [groups[number] for number in self.chosen]

    @property
    def rows(self) -> int:
        return sum(field(group, RowGroupField.ROWS) for group in self.row_groups)

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of `ranges` in blocks, each valid until the next one is requested."""
        return read_blocks(self.store, self.key, ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedRange:
    """A byte range of the new file, with a checksum computed before it was written."""

    start: int
    length: int
    crc: int
    #: Whether the store moved it: then only the checksum of the whole file covers it.
    is_moved: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """The result of a copy."""

    rows: int
    row_groups: int
    #: All pages of the new file, with the checksums of their source.
    ranges: tuple[CopiedRange, ...]
    #: Indexes and footer, from the last page to the end of the file.
    tail: CopiedRange
    #: What the file consists of, and its checksum, if the store composed it.
    composition: Composition | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """A file that the store composed: where its bytes come from, and what the store has of it."""

    #: All of the file, from its first byte to its last.
    ranges: tuple[KnownRange | MovedRange, ...]
    stored: StoredObject

    @property
    def moved_bytes(self) -> int:
        return sum(piece.length for piece in self.ranges if hasattr(piece, "source"))


class Move(Protocol):
    """Adds a byte range of a movable source to the output file, without reading all of it."""

    def __call__(self, file: MovableFile, start: int, length: int, /) -> None: ...


class Assembly:
    """A file being written: row groups are appended, and the tail after the last one."""

    def __init__(self, sink: Sink, move: Move | None = None) -> None:
        self._sink = sink
        self._move = move
        self._tail = Tail()
        self._row_groups: list[Struct] = []
        self._first: Footer | None = None
        self._ranges: list[CopiedRange] = []
        sink.write(MAGIC)

    def add(self, source: Source) -> None:
        """Append the row groups of `source`, which must have the same schema as the others."""
        self._first = self._first or source.footer
        relocation, runs = Relocation(source, self._tail), _runs(source)
        if self._move is not None and source.movable is not None:
            self._ranges += _move_runs(source.movable, runs, self._sink, self._move)
        else:
            self._ranges += _copy_runs(source, runs, self._sink)
        pieces = zip(runs, self._ranges[-len(runs) :], strict=True)
        moved: list[Struct] = []
        for run, piece in pieces:
            moved += map(partial(relocation.move, delta=piece.start - run.start), run.chunks)
        columns = iter(moved)
        for group in source.row_groups:
            self._row_groups.append(_moved_row_group(group, columns))

    def finish(self, *, created_by: str, key_values: Mapping[str, str]) -> Copied:
        """Write indexes and footer; at least one source must have been added."""
        assert self._first is not None  # noqa: S101  see above
        tail = _TailSink(self._sink)
        self._tail.write(tail.write, tail.tell)
        tail.write(
            _footer_bytes(self._first, self._row_groups, created_by=created_by, pairs=key_values)
        )
        return Copied(
            rows=sum(field(row_group, RowGroupField.ROWS) for row_group in self._row_groups),
            row_groups=len(self._row_groups),
            ranges=tuple(self._ranges),
            tail=tail.range(),
        )


def copy_row_groups(
    sources: Sequence[Source],
    sink: Sink,
    *,
    created_by: str,
    key_values: Mapping[str, str],
    move: Move | None = None,
) -> Copied:
    """Write one Parquet file with the row groups of `sources`, in their order.

    The sources must be copyable with each other; this only moves bytes. Raises CorruptFileError if
    a page does not have the checksum in its header. `move` adds row groups of movable sources.
    """
    assembly = Assembly(sink, move)
    for source in sources:
        assembly.add(source)
    return assembly.finish(created_by=created_by, key_values=key_values)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive chunks."""

    start: int
    chunks: list[Struct]

    @property
    def length(self) -> int:
        return sum(chunk_range(chunk)[1] for chunk in self.chunks)


def _runs(source: Source) -> list[_Run]:
    """Return all chunks of a source, in the order of the new file."""
    runs: list[_Run] = []
    end = -1
    for group in source.row_groups:
        for chunk in chunks(group):
            start, length = chunk_range(chunk)
            if start != end:
                runs.append(_Run(start, []))
            runs[-1].chunks.append(chunk)
            end = start + length
    return runs


def _move_runs(
    file: MovableFile, runs: Sequence[_Run], sink: Sink, move: Move
) -> Iterator[CopiedRange]:
    for run in runs:
        start = sink.tell()
        move(file, run.start, run.length)
        yield CopiedRange(start=start, length=run.length, crc=0, is_moved=True)


def _copy_runs(source: Source, runs: Sequence[_Run], sink: Sink) -> Iterator[CopiedRange]:
    blocks = source.read([(run.start, run.length) for run in runs])
    for run in runs:
        start, crc, left = sink.tell(), 0, run.length
        pages = PageChecker(source.key, start=run.start, is_on=source.is_checked)
        while left:
            block = next(blocks)
            pages.feed(block)
            crc = crc32(block, crc) if source.is_checked else 0
            sink.write(block)
            left -= len(block)
        pages.finish()
        yield CopiedRange(start=start, length=run.length, crc=crc)


def _moved_row_group(row_group: Struct, moved: Iterator[Struct]) -> Struct:
    columns = list(islice(moved, len(chunks(row_group))))
    result: Struct = {key: row_group[key] for key in row_group if key != VENDOR_FIELD}
    result.pop(RowGroupField.ORDINAL, None)
    result[RowGroupField.COLUMNS] = struct_list(columns)
    result[RowGroupField.FILE_OFFSET] = (I64, chunk_range(columns[0])[0])
    result.setdefault(RowGroupField.COMPRESSED_BYTES, (I64, row_group_bytes(result)))
    return result


class _TailSink:
    """Buffers small writes, and computes their checksum."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._start = sink.tell()
        self._crc = 0
        self._pending = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        self._pending += data
        if len(self._pending) >= _TAIL_PIECE_BYTES:
            self._send()

    def tell(self) -> int:
        return self._sink.tell() + len(self._pending)

    def range(self) -> CopiedRange:
        """Flush, and return the range of all that was written."""
        self._send()
        length = self._sink.tell() - self._start
        return CopiedRange(start=self._start, length=length, crc=self._crc)

    def _send(self) -> None:
        data = bytes(self._pending)
        self._pending.clear()
        self._crc = crc32(data, self._crc)
        self._sink.write(data)


def _footer_bytes(
    first: Footer,
    row_groups: list[Struct],
    *,
    created_by: str,
    pairs: Mapping[str, str],
) -> bytes:
    meta: Struct = {
        FileField.VERSION: (I32, 1),
        FileField.SCHEMA: first.meta[FileField.SCHEMA],
        FileField.ROWS: (I64, sum(field(group, RowGroupField.ROWS) for group in row_groups)),
        FileField.ROW_GROUPS: struct_list(row_groups),
        FileField.CREATED_BY: (BINARY, created_by.encode()),
    }
    if pairs:
        meta[FileField.KEY_VALUES] = struct_list(
            [
                {1: (BINARY, key.encode()), 2: (BINARY, value.encode())}
                for key, value in pairs.items()
            ]
        )
    if FileField.COLUMN_ORDERS in first.meta:
        meta[FileField.COLUMN_ORDERS] = first.meta[FileField.COLUMN_ORDERS]
    footer = encode(meta)
    return footer + struct.pack("<I", len(footer)) + MAGIC
