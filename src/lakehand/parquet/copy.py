"""Row groups moved byte for byte from several files into one.

Pages hold no positions, so they are copied as they are. What holds a position is rewritten: chunk
offsets, offset indexes, the places of page indexes and bloom filters, the footer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Protocol, Self
from zlib import crc32

from lakehand.errors import CorruptFileError
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
    struct_list,
)
from lakehand.parquet.leaves import BYTE_ARRAY, FIXED_BYTES, INT96
from lakehand.parquet.thrift import BINARY, I32, I64, Struct, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Bytes that are in memory at a time while ranges are copied.
BLOCK_BYTES = 8 * 2**20
#: A field that vendors may fill with a copy of the whole footer, offsets included.
_VENDOR_FIELD = 32767
_UNORDERED_TYPES = (BYTE_ARRAY, FIXED_BYTES, INT96)


class Ranges(Protocol):
    """What holds the bytes of sources: a store, or memory."""

    def get_range(self, key: str, *, start: int, length: int) -> bytes: ...


class Sink(Protocol):
    """Where the new file goes."""

    def write(self, data: bytes, /) -> object: ...

    def tell(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A file whose row groups are copied."""

    store: Ranges
    key: str
    footer: Footer
    #: Numbers of the row groups that are copied.
    chosen: tuple[int, ...]

    @classmethod
    def of(cls, store: Ranges, key: str, footer: Footer) -> Self:
        """Return a source of all row groups that hold rows: readers stumble over others."""
        groups = enumerate(footer.row_groups)
        chosen = tuple(number for number, group in groups if field(group, RowGroupField.ROWS))
        return cls(store=store, key=key, footer=footer, chosen=chosen)

    def part(self, first: int, end: int) -> Self:
        """Return a source of some of these row groups."""
        return replace(self, chosen=self.chosen[first:end])

    @property
    def row_groups(self) -> list[Struct]:
        groups = self.footer.row_groups
        return [groups[number] for number in self.chosen]

    @property
    def rows(self) -> int:
        return sum(field(group, RowGroupField.ROWS) for group in self.row_groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedRange:
    """A run of bytes at its new place, with a checksum taken at the source."""

    start: int
    length: int
    crc: int


@dataclass(kw_only=True, slots=True)
class Copied:
    """What a copy wrote."""

    rows: int = 0
    row_groups: int = 0
    #: All data of the new file: what lies between is index and footer.
    ranges: list[CopiedRange] = dataclass_field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class _Tail:
    """What goes behind the data: index blobs, and the chunk each belongs to."""

    blooms: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)
    column_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)
    offset_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)


