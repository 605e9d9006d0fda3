"""Reads row groups of Parquet files from any store as Arrow batches."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CorruptFileError, ObjectNotFoundError
from lakehand.parquet.footer import (
    TAIL_BYTES,
    TRAILER_BYTES,
    ChunkField,
    ColumnField,
    chunk_range,
    chunks,
    field,
    parse_footer,
    split_footer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.parquet.footer import Footer
    from lakehand.parquet.thrift import Struct
    from lakehand.storage import Store

#: Files up to this size are read whole with one request, which is cheaper than a second one.
WHOLE_FILE_BYTES = 2**20
#: Larger row groups are read range by range while they are decoded.
_FETCHED_GROUP_BYTES = 256 * 2**20
_STREAM_BUFFER_BYTES = 4 * 2**20
_BATCH_BYTES = 16 * 2**20
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 1024, 128 * 1024


class LazyFooter:
    """A footer that is parsed when single columns are needed.

    Arrow's accessors are not used: invalid values would crash the process.
    """

    def __init__(self, data: bytes, *, path: str, file_bytes: int) -> None:
        self._data, self._path, self._file_bytes = data, path, file_bytes

    @cached_property
    def checked(self) -> Footer:
        """The footer; CorruptFileError if it is invalid."""
        return parse_footer(self._data, path=self._path, file_bytes=self._file_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFile:
    """A file whose footer was read, and whose columns were not."""

    #: Path in the table, for messages.
    path: str
    store: Store
    key: str
    size_bytes: int
    metadata: pq.FileMetaData
    #: The same, decoded and checked on first use.
    footer: LazyFooter
    #: All columns, as Arrow reads them.
    schema: pa.Schema
    #: The whole content, if it is small.
    content: bytes | None

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    @property
    def is_one_piece(self) -> bool:
        """Whether all rows are in memory, in one row group: there is nothing to skip."""
        return self.content is not None and self.metadata.num_row_groups <= 1

    def group_starts(self) -> list[int]:
        """Return the position in the file of the first row of each row group."""
        starts, position = [], 0
        for index in range(self.metadata.num_row_groups):
            starts.append(position)
            position += self.metadata.row_group(index).num_rows
        return starts

    def fetch(self, group: int, leaves: Sequence[int]) -> RowGroup:
        """Fetch the byte ranges of the columns `leaves` of a row group, unless too large."""
        if self.content is not None:
            source: Any = pa.BufferReader(self.content)
        elif (path := self.store.local_path(self.key)) is not None:
            source = pa.OSFile(str(path))
        else:
            source = self._fetch_ranges(group, leaves)
        return RowGroup(file=self, index=group, leaves=tuple(leaves), source=source)

    def _fetch_ranges(self, group: int, leaves: Sequence[int]) -> Any:
        columns = chunks(self.footer.checked.row_groups[group])
        ranges = [chunk_range(columns[leaf]) for leaf in leaves]
        if sum(length for _, length in ranges) > _FETCHED_GROUP_BYTES:
            return self.store.open_reader(self.key, size=self.size_bytes)
        return _FetchedRanges(self, sorted(ranges))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowGroup:
    """One row group, ready to be decoded."""

    file: OpenFile
    index: int
    leaves: tuple[int, ...]
    source: Any

    @property
    def rows(self) -> int:
        return int(self.file.metadata.row_group(self.index).num_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode the row group from its first row, in batches of bounded size."""
        if not self.leaves:
            yield from _batches_without_columns(self.rows)
            return
        found = 0
        try:
            for batch in self._decode():
                found += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.file.path, error) from error
        if found != self.rows:
            reason = f"a row group of {self.rows:,} rows has {found:,}"
            raise _unreadable(self.file.path, ValueError(reason))

    def _decode(self) -> Iterator[pa.RecordBatch]:
        is_streamed = not isinstance(self.source, pa.NativeFile | _FetchedRanges)
        file = _parquet_file(
            self.source,
            metadata=self.file.metadata,
            buffer_size=_STREAM_BUFFER_BYTES if is_streamed else 0,
        )
        yield from file.reader.iter_batches(
            self._batch_rows(),
            row_groups=[self.index],
            column_indices=list(self.leaves),
            use_threads=not is_streamed,
        )

    def _batch_rows(self) -> int:
        plain = int(self.file.metadata.row_group(self.index).total_byte_size)
        # Less than a batch is one batch, whichever columns are read.
        if plain > _BATCH_BYTES:
            columns = chunks(self.file.footer.checked.row_groups[self.index])
            plain = sum(_plain_bytes(columns[leaf]) for leaf in self.leaves)
        rows = _BATCH_BYTES * max(self.rows, 1) // max(plain, 1)
        return max(_MIN_BATCH_ROWS, min(rows, _MAX_BATCH_ROWS))


