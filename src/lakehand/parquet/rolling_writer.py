"""Streams batches into Parquet files of a target size, as Spark and Delta readers expect.

Rows are encoded into row groups in memory, each of which is a small Parquet file until it is
appended. So several are encoded in parallel, and each has its own choice of dictionary columns.
"""

from __future__ import annotations

import struct
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehand.parquet.dictionaries import (
    DICTIONARY_BYTES,
    columns_without_dictionary,
    unify_dictionaries,
    without_dictionaries,
)
from lakehand.parquet.footer import TRAILER_BYTES, Footer, parse_footer
from lakehand.parquet.row_group_copy import Assembly, CopiedRange, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from lakehand.model.order import Term
    from lakehand.storage import Store

# Row groups, encoded in memory

_MAX_PAGE_ROWS = 20_000
_PAGE_BYTES = 2**20
#: Rows are passed to the encoder in slices of at most this many bytes of one column.
_MIN_PIECE_ROWS = 64
#: From this size on, memory is kept for the next row group rather than freed after each.
_AMPLE_MEMORY_BYTES = 64 * 2**20
#: Maximum size of a footer.
_SPARE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetLayout:
    """How files are written."""

    target_file_bytes: int
    codec: str = "zstd"
    #: None: the codec's default.
    codec_level: int | None = None
    #: Whether columns may have dictionaries, and whether pages have statistics.
    has_dictionaries: bool = True
    has_page_index: bool = True
    row_group_rows: int = 512 * 1024
    row_group_bytes: int = 64 * 2**20
    #: Maximum memory for the rows of one row group before they are encoded.
    group_memory_bytes: int = 256 * 2**20
    #: Row groups that are encoded in parallel.
    threads: int = 1
    data_page_version: str = "1.0"
    #: Sort order of the rows, by the paths of leaves in the file; recorded in row groups.
    sorted_by: tuple[Term, ...] = ()
    #: Columns with Bloom filters, and their false-positive rate.
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.01
    #: Written into every footer.
    key_values: Mapping[str, str] = dataclass_field(default_factory=dict)
    #: Known in advance: makes the size of the first file exact.
    expected_rows: int | None = None
    expected_bytes_per_row: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedGroup:
    """A row group as a Parquet file in memory."""

    content: pa.Buffer
    metadata: pq.FileMetaData
    #: Memory of the content, reused for another row group after this one is written.
    room: pa.Buffer | None = None

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    @property
    def data_bytes(self) -> int:
        """Bytes of the row group in a file, without indexes and footer."""
        group = self.metadata.row_group(0)
        return sum(group.column(i).total_compressed_size for i in range(group.num_columns))

    def source(self) -> Source:
        """Return the source that an assembly appends."""
        return Source.of(_Memory(self.content), "", self.footer())

    def footer(self) -> Footer:
        view = memoryview(self.content)
        (footer_bytes,) = struct.unpack("<I", view[-TRAILER_BYTES:-4])
        data = bytes(view[-TRAILER_BYTES - footer_bytes : -TRAILER_BYTES])
        return parse_footer(data, path="a row group in memory", file_bytes=len(view))


class _Memory:
    """Bytes of one object. Ranges are copies: a reference to one must not keep all of them."""

    def __init__(self, content: pa.Buffer) -> None:
        self._view = memoryview(content).cast("B")

    def get_range(self, key: str, *, start: int, length: int) -> bytes:  # noqa: ARG002  one object
        return bytes(self._view[start : start + length])


