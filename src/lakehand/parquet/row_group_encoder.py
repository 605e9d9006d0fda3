"""Encodes rows into row groups in memory, ready to be appended to a file.

Each row group is a small Parquet file until then. So several can be encoded in parallel, and each
can have its own choice of dictionary columns.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehand.parquet.dictionaries import DICTIONARY_BYTES, columns_without_dictionary
from lakehand.parquet.footer import TRAILER_BYTES, parse_footer
from lakehand.parquet.row_group_copy import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.model.order import Term
    from lakehand.parquet.footer import Footer

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
        self._dictionaries: bool | list[str] = True
        self._rooms: deque[pa.Buffer] = deque()

    def learn(self, rows: pa.Table) -> None:
        """Disable dictionaries that would only cost space and time."""
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
            write_page_index=True,
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
