"""Rows that wait to be committed: in memory, on local disk, then in staged files."""

from __future__ import annotations

import mmap
import threading
import uuid
from contextlib import suppress
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import BackpressureError, StorageError
from lakehand.formats.worker import NewFiles, WriteSpec
from lakehand.model.table_head import Evolution
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.rows.incoming import NUMBER
from lakehand.storage.local_files import translated
from lakehand.temporary import scratch_root

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakehand.model.work import StagedFile
    from lakehand.settings import Settings
    from lakehand.sink.target import Layout, Target


class Buffer:
    """Bounded queue of batches from callers to the writer thread. Batches being written count."""

    def __init__(self, *, max_rows: int, max_bytes: int) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._taken_rows = self._taken_bytes = 0
        self._has_room = threading.Condition()

    @property
    def rows(self) -> int:
        """Rows that the writer has not taken yet."""
        return self._rows - self._taken_rows

    @property
    def bytes(self) -> int:
        """Memory of the rows that the writer has not taken yet."""
        return self._bytes - self._taken_bytes

    def put(self, batches: Sequence[pa.RecordBatch], *, wait_seconds: float = 0) -> None:
        """Take in all batches; BackpressureError if there is no room for them in time.

        A batch larger than the buffer is accepted while the buffer is empty.
        """
        rows, size = _measure(batches)
        with self._has_room:
            if not self._has_room.wait_for(lambda: self._fits(rows, size), timeout=wait_seconds):
                raise self._full(rows)
            self._waiting += batches
            self._rows += rows
            self._bytes += size

    def take(self) -> list[pa.RecordBatch]:
        """Return all waiting batches. They count until they are released."""
        with self._has_room:
            taken, self._waiting = self._waiting, []
            self._taken_rows, self._taken_bytes = self._rows, self._bytes
            return taken

    def release(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Release batches that are written, or discarded."""
        with self._has_room:
            rows, size = _measure(batches)
            self._rows, self._taken_rows = self._rows - rows, self._taken_rows - rows
            self._bytes, self._taken_bytes = self._bytes - size, self._taken_bytes - size
            self._has_room.notify_all()

    def _fits(self, rows: int, size: int) -> bool:
        if not self._rows:
            return True
        return self._rows + rows <= self._max_rows and self._bytes + size <= self._max_bytes

    def _full(self, rows: int) -> BackpressureError:
        return BackpressureError(
            f"{self._rows:,} rows ({self._bytes:,} bytes) wait to be written; {rows:,} more have no"
            f" room: at most {self._max_rows:,} rows and {self._max_bytes:,} bytes may wait",
            hint="try again when storage has caught up, or set on_backpressure to wait",
        )


def _measure(batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
    return sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)


class Spool:
    """Batches of one schema in a temporary file, read back as a memory-mapped table.

    The file has no name, so that the system deletes it however the process ends.
    """

    def __init__(self, schema: pa.Schema, *, directory: str | Path | None) -> None:
        self._schema = schema.append(pa.field(NUMBER, pa.int64()))
        self._where = scratch_root(str(directory) if directory else None)
        with translated("put", self._where):
            self._file = TemporaryFile(dir=self._where)  # noqa: SIM115  it lives until `close`
            sink = pa.PythonFile(self._file, mode="w")
            self._writer: pa.RecordBatchWriter | None = pa.ipc.new_file(sink, self._schema)
        self._rows: pa.Table | None = None
        #: Rows that were taken in.
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows, with their numbers in the order of arrival."""
        if self._writer is None:
            raise ValueError("the rows were read already")
        numbers = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        columns = [*batch.columns, pa.array(numbers)]
        with translated("put", self._where):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        """Return all rows with their numbers; no more can be added."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def close(self) -> None:
        """Delete the file. Tables that were returned stay readable while they are referenced."""
        if self._writer is not None:
            # The file is deleted even if the disk is full.
            with suppress(OSError):
                self._writer.close()
            self._writer = None
        self._rows = None
        with suppress(OSError):
            self._file.close()

    def _read(self) -> pa.Table:
        with translated("put", self._where):
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._file.flush()
            content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()


_logger = get_logger(__name__)
_WARNING = 30


def write_spec(settings: Settings) -> WriteSpec:
    """Return how files are written."""
    return WriteSpec(
        target_file_bytes=settings.target_file_bytes,
        codec=settings.codec,
        codec_level=settings.compression_level,
        has_dictionaries=settings.dictionary_encoding,
        has_page_statistics=settings.parquet_statistics == "page",
        row_group_rows=settings.row_group_rows,
        group_memory_bytes=settings.write_memory_bytes,
        threads=settings.write_threads,
        bloom_columns=settings.bloom_columns,
        bloom_fpp=settings.bloom_fpp,
    )


class Staging:
    """Rows of one transaction, and the files that hold them until a version refers to them."""

    #: Whether the files can be written again for a table that has changed.
    can_write_again = True

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def table_id(self) -> str | None:
        """The table that the files are written for."""
        return self._target.head.table_id

    @property
    def holds_changes(self) -> bool:
        """Whether there is anything to commit although there are no files."""
        return False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that fit the table, or fitted it when they were taken."""
        raise NotImplementedError

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files; calling it again returns the same."""
        raise NotImplementedError

    def evolution(self) -> Evolution | None:
        """Return what must be committed with the files so that the table fits them.

        None if it cannot: they were written for another table than it is now, see `write_again`.
        """
        return Evolution(head=self._target.head)

    def write_again(self) -> tuple[StagedFile, ...]:
        """Write the rows of all files into new ones, for the newest version of the table.

        Only for files that are proved to be in no version: they are deleted. If the rows do not fit
        any more, the error says how, and the files stay.
        """
        return ()

    def discard(self) -> None:
        """Delete all files. Only for those that no version can refer to."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Keep the files, which a version may refer to, and nothing else of them."""

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete files; those that storage fails to delete are left to vacuum."""
        try:
            failures = self._target.store.delete(keys)
            error = failures[0].error if failures else None
        except StorageError as failure:
            error = failure
        if error is not None:
            message = "Staged files that are not needed are left to vacuum: %s"
            log_event(_logger, _WARNING, "staged_files_left", message, error.message)


class DescribedFiles(Staging):
    """Files that other processes have written for the table that is now `table_id`."""

    can_write_again = False

    def __init__(
        self, target: Target, files: tuple[StagedFile, ...], *, table_id: str | None
    ) -> None:
        super().__init__(target)
        self._files = files
        self._table_id = table_id

    @property
    def table_id(self) -> str | None:
        """The table that the files are written for."""
        return self._table_id

    def finish(self) -> tuple[StagedFile, ...]:
        """Return the files."""
        return self._files

    def discard(self) -> None:
        """Delete all files. Only for those that no version can refer to."""
        self._delete([file.path for file in self._files])


class FileStaging(Staging):
    """Files that this process writes. They are opened with the first rows."""

    def __init__(self, target: Target, spec: WriteSpec, *, stem: str) -> None:
        super().__init__(target)
        self._spec = spec
        self._stem = stem
        self._open: NewFiles | None = None
        self._keys: list[str] = []
        #: Layout of the newest files, and files of earlier layouts.
        self._layout: Layout | None = None
        self._written: list[StagedFile] = []
        self._opened = 0
        self._staged: tuple[StagedFile, ...] | None = None

    @property
    def table_id(self) -> str | None:
        """The table that the files are written for."""
        head = self._target.head if self._layout is None else self._layout.head
        return head.table_id

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that fit the table, or fitted it when they were taken."""
        if not batch.num_rows:
            return
        layout, rows = self._target.place(batch)
        if self._layout is not None and layout.head.rules != self._layout.head.rules:
            self._close()
        if self._open is None:
            self._layout = layout
            worker = self._target.handle.worker(layout.head)
            self._open = worker.open_files(self._spec, stem=self._next_stem())
        self._open.write(rows)
        reached(Step.SINK_WRITING)

    def _next_stem(self) -> str:
        """Return the name of the next files: a table that changes during the write has several."""
        self._opened += 1
        return self._stem if self._opened == 1 else f"{self._stem}-{self._opened}"

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files; calling it again returns the same."""
        if self._staged is None:
            self._staged = self._finish()
            reached(Step.SINK_STAGED)
        return self._staged

    def _finish(self) -> tuple[StagedFile, ...]:
        self._close()
        return tuple(self._written)

    def _close(self) -> None:
        if self._open is not None:
            self._written += self._open.close()
            self._leave()

    def evolution(self) -> Evolution | None:
        """Return what must be committed with the files; None if they must be written again."""
        if self._layout is None:
            return Evolution(head=self._target.head)
        return self._target.evolution(self._layout)

    def write_again(self) -> tuple[StagedFile, ...]:
        """Write the rows of all files into new ones, for the newest version of the table."""
        if self._layout is None or self._staged is None:
            return ()
        again = FileStaging(self._target, self._spec, stem=f"{self._stem}-{uuid.uuid4().hex[:8]}")
        try:
            worker = self._target.handle.worker(self._layout.head)
            for batch in worker.read_staged(self._staged):
                again.write(self._target.fit(batch))
            files = again.finish()
        except BaseException:
            again.discard()
            raise
        self.discard()
        self._keys, self._layout, self._staged = again._keys, again._layout, files
        return files

    def discard(self) -> None:
        """Delete all files. Only for those that no version can refer to."""
        self._leave(StorageError("given up"))
        self._delete(self._keys)

    def _leave(self, error: BaseException | None = None) -> None:
        if self._open is not None:
            files, self._open = self._open, None
            files.__exit__(type(error) if error else None, error, None)
            self._keys += files.keys
