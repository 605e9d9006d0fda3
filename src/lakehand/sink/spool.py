"""Rows that wait on this machine's disk until all of an epoch are there."""

from __future__ import annotations

import mmap
from contextlib import suppress
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.rows.incoming import NUMBER
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Spool"]


class Spool:
    """Takes batches of one schema in, and gives them back as a table that takes no memory.

    Its file has no name, so that nothing is left of it however the process ends.
    """

    def __init__(self, schema: pa.Schema, *, directory: str | Path | None) -> None:
        self._schema = schema.append(pa.field(NUMBER, pa.int64()))
        self._where = str(directory or gettempdir())
        with translated("put", self._where):
            self._file = TemporaryFile(dir=self._where)  # noqa: SIM115  it lives until `close`
            sink = pa.PythonFile(self._file, mode="w")
            self._writer: pa.RecordBatchWriter | None = pa.ipc.new_file(sink, self._schema)
        self._rows: pa.Table | None = None
        #: Rows that were taken in.
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; their order is kept, and numbered."""
        if self._writer is None:
            raise ValueError("the rows were read already")
        numbers = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        columns = [*batch.columns, pa.array(numbers)]
        with translated("put", self._where):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        """Return all rows, and their numbers; no more can come."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def close(self) -> None:
        """Forget the rows. What was handed out stays readable while it is held."""
        if self._writer is not None:
            # A full disk is no reason to keep the file.
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
