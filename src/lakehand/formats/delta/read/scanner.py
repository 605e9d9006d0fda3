"""Whole files read for a rewrite: by DuckDB, which hashes rows as it decodes them, or by Arrow.

DuckDB takes a fraction of the time. What it might not read as it is meant is left to Arrow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.types as pat

from lakehand.duckdb_pool import Config, lease
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.protocol.schema import MappingMode, physical_name
from lakehand.formats.delta.read.file_plan import PLACE_FIELDS, ReadRequest, SourceFile, read_rows
from lakehand.formats.delta.read.projection import relabel
from lakehand.formats.delta.read.sql_rows import SqlRows, sql_rows, texts_variable
from lakehand.formats.worker import Decoder, NotDecodable, TaskLimits
from lakehand.parquet.checksums import pages_are_intact
from lakehand.parquet.columns import by_schema
from lakehand.parquet.dictionaries import DictionaryDecoder
from lakehand.parquet.footer_facts import check_size
from lakehand.prove.deep_lists import hashable_schema, is_deep
from lakehand.prove.digest import (
    Digester,
    digest_query,
    hashable,
    placed_lanes_query,
    query_with_lanes,
)
from lakehand.storage.scratch import Portion, local_portions
from lakehand.temporary import held_directory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


#: Hashes and places are small, hence large batches.
_HASHES_A_BATCH = 128 * 1024
#: Columns of more rows are kept in memory that malloc gives back, and has to clear, each time.
_ROWS_A_BATCH = 8 * 1024
#: Bytes of rows that are decoded ahead of the one who takes them.
_AHEAD_BYTES = 64 * 2**20


@contextmanager
def open_scanner(
    request: ReadRequest, *, limits: TaskLimits, decoder: Decoder
) -> Iterator[Scanner]:
    """Return what reads files as `request` says; NotDecodable where DuckDB gives up on one."""
    with held_directory(limits.scratch_directory, purpose="scan") as scratch:
        scanner = Scanner(
            request=request, limits=limits, decoder=decoder, scratch=Path(scratch).absolute()
        )
        try:
            yield scanner
        except duckdb.Error as error:
            raise NotDecodable(str(error).partition("\n")[0]) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanner:
    """Reads whole files, in bounded memory and disk."""

    request: ReadRequest
    limits: TaskLimits
    decoder: Decoder
    scratch: Path

    def read(self, files: Sequence[SourceFile], digester: Digester) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `files`, each counted in `digester`."""
        with self._connect() as connection:
            for query in self._queries(connection, files):
                if query.rows is None:
                    yield from self._read_by_arrow(query.files, digester)
                else:
                    with _checked_pages(query.paths):
                        yield from self._read_by_duckdb(connection, query.rows, digester)

    def read_uncounted(self, files: Sequence[SourceFile]) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `files`, for those who prove nothing by them."""
        with self._connect() as connection:
            for query in self._queries(connection, files):
                if query.rows is None:
                    yield from read_rows(self.request, query.files)
                else:
                    with _checked_pages(query.paths, columns=self._stored_columns()):
                        yield from self._read_unhashed(connection, query.rows)

    def digest(self, files: Sequence[SourceFile], digester: Digester) -> None:
        """Count the visible rows of `files` in `digester`."""
        with self._connect() as connection:
            for query in self._queries(connection, files):
                if query.rows is None:
                    for _ in self._read_by_arrow(query.files, digester):
                        pass
                else:
                    text = digest_query(query.rows.text, self.request.output)
                    [(count, first, second)] = connection.execute(text).fetchall()
                    digester.add_sums(count, int(first or 0), int(second or 0))

    def hash_placed(self, files: Sequence[SourceFile]) -> Iterator[pa.RecordBatch]:
        """Stream both hashes of visible rows, and where they lie; the request is for places."""
        schema = self.request.output
        counted = pa.schema(list(schema)[: -len(PLACE_FIELDS)])
        with self._connect() as connection:
            for query in self._queries(connection, files):
                if query.rows is not None:
                    text = placed_lanes_query(query.rows.text, counted)
                    yield from _fetch(connection.sql(text).to_arrow_reader(_HASHES_A_BATCH))
                    continue
                for batch in self._by_arrow(query.files):
                    connection.register("batch", hashable(pa.Table.from_batches([batch])))
                    text = placed_lanes_query("SELECT * FROM batch", hashable_schema(counted))
                    yield from connection.sql(text).to_arrow_table().to_batches()

    def _stored_columns(self) -> frozenset[str] | None:
        """Return the columns of files that are read, by their names there; None: possibly all."""
        request = self.request
        if request.mode is MappingMode.ID:
            return None
        names = [physical_name(column, mode=request.mode) for column in request.needed]
        if request.row_identity:
            kept = (ROW_ID_PROPERTY, ROW_VERSION_PROPERTY)
            names += [request.properties[name] for name in kept if name in request.properties]
        return frozenset(name.partition(".")[0].lower() for name in names)

    @contextmanager
    def _connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        memory_bytes = self.limits.memory_bytes // 2
        config: Config = {
            "threads": self.limits.threads,
            # Files are local. Whenever one of these has no work, it makes malloc give all free
            # memory back, which the next batches take and have cleared again.
            "async_threads": 0,
            "memory_limit": f"{memory_bytes}B",
            "max_temp_directory_size": f"{self.limits.scratch_bytes // 2}B",
            # Rows of a file are known by their position in what is read of it.
            "preserve_insertion_order": True,
        }
        # Old timestamps have no zone in the file, and are meant in UTC, as the connection is.
        with lease(config, spill_directory=self.limits.scratch_directory) as connection:
            connection.execute("SET enable_progress_bar = false")
            ahead_bytes = min(_AHEAD_BYTES, memory_bytes // 64)
            connection.execute(f"SET streaming_buffer_size = '{ahead_bytes}B'")
            yield connection

    def _queries(
        self, connection: duckdb.DuckDBPyConnection, files: Sequence[SourceFile]
    ) -> Iterator[_Query]:
        """Sort files by schema, each group with its query."""
        if self.decoder == "arrow" or is_deep(self.request.output):
            yield _Query(files=files)
            return
        for portion in self._local_portions(files):
            here = [files[position] for position in portion.positions]
            if portion.paths is None:
                yield _Query(files=here)
                continue
            _check_sizes(here, portion.paths)
            for positions in by_schema(portion.paths):
                group = [here[position] for position in positions]
                paths = [portion.paths[position] for position in positions]
                rows = sql_rows(connection, self.request, group, paths)
                if rows is not None:
                    rows.bind(connection)
                yield _Query(files=group, paths=paths, rows=rows)

    def _local_portions(self, files: Sequence[SourceFile]) -> Iterator[Portion]:
        resolved = [(*self.request.store.resolve(file.path), file.size_bytes) for file in files]
        room = self.limits.scratch_bytes // 2
        return local_portions(resolved, self.scratch / "inputs", max_copied_bytes=room)

    def _read_by_duckdb(
        self, connection: duckdb.DuckDBPyConnection, rows: SqlRows, digester: Digester
    ) -> Iterator[pa.RecordBatch]:
        schema = self.request.output
        numbered = {position: texts_variable(position) for position in rows.texts}
        texts = DictionaryDecoder(rows.texts, schema)
        query = query_with_lanes(rows.text, schema, numbered=numbered)
        most = min(rows.batch_rows, _ROWS_A_BATCH)
        for batch in _fetch(connection.sql(query).to_arrow_reader(most)):
            if batch.num_rows:
                found = digester.add_hashed(batch)
                yield texts.decode(found) if rows.texts else relabel(found, schema)

    def _read_unhashed(
        self, connection: duckdb.DuckDBPyConnection, rows: SqlRows
    ) -> Iterator[pa.RecordBatch]:
        schema = self.request.output
        # A file tells how many bytes its encoded values have: a repeated text has few.
        is_narrow = all(pat.is_primitive(kind) or pat.is_decimal(kind) for kind in schema.types)
        most = rows.batch_rows if is_narrow else min(rows.batch_rows, _ROWS_A_BATCH)
        for batch in _fetch(connection.sql(rows.text).to_arrow_reader(most)):
            yield relabel(batch, schema)

    def _read_by_arrow(
        self, files: Sequence[SourceFile], digester: Digester
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._by_arrow(files):
            digester.add(batch)
            yield batch

    def _by_arrow(self, files: Sequence[SourceFile]) -> pa.RecordBatchReader:
        if files and self.decoder == "only-duckdb":
            raise NotDecodable(f"DuckDB is not trusted to read {files[0].path} as it is meant")
        return read_rows(self.request, files)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Query:
    """Files of one schema, and how they are read."""

    files: Sequence[SourceFile]
    #: The same as local files; empty if some are too large to be.
    paths: Sequence[Path] = ()
    #: None: Arrow has to read them.
    rows: SqlRows | None = None


def _check_sizes(files: Sequence[SourceFile], paths: Sequence[Path]) -> None:
    """Refuse files of other sizes than the table says: DuckDB would not notice."""
    for file, path in zip(files, paths, strict=True):
        if path.exists():  # The reader will report that it is missing.
            check_size(file.path, found=path.stat().st_size, expected=file.stated_bytes)


@contextmanager
def _checked_pages(
    paths: Sequence[Path], *, columns: Collection[str] | None = None
) -> Iterator[None]:
    """Compare pages with their checksums while DuckDB, which does not, decodes them.

    Those of `columns` only, if not of all: a search for keys need not bring whole files to mind.

    NotDecodable at the end if one was changed: Arrow will say which.
    """
    is_over = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="checksums") as pool:
        are_intact = pool.submit(
            lambda: all(
                is_over.is_set() or pages_are_intact(path, columns=columns) for path in paths
            )
        )
        try:
            yield
            if not are_intact.result():
                raise NotDecodable("a page does not have the checksum that was written with it")
        finally:
            is_over.set()


def _fetch(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Stream a result; what DuckDB finds wrong by then reaches us as an error of Arrow's."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:
            raise NotDecodable(str(error).partition("\n")[0]) from error
        yield batch
