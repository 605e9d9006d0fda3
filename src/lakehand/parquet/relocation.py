"""What has to change in a column chunk, and in what belongs to it, when its pages move."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from lakehand.errors import CorruptFileError
from lakehand.parquet.blocks import read_places
from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    StatisticsField,
    chunks,
    dictionary_offset,
    field,
)
from lakehand.parquet.leaves import BYTE_ARRAY, FIXED_BYTES, INT96
from lakehand.parquet.offset_index import shift_offset_index
from lakehand.parquet.thrift import I32, I64, STRUCT, Struct, ThriftError, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.parquet.copy import Source

__all__ = ["VENDOR_FIELD", "Relocation", "Tail"]

#: A field that vendors may fill with a copy of the whole footer, offsets included.
VENDOR_FIELD = 32767
_UNORDERED_TYPES = (BYTE_ARRAY, FIXED_BYTES, INT96)
_BLOOM_HEADER_BYTES = 64


@dataclass(kw_only=True, slots=True)
class Tail:
    """What goes behind the data: indexes, and the chunk or column each belongs to."""

    #: Filters may be large, so they stay where they are until they are written.
    blooms: list[tuple[Struct, Source, int, int]] = dataclass_field(default_factory=list)
    column_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)
    offset_indexes: list[tuple[Struct, bytes]] = dataclass_field(default_factory=list)

    def write(self, write: Callable[[bytes | memoryview], object], tell: Callable[[], int]) -> None:
        """Write filters, column indexes and offset indexes: contiguous, next to the footer."""
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
    """Moves the chunks of one source; its indexes are read by few requests."""

    def __init__(self, source: Source, tail: Tail) -> None:
        self._source = source
        self._tail = tail
        places = (place for group in source.row_groups for place in _index_places(group))
        self._indexes: Mapping[tuple[int, int], bytes] = read_places(
            source.store, source.key, places
        )

    def move(self, chunk: Struct, delta: int) -> Struct:
        """Return `chunk` as it is `delta` bytes further on; what belongs to it goes to the tail."""
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
            message = f"an index of {key} is broken: {error}"
            hint = "restore the file from a copy, or the table to a version that does not need it"
            raise CorruptFileError(message, path=key, hint=hint) from error
        return moved

    def _collect_bloom(self, column: Struct) -> None:
        offset = field(column, ColumnField.BLOOM)
        if offset is not None:
            length = field(column, ColumnField.BLOOM_BYTES) or self._bloom_bytes(offset)
            self._tail.blooms.append((column, self._source, offset, length))

    def _bloom_bytes(self, offset: int) -> int:
        """Return the length of a filter that the footer does not give: header and bits."""
        source = self._source
        head_bytes = min(_BLOOM_HEADER_BYTES, source.footer.file_bytes - offset)
        header, end = decode(source.store.get_range(source.key, start=offset, length=head_bytes))
        return end + int(field(header, 1))

    def _collect_indexes(self, chunk: Struct, moved: Struct, delta: int) -> None:
        places = list(_places(chunk))
        if places:
            offsets, *bounds = (self._indexes[place] for place in places)
            self._tail.offset_indexes.append((moved, shift_offset_index(offsets, delta)))
            self._tail.column_indexes += [(moved, blob) for blob in bounds]


def _index_places(row_group: Struct) -> Iterator[tuple[int, int]]:
    for chunk in chunks(row_group):
        yield from _places(chunk)


def _places(chunk: Struct) -> Iterator[tuple[int, int]]:
    """Yield where the offset index of a chunk lies, and then its column index."""
    # A column index without its offset index helps nobody.
    if ChunkField.OFFSET_INDEX in chunk:
        yield field(chunk, ChunkField.OFFSET_INDEX), field(chunk, ChunkField.OFFSET_INDEX_BYTES)
        if ChunkField.COLUMN_INDEX in chunk:
            yield field(chunk, ChunkField.COLUMN_INDEX), field(chunk, ChunkField.COLUMN_INDEX_BYTES)


def _drop_old_bounds(column: Struct) -> None:
    """Drop deprecated bounds that say nothing new, or that readers trust by the writer's name."""
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
