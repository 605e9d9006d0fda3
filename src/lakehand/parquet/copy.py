"""Row groups moved byte for byte from several files into one.

Pages hold no positions, so they are copied as they are. What holds a position is rewritten: chunk
offsets, offset indexes, the places of page indexes and bloom filters, the footer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from lakehand.parquet.blocks import read_blocks
from lakehand.parquet.checksums import PageChecker
from lakehand.parquet.crc import crc32
from lakehand.parquet.footer import (
    MAGIC,
    FileField,
    Footer,
    RowGroupField,
    chunk_range,
    chunks,
    field,
    read_footer,
    row_group_bytes,
    struct_list,
)
from lakehand.parquet.relocation import VENDOR_FIELD, Relocation, Tail
from lakehand.parquet.thrift import BINARY, I32, I64, Struct, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.parquet.blocks import Ranges
    from lakehand.storage import Store


#: Indexes are small and many; they are written in pieces of this size.
_TAIL_PIECE_BYTES = 512 * 1024


class Sink(Protocol):
    """Where the new file goes."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def tell(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A file whose row groups are copied."""

    store: Ranges
    key: str
    footer: Footer
    #: Numbers of the row groups that are copied.
    chosen: tuple[int, ...]
    #: Whether checksums are compared and taken; not where rows that were just encoded are proved.
    is_checked: bool = False

    @classmethod
    def of(cls, store: Ranges, key: str, footer: Footer) -> Self:
        """Return a source of all row groups that hold rows: readers stumble over others."""
        groups = enumerate(footer.row_groups)
        chosen = tuple(number for number, group in groups if field(group, RowGroupField.ROWS))
        return cls(store=store, key=key, footer=footer, chosen=chosen)

    @classmethod
    def stored(cls, store: Store, key: str, footer: Footer | None = None) -> Self:
        """Return a file of `store` as a source; its footer is read unless it is given."""
        source = cls.of(store, key, footer or read_footer(store, key))
        return replace(source, is_checked=True)

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

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of `ranges` in blocks, each gone when the next is asked for."""
        return read_blocks(self.store, self.key, ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedRange:
    """A run of bytes at its new place, with a checksum taken before they were written."""

    start: int
    length: int
    crc: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """What a copy wrote."""

    rows: int
    row_groups: int
    #: All pages of the new file, with checksums of their source.
    ranges: tuple[CopiedRange, ...]
    #: Indexes and footer, from the last page to the end of the file.
    tail: CopiedRange


class Assembly:
    """A file in the making: row groups go behind each other, and the tail behind the last."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._tail = Tail()
        self._row_groups: list[Struct] = []
        self._first: Footer | None = None
        self._ranges: list[CopiedRange] = []
        sink.write(MAGIC)

    def add(self, source: Source) -> None:
        """Append the row groups of `source`, whose schema must be that of all others."""
        self._first = self._first or source.footer
        relocation, runs = Relocation(source, self._tail), _runs(source)
        self._ranges += _copy_runs(source, runs, self._sink)
        pieces = zip(runs, self._ranges[-len(runs) :], strict=True)
        moved = (
            relocation.move(chunk, piece.start - run.start)
            for run, piece in pieces
            for chunk in run.chunks
        )
        self._row_groups += [_moved_row_group(group, moved) for group in source.row_groups]

    def finish(self, *, created_by: str, key_values: Mapping[str, str]) -> Copied:
        """Write indexes and footer; at least one source must have been added."""
        assert self._first is not None  # noqa: S101  promised above
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
    sources: Sequence[Source], sink: Sink, *, created_by: str, key_values: Mapping[str, str]
) -> Copied:
    """Write one Parquet file that holds the row groups of `sources`, in order.

    The sources must have been found copyable with each other; this only moves bytes.
    CorruptFileError if a page does not have the checksum that its header gives.
    """
    assembly = Assembly(sink)
    for source in sources:
        assembly.add(source)
    return assembly.finish(created_by=created_by, key_values=key_values)


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks that lie one behind the other."""

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
    columns = [next(moved) for _ in chunks(row_group)]
    result: Struct = {key: row_group[key] for key in row_group if key != VENDOR_FIELD}
    result.pop(RowGroupField.ORDINAL, None)
    result[RowGroupField.COLUMNS] = struct_list(columns)
    result[RowGroupField.FILE_OFFSET] = (I64, chunk_range(columns[0])[0])
    result.setdefault(RowGroupField.COMPRESSED_BYTES, (I64, row_group_bytes(result)))
    return result


class _TailSink:
    """Puts small pieces together, and sums up what goes through it."""

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
        """Return all that was written; nothing is left to be sent then."""
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