class Assembly:
    """A file in the making: row groups go behind each other, and the tail behind the last."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._tail = _Tail()
        self._row_groups: list[Struct] = []
        self._first: Footer | None = None
        self._ranges: list[CopiedRange] = []
        sink.write(MAGIC)

    def add(self, source: Source) -> None:
        """Append the row groups of `source`, whose schema must be that of all others."""
        self._first = self._first or source.footer
        self._row_groups += [
            _copy_row_group(source, group, self._sink, self._ranges, self._tail)
            for group in source.row_groups
        ]

    def finish(self, *, created_by: str, key_values: Mapping[str, str]) -> Copied:
        """Write indexes and footer; at least one source must have been added."""
        assert self._first is not None  # noqa: S101  promised above
        _write_tail(self._sink, self._tail)
        _write_footer(
            self._sink, self._first, self._row_groups, created_by=created_by, pairs=key_values
        )
        return Copied(
            rows=sum(field(row_group, RowGroupField.ROWS) for row_group in self._row_groups),
            row_groups=len(self._row_groups),
            ranges=self._ranges,
        )


def copy_row_groups(
    sources: Sequence[Source], sink: Sink, *, created_by: str, key_values: Mapping[str, str]
) -> Copied:
    """Write one Parquet file that holds the row groups of `sources`, in order.

    The sources must have been found copyable with each other; this only moves bytes.
    """
    assembly = Assembly(sink)
    for source in sources:
        assembly.add(source)
    return assembly.finish(created_by=created_by, key_values=key_values)


def _copy_row_group(
    source: Source, row_group: Struct, sink: Sink, ranges: list[CopiedRange], tail: _Tail
) -> Struct:
    moved = []
    for first, run in _runs(row_group):
        start = sink.tell()
        ranges.append(_copy_range(source, sink, first, sum(chunk_range(c)[1] for c in run)))
        moved += [_moved_chunk(source, chunk, start - first, tail) for chunk in run]
    result: Struct = {key: row_group[key] for key in row_group if key != _VENDOR_FIELD}
    result.pop(RowGroupField.ORDINAL, None)
    result[RowGroupField.COLUMNS] = struct_list(moved)
    result[RowGroupField.FILE_OFFSET] = (I64, chunk_range(moved[0])[0])
    total = sum(chunk_range(chunk)[1] for chunk in moved)
    result.setdefault(RowGroupField.COMPRESSED_BYTES, (I64, total))
    return result


def _runs(row_group: Struct) -> Iterator[tuple[int, list[Struct]]]:
    """Yield runs of chunks that lie one behind the other, in schema order, with their start."""
    run: list[Struct] = []
    first = end = -1
    for chunk in chunks(row_group):
        start, length = chunk_range(chunk)
        if run and start != end:
            yield first, run
            run = []
        first = first if run else start
        run.append(chunk)
        end = start + length
    if run:
        yield first, run


def _copy_range(source: Source, sink: Sink, start: int, length: int) -> CopiedRange:
    at, crc, done = sink.tell(), 0, 0
    while done < length:
        size = min(BLOCK_BYTES, length - done)
        block = source.store.get_range(source.key, start=start + done, length=size)
        if len(block) < size:
            raise CorruptFileError(
                f"{source.key} ends at {start + done + len(block)}, in the middle of a chunk",
                path=source.key,
                hint="it was cut off since its footer was read; restore it from a copy",
            )
        crc = crc32(block, crc)
        sink.write(block)
        done += size
    return CopiedRange(start=at, length=length, crc=crc)


def _moved_chunk(source: Source, chunk: Struct, delta: int, tail: _Tail) -> Struct:
    column = dict(field(chunk, ChunkField.METADATA))
    column.pop(_VENDOR_FIELD, None)
    column[ColumnField.DATA_PAGE] = (I64, field(column, ColumnField.DATA_PAGE) + delta)
    old_dictionary = dictionary_offset(field(chunk, ChunkField.METADATA))
    column.pop(ColumnField.DICTIONARY_PAGE, None)
    if old_dictionary is not None:
        column[ColumnField.DICTIONARY_PAGE] = (I64, old_dictionary + delta)
    if ColumnField.INDEX_PAGE in column:
        column[ColumnField.INDEX_PAGE] = (I64, field(column, ColumnField.INDEX_PAGE) + delta)
    _drop_old_bounds(column)
    moved: Struct = {ChunkField.FILE_OFFSET: (I64, 0), ChunkField.METADATA: (12, column)}
    _collect_bloom(source, column, tail)
    _collect_indexes(source, chunk, moved, delta, tail)
    return moved


def _drop_old_bounds(column: Struct) -> None:
    """Drop deprecated bounds of undefined order: readers trust them by the name of the writer."""
    if field(column, ColumnField.TYPE) not in _UNORDERED_TYPES:
        return
    if ColumnField.STATISTICS in column:
        kind, statistics = column[ColumnField.STATISTICS]
        old = (StatisticsField.OLD_MAX, StatisticsField.OLD_MIN)
        column[ColumnField.STATISTICS] = (
            kind,
            {key: statistics[key] for key in statistics if key not in old},
        )


def _collect_bloom(source: Source, column: Struct, tail: _Tail) -> None:
    offset = field(column, ColumnField.BLOOM)
    if offset is None:
        return
    length = field(column, ColumnField.BLOOM_BYTES) or _bloom_bytes(source, offset)
    tail.blooms.append((column, source.store.get_range(source.key, start=offset, length=length)))


def _bloom_bytes(source: Source, offset: int) -> int:
    """Return the length of a bloom filter that the footer does not give: header and bits."""
    head_bytes = min(64, source.footer.file_bytes - offset)
    header, end = decode(source.store.get_range(source.key, start=offset, length=head_bytes))
    return end + int(field(header, 1))


def _collect_indexes(source: Source, chunk: Struct, moved: Struct, delta: int, tail: _Tail) -> None:
    # A column index without its offset index helps nobody.
    if ChunkField.OFFSET_INDEX not in chunk:
        return
    offsets = _blob(source, chunk, ChunkField.OFFSET_INDEX, ChunkField.OFFSET_INDEX_BYTES)
    tail.offset_indexes.append((moved, _shift_offset_index(offsets, delta)))
    if ChunkField.COLUMN_INDEX in chunk:
        bounds = _blob(source, chunk, ChunkField.COLUMN_INDEX, ChunkField.COLUMN_INDEX_BYTES)
        tail.column_indexes.append((moved, bounds))


def _blob(source: Source, chunk: Struct, offset: int, length: int) -> bytes:
    start, size = field(chunk, offset), field(chunk, length)
    blob: bytes = source.store.get_range(source.key, start=start, length=size)
    return blob


def _shift_offset_index(data: bytes, delta: int) -> bytes:
    index, _ = decode(data)
    for location in elements(index, 1):
        location[1] = (I64, field(location, 1) + delta)
    return encode(index)


def _write_tail(sink: Sink, tail: _Tail) -> None:
    """Write bloom filters, column indexes and offset indexes: contiguous and next to the footer."""
    for column, blob in tail.blooms:
        column[ColumnField.BLOOM] = (I64, sink.tell())
        column[ColumnField.BLOOM_BYTES] = (I32, len(blob))
        sink.write(blob)
    for chunk, blob in tail.column_indexes:
        chunk[ChunkField.COLUMN_INDEX] = (I64, sink.tell())
        chunk[ChunkField.COLUMN_INDEX_BYTES] = (I32, len(blob))
        sink.write(blob)
    for chunk, blob in tail.offset_indexes:
        chunk[ChunkField.OFFSET_INDEX] = (I64, sink.tell())
        chunk[ChunkField.OFFSET_INDEX_BYTES] = (I32, len(blob))
        sink.write(blob)


def _write_footer(
    sink: Sink,
    first: Footer,
    row_groups: list[Struct],
    *,
    created_by: str,
    pairs: Mapping[str, str],
) -> None:
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
    sink.write(footer + struct.pack("<I", len(footer)) + MAGIC)