def open_file(store: Store, path: str, *, bytes_hint: int = 0) -> OpenFile:
    """Read the footer of the file at `path` of a table.

    `bytes_hint` is its size in the table: a small file is then read whole.
    """
    owner, key = store.resolve(path)
    wanted = bytes_hint if bytes_hint <= WHOLE_FILE_BYTES else 0
    try:
        tail, size = _footer_tail(owner, key, max(wanted, TAIL_BYTES))
    except ObjectNotFoundError as error:
        message = f"the data file {path} is missing, but the table references it"
        hint = "restore the file, or the table to a version without it"
        raise ObjectNotFoundError(message, path=path, operation="read", hint=hint) from error
    try:
        file = _parquet_file(pa.BufferReader(tail))
        schema = file.schema_arrow
        _require_all_rows(file.metadata)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return OpenFile(
        path=path,
        store=owner,
        key=key,
        size_bytes=size,
        metadata=file.metadata,
        footer=LazyFooter(split_footer(tail), path=path, file_bytes=size),
        schema=schema,
        content=tail if len(tail) == size else None,
    )


def _require_all_rows(metadata: pq.FileMetaData) -> None:
    rows = sum(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    if rows != metadata.num_rows:
        raise ValueError(f"its row groups have {rows:,} rows, its footer {metadata.num_rows:,}")


def _footer_tail(store: Store, key: str, length: int) -> tuple[bytes, int]:
    tail, size = store.get_tail(key, length)
    if len(tail) <= TRAILER_BYTES:
        return tail, size
    (footer_bytes,) = struct.unpack("<I", tail[-TRAILER_BYTES:-4])
    if len(tail) < footer_bytes + TRAILER_BYTES <= size:
        return store.get_tail(key, footer_bytes + TRAILER_BYTES)
    return tail, size


def _parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        # The default wraps times outside 1677..2262 around.
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
        **options,
    )


def _plain_bytes(chunk: Struct) -> int:
    return int(field(field(chunk, ChunkField.METADATA), ColumnField.UNCOMPRESSED_BYTES))


class _FetchedRanges:
    """A read-only file of which some ranges are in memory; the others are read on demand."""

    closed = False

    def __init__(self, file: OpenFile, ranges: Sequence[tuple[int, int]]) -> None:
        self._file = file
        self._starts = [start for start, _ in ranges]
        self._parts = [memoryview(part) for part in file.store.get_ranges(file.key, ranges)]
        self._position = 0

    def read(self, length: int = -1) -> memoryview:
        remaining = self._file.size_bytes - self._position
        wanted = remaining if length < 0 else min(length, remaining)
        data = self._held(wanted)
        if data is None:
            start = self._position
            data = memoryview(
                self._file.store.get_range(self._file.key, start=start, length=wanted)
            )
        self._position += len(data)
        return data

    def _held(self, length: int) -> memoryview | None:
        index = bisect_right(self._starts, self._position) - 1
        if index < 0:
            return None
        offset = self._position - self._starts[index]
        part = self._parts[index]
        return part[offset : offset + length] if offset + length <= len(part) else None

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._file.size_bytes)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._file.size_bytes

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._parts.clear()


def _batches_without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _MAX_BATCH_ROWS):
        count = min(_MAX_BATCH_ROWS, rows - start)
        yield pa.RecordBatch.from_struct_array(
            pa.StructArray.from_buffers(pa.struct([]), count, [None], children=[])
        )


def _unreadable(path: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"the data file {path} cannot be read: {str(error).partition(chr(10))[0]}",
        path=path,
        hint="restore the file from a backup, or the table to a version without it",
    )
