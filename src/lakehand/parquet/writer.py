"""Streams batches into Parquet files of a wanted size, as Spark and Delta readers expect them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from lakehand.storage import Store

__all__ = ["ParquetLayout", "RollingWriter", "WrittenFile"]

#: A file may pass its target by this part, rather than leave a crumb behind.
_OVERSHOOT = 0.10
#: A file this close to its target is done.
_FULL = 0.92
#: Row groups a file of the target size has at least, so that its size can be steered.
_MIN_GROUPS_A_FILE = 4
#: Arrow memory of rows in relation to their bytes in the file: more is not believed in advance.
_MAX_EXPANSION = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetLayout:
    """How the bytes are laid out."""

    target_file_bytes: int
    codec: str = "zstd"
    #: None: the codec's own default.
    codec_level: int | None = None
    row_group_rows: int = 512 * 1024
    row_group_bytes: int = 64 * 2**20
    data_page_version: str = "1.0"
    #: Written into every footer.
    key_values: Mapping[str, str] = field(default_factory=dict)
    #: What is known in advance: they make the size of the first file exact.
    expected_rows: int | None = None
    expected_bytes_per_row: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A complete file in storage."""

    key: str
    bytes: int
    rows: int


class RollingWriter:
    """Writes batches of one schema into files, the next one begun when one is full.

    Batches are gathered into row groups of a healthy size. No file is made for no rows. Leaving
    the block by an exception makes the file that was open vanish; files before it stay.
    """

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        layout: ParquetLayout,
        *,
        name: Callable[[int], str],
        watch: Callable[[int, pa.Table], None] = lambda _index, _rows: None,
    ) -> None:
        """`name` gives the key of the n-th file; `watch` sees what goes into which file."""
        self._store = store
        self._schema = schema
        self._layout = layout
        self._name = name
        self._watch = watch
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._bytes_per_row: float | None = None
        self._rows = 0
        self._open: _OpenFile | None = None
        self._files: list[WrittenFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and self._open is not None:
            self._open.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`; they reach storage with their row group."""
        if not batch.num_rows:
            return
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += batch.nbytes
        while self._gathered_rows >= (rows := self._next_group_rows()):
            self._write_group(rows)

    def close(self) -> tuple[WrittenFile, ...]:
        """Write what is left and return the files."""
        while self._gathered_rows:
            self._write_group(min(self._gathered_rows, self._next_group_rows()))
        self._close_file()
        return tuple(self._files)

    def _next_group_rows(self) -> int:
        per_row = self._bytes_per_row or self._first_guess()
        layout = self._layout
        group_bytes = min(layout.row_group_bytes, layout.target_file_bytes / _MIN_GROUPS_A_FILE)
        in_memory = _MAX_EXPANSION * layout.row_group_bytes / self._memory_per_row()
        rows = min(layout.row_group_rows, group_bytes / per_row, in_memory)
        if not self._rest_fits(per_row):
            rows = min(rows, (layout.target_file_bytes - self._position()) / per_row)
        return max(1, int(rows))

    def _first_guess(self) -> float:
        """Return bytes a row before any is written: rather too many, so that no file is too big."""
        memory = self._memory_per_row()
        return max(self._layout.expected_bytes_per_row or memory, memory / _MAX_EXPANSION)

    def _rest_fits(self, per_row: float) -> bool:
        """Say whether all rows to come may go into the open file."""
        expected = self._layout.expected_rows
        if expected is None or expected < self._rows + self._gathered_rows:
            return False
        rest = (expected - self._rows) * per_row
        return self._position() + rest <= (1 + _OVERSHOOT) * self._layout.target_file_bytes

    def _memory_per_row(self) -> float:
        return max(1.0, self._gathered_bytes / max(1, self._gathered_rows))

    def _position(self) -> int:
        return self._open.bytes if self._open else 0

    def _write_group(self, rows: int) -> None:
        group = self._take(rows)
        if self._open is None:
            key = self._name(len(self._files))
            self._open = _OpenFile(self._store, key, self._schema, self._layout)
        self._watch(len(self._files), group)
        self._open.write(group)
        self._rows += rows
        self._bytes_per_row = max(self._open.bytes / self._open.rows, 1e-3)
        is_full = self._open.bytes >= _FULL * self._layout.target_file_bytes
        if is_full and not self._rest_fits(self._bytes_per_row):
            self._close_file()

    def _take(self, rows: int) -> pa.Table:
        gathered = pa.Table.from_batches(self._gathered, self._schema)
        rest = gathered.slice(rows)
        self._gathered = rest.to_batches()
        self._gathered_rows = rest.num_rows
        self._gathered_bytes = rest.nbytes
        return gathered.slice(0, rows)

    def _close_file(self) -> None:
        if self._open is not None:
            self._files.append(self._open.close())
            self._open = None


class _OpenFile:
    """One file between its first byte and its footer."""

    def __init__(self, store: Store, key: str, schema: pa.Schema, layout: ParquetLayout) -> None:
        self._key = key
        self._layout = layout
        self._sink = store.open_writer(key)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            version="2.6",
            data_page_version=layout.data_page_version,
            compression=layout.codec,
            compression_level=layout.codec_level,
            use_dictionary=True,
            # INT32, INT64 or fixed bytes by precision: what Spark writes and copies can meet.
            store_decimal_as_integer=True,
            use_compliant_nested_type=True,
            write_statistics=True,
            write_page_index=True,
            write_page_checksum=True,
            # Arrow's own schema would pin one reader's view of the types.
            store_schema=False,
            max_rows_per_page=20_000,
            data_page_size=2**20,
        )
        self.rows = 0

    @property
    def bytes(self) -> int:
        """Bytes of the finished row groups."""
        return int(self._sink.tell())

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=group.num_rows)
        self.rows += group.num_rows

    def close(self) -> WrittenFile:
        if self._layout.key_values:
            self._writer.add_key_value_metadata(dict(self._layout.key_values))
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return WrittenFile(key=self._key, bytes=size, rows=self.rows)

    def abort(self) -> None:
        # Else pyarrow would try to write a footer into the aborted sink.
        self._writer.is_open = False
        self._sink.abort()