class RowGroupEncoder:
    """Encodes rows in the form that Spark and Delta readers expect."""

    def __init__(self, schema: pa.Schema, layout: ParquetLayout) -> None:
        self._layout = layout
        self._sorting = _sorting_columns(schema, layout.sorted_by)
        #: Leaves with dictionaries, in the form of Arrow's option.
        self._dictionaries: bool | list[str] = layout.has_dictionaries
        self._rooms: deque[pa.Buffer] = deque()

    def learn(self, rows: pa.Table) -> None:
        """Disable dictionaries that would only cost space and time."""
        if not self._layout.has_dictionaries:
            return
        useless = columns_without_dictionary(rows, self._layout.codec)
        if useless:
            self._dictionaries = [path for path in _stored_paths(rows) if path not in useless]

    def encode(self, rows: pa.Table) -> EncodedGroup:
        """Return all of `rows` as one row group; `reuse` it after it is written."""
        # Bloom filters are written last, so the memory cannot be reused before.
        encoded = None if self._layout.bloom_columns else self._encode_in_room(rows)
        if encoded is None:
            sink = pa.BufferOutputStream()
            metadata = self._write(rows, sink)
            encoded = EncodedGroup(content=sink.getvalue(), metadata=metadata)
        if self._layout.group_memory_bytes < _AMPLE_MEMORY_BYTES:
            # Otherwise Arrow caches what this thread has freed.
            pa.default_memory_pool().release_unused()
        return encoded

    def reuse(self, group: EncodedGroup) -> None:
        """Reuse the memory of a row group that is no longer needed."""
        if group.room is not None:
            self._rooms.append(group.room)

    def _encode_in_room(self, rows: pa.Table) -> EncodedGroup | None:
        """Encode into existing memory; None if it is too small.

        A growing buffer is moved several times, and cleared by the system for each row group.
        """
        likely = min(rows.get_total_buffer_size(), 2 * self._layout.row_group_bytes)
        room = self._rooms.popleft() if self._rooms else pa.allocate_buffer(0)
        if room.size < likely + _SPARE_BYTES:
            room = pa.allocate_buffer(likely + likely // 8 + _SPARE_BYTES)
        sink = pa.FixedSizeBufferWriter(room)
        try:
            metadata = self._write(rows, sink)
        except (OSError, RuntimeError):
            # The second error is raised by a writer without space when it is closed.
            return None
        return EncodedGroup(content=room.slice(0, sink.tell()), metadata=metadata, room=room)

    def _write(self, rows: pa.Table, sink: pa.NativeFile) -> pq.FileMetaData:
        layout = self._layout
        found: list[pq.FileMetaData] = []
        with pq.ParquetWriter(
            sink,
            rows.schema,
            version="2.6",
            data_page_version=layout.data_page_version,
            compression=layout.codec,
            compression_level=layout.codec_level,
            use_dictionary=self._dictionaries,
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            # INT32, INT64 or fixed bytes by precision, as Spark writes it, so that files can be
            # copied together.
            store_decimal_as_integer=True,
            use_compliant_nested_type=True,
            write_statistics=True,
            write_page_index=layout.has_page_index,
            write_page_checksum=True,
            # Arrow's schema would fix one reader's view of the types.
            store_schema=False,
            write_batch_size=_piece_rows(rows),
            sorting_columns=self._sorting,
            max_rows_per_page=_MAX_PAGE_ROWS,
            data_page_size=_PAGE_BYTES,
            bloom_filter_options=_bloom_filters(rows, layout),
            metadata_collector=found,
        ) as writer:
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        return found[0]


def _sorting_columns(schema: pa.Schema, terms: Sequence[Term]) -> list[pq.SortingColumn] | None:
    """Return the sort columns of row groups, by leaf index."""
    numbers = {path: number for number, path in enumerate(_leaf_paths(schema))}
    found = [term for term in terms if term.path in numbers]
    columns = [
        pq.SortingColumn(
            numbers[term.path], descending=term.descending, nulls_first=term.nulls_first
        )
        for term in found
    ]
    return columns if columns and len(found) == len(terms) else None


def _leaf_paths(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for field_ in fields:
        path, kind = (*above, field_.name), field_.type
        if pa.types.is_nested(kind):
            members = (kind.field(number) for number in range(kind.num_fields))
            yield from _leaf_paths(members, path)
        else:
            yield path


def _stored_paths(rows: pa.Table) -> list[str]:
    """Return the leaf paths as in a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows.slice(0, 0), sink, use_compliant_nested_type=True)
    schema = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [schema.column(number).path for number in range(len(schema))]


def _bloom_filters(rows: pa.Table, layout: ParquetLayout) -> dict[str, Any] | None:
    """Return the sizes of Bloom filters: the distinct values here must fit into each."""
    names = [name for name in layout.bloom_columns if name in rows.column_names]
    return {
        name: {"ndv": max(1, pc.count_distinct(rows[name]).as_py()), "fpp": layout.bloom_fpp}
        for name in names
    } or None


def _piece_rows(rows: pa.Table) -> int:
    """Return the number of rows encoded at a time: many cost less, but pages must stay small."""
    # Numbers are narrow, and measuring each column costs as much as encoding some.
    wide = [column for column in rows.columns if not _is_narrow(column.type)]
    widest = max((column.nbytes for column in wide), default=0) / max(1, rows.num_rows)
    return int(max(_MIN_PIECE_ROWS, min(_MAX_PAGE_ROWS, _PAGE_BYTES / max(1.0, widest))))


def _is_narrow(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


# Files of a target size

#: A file may exceed its target by this fraction, rather than leave a very small file.
_OVERSHOOT = 0.10
#: A file this close to its target is full.
_FULL = 0.92
#: Minimum number of row groups in a file of the target size, so that its size can be controlled.
_MIN_GROUPS_PER_FILE = 4
#: Maximum assumed ratio of Arrow memory of rows to their bytes in the file.
_MAX_EXPANSION = 8
#: A smaller row group is encoded by the calling thread, if no other is being encoded.
_SMALL_BYTES = 2**20
#: If the bytes per row of two row groups differ by less, they predict those still being encoded.
_STEADY = 0.05
#: A batch with this much more memory per row is a slice of a larger one, or has other rows.
_LIKELY = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A complete file in storage."""

    key: str
    bytes: int
    rows: int
    #: Arrow's metadata of each row group; offsets are not those in the file.
    row_groups: tuple[pq.RowGroupMetaData, ...]
    #: Indexes and footer.
    tail: CopiedRange


class RollingWriter:
    """Writes batches of one schema into files, starting the next one when one is full.

    Batches are collected into row groups of a reasonable size, several of which are encoded in
    parallel if the layout allows. Without rows no file is created. If the block ends with an
    exception, open files are discarded; completed files stay.
    """

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        layout: ParquetLayout,
        *,
        name: Callable[[int], str],
        form: Callable[[pa.Table], pa.Table] = lambda rows: rows,
        watch: Callable[[int, pa.Table], None] = lambda _index, _rows: None,
    ) -> None:
        """`name` returns the key of the n-th file; `watch` gets the rows of each file.

        `form` converts rows to `schema`: for a whole row group at once its cost is negligible.
        """
        self._store = store
        self._schema = schema
        self._layout = layout
        self._name = name
        self._form = form
        self._watch = watch
        self._gathered: deque[pa.RecordBatch] = deque()
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._bytes_per_row: float | None = None
        self._is_steady = False
        self._rows = 0
        self._encoder = RowGroupEncoder(schema, layout)
        self._pool = ThreadPoolExecutor(layout.threads, thread_name_prefix="encode")
        self._encoding: deque[tuple[_OpenFile, Future[EncodedGroup]]] = deque()
        self._opened = 0
        self._open: _OpenFile | None = None
        #: Files that get no further row groups, but wait for some that are being encoded.
        self._ending: deque[_OpenFile] = deque()
        self._files: list[WrittenFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        if kind is not None:
            for file in self._ending:
                file.abort()
            if self._open is not None:
                self._open.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of `batch`; they are written with their row group."""
        if not batch.num_rows:
            return
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += self._bytes_of(batch)
        while self._gathered_rows >= (rows := self._next_group_rows()):
            if not self._settle_first():
                self._write_group(rows)

    def close(self) -> tuple[WrittenFile, ...]:
        """Write the remaining rows and return the files."""
        self.flush()
        self._end_file()
        return tuple(self._files)

    @property
    def gathered_bytes(self) -> int:
        """Memory of the rows that wait for their row group to be full."""
        return self._gathered_bytes

    def flush(self) -> None:
        """Write the rows collected so far, as a row group that may not be full."""
        while self._gathered_rows:
            if not self._settle_first():
                self._write_group(min(self._gathered_rows, self._next_group_rows()))
        self._append(all_but=0)

    def _next_group_rows(self) -> int:
        per_row, layout = self._per_row(), self._layout
        group_bytes = min(layout.row_group_bytes, layout.target_file_bytes / _MIN_GROUPS_PER_FILE)
        in_memory = layout.group_memory_bytes / self._memory_per_row()
        rows = min(layout.row_group_rows, group_bytes / per_row, in_memory)
        if not self._rest_fits(per_row):
            rows = min(rows, (layout.target_file_bytes - self._position()) / per_row)
        return max(1, int(rows))

    def _per_row(self) -> float:
        """Return bytes per row in the file; before the first row group, an upper estimate."""
        if self._bytes_per_row is not None:
            return self._bytes_per_row
        memory = self._memory_per_row()
        return max(self._layout.expected_bytes_per_row or memory, memory / _MAX_EXPANSION)

    def _rest_fits(self, per_row: float) -> bool:
        """Return whether all remaining rows may fit into the open file."""
        expected = self._layout.expected_rows
        if expected is None or expected < self._rows + self._gathered_rows:
            return False
        rest = (expected - self._rows) * per_row
        return self._position() + rest <= (1 + _OVERSHOOT) * self._layout.target_file_bytes

    def _memory_per_row(self) -> float:
        return max(1.0, self._gathered_bytes / max(1, self._gathered_rows))

    def _position(self) -> float:
        """Return the bytes of the open file, including estimates of row groups being encoded."""
        if self._open is None:
            return 0
        return self._open.bytes + self._open.rows_in_works * self._per_row()

    def _write_group(self, rows: int) -> None:
        group = self._take(rows)
        if self._open is None:
            self._open = _OpenFile(self._store, self._name(self._opened), self._layout)
            self._opened += 1
        self._watch(self._opened - 1, group)
        self._rows += rows
        self._encode(group)
        self._end_if_full()

    def _end_if_full(self) -> None:
        is_full = self._position() >= _FULL * self._layout.target_file_bytes
        if is_full and not self._rest_fits(self._bytes_per_row or 0):
            self._end_file()

    def _encode(self, group: pa.Table) -> None:
        """Encode the row group, now or in a thread while more rows are collected."""
        assert self._open is not None  # noqa: S101  opened by the caller
        self._open.rows_in_works += group.num_rows
        if self._rows == group.num_rows:
            self._encoder.learn(group)
        self._encoding.append((self._open, self._start_encoding(group)))
        del group
        self._append(all_but=0 if self._must_wait() else self._layout.threads)

    def _start_encoding(self, group: pa.Table) -> Future[EncodedGroup]:
        if self._layout.threads > 1 and (self._encoding or group.nbytes > _SMALL_BYTES):
            return self._pool.submit(self._encoder.encode, group)
        # Faster than starting a thread, whose heap has to be cleared by the system.
        done: Future[EncodedGroup] = Future()
        done.set_result(self._encoder.encode(group))
        return done

    def _must_wait(self) -> bool:
        """Return whether to wait for the row groups being encoded."""
        return self._layout.threads == 1 or (self._is_near_end() and not self._is_steady)

    def _is_near_end(self) -> bool:
        return self._position() > self._layout.target_file_bytes / 2

    def _settle_first(self) -> bool:
        """Wait for the first row group if its size, which predicts others, is needed now."""
        if self._bytes_per_row is not None or not self._encoding:
            return False
        if self._layout.expected_bytes_per_row and not self._is_near_end():
            return False
        self._append(all_but=0)
        self._end_if_full()
        return True

    def _append(self, *, all_but: int) -> None:
        """Append row groups to their files, oldest first, until `all_but` are being encoded."""
        while len(self._encoding) > all_but:
            file, future = self._encoding[0]
            group = future.result()
            file.append(group)
            self._encoding.popleft()
            self._encoder.reuse(group)
            found = max(group.data_bytes / group.rows, 1e-3)
            self._is_steady = abs(found / (self._bytes_per_row or found / 2) - 1) < _STEADY
            self._bytes_per_row = found
            self._close_ended()

    def _end_file(self) -> None:
        if self._open is not None:
            self._ending.append(self._open)
            self._open = None
        self._close_ended()

    def _close_ended(self) -> None:
        while self._ending and not self._ending[0].rows_in_works:
            self._files.append(self._ending[0].close())
            self._ending.popleft()

    def _bytes_of(self, batch: pa.RecordBatch) -> int:
        """Return the memory of the rows of `batch`, not of the larger batch it may be a slice of.

        Examining every value costs as much as encoding some columns.
        """
        size: int = batch.get_total_buffer_size()
        expected = self._memory_per_row() * batch.num_rows
        return size if self._gathered and size < _LIKELY * expected else batch.nbytes

    def _take(self, rows: int) -> pa.Table:
        """Remove the next rows, in the form of the file."""
        self._gathered_bytes -= self._gathered_bytes * rows // self._gathered_rows
        self._gathered_rows -= rows
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._gathered.popleft()
            if batch.num_rows > rows:
                self._gathered.appendleft(batch.slice(rows))
                batch = batch.slice(0, rows)
            taken.append(batch)
            rows -= batch.num_rows
        alike = groupby(taken, key=lambda batch: batch.schema)
        runs = [self._form(pa.Table.from_batches(list(batches))) for _, batches in alike]
        if len(runs) > 1 or self._layout.bloom_columns:
            # Some have dictionaries, others plain strings; Bloom filters are made of plain strings.
            runs = [without_dictionaries(run) for run in runs]
        return unify_dictionaries(pa.concat_tables(runs))


class _OpenFile:
    """One file between its first byte and its footer."""

    def __init__(self, store: Store, key: str, layout: ParquetLayout) -> None:
        self._key = key
        self._key_values = layout.key_values
        self._sink = store.open_writer(key)
        self._assembly = Assembly(self._sink)
        self._groups: list[pq.RowGroupMetaData] = []
        self._created_by = ""
        self.rows = 0
        #: Rows that are being encoded for this file.
        self.rows_in_works = 0

    @property
    def bytes(self) -> int:
        """Bytes of the finished row groups."""
        return int(self._sink.tell())

    def append(self, group: EncodedGroup) -> None:
        self._assembly.add(group.source())
        self._groups.append(group.metadata.row_group(0))
        self._created_by = group.metadata.created_by
        self.rows += group.rows
        self.rows_in_works -= group.rows

    def close(self) -> WrittenFile:
        made = self._assembly.finish(created_by=self._created_by, key_values=self._key_values)
        size = self._sink.tell()
        self._sink.close()
        return WrittenFile(
            key=self._key,
            bytes=size,
            rows=self.rows,
            row_groups=tuple(self._groups),
            tail=made.tail,
        )

    def abort(self) -> None:
        self._sink.abort()
