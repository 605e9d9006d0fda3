"""Rows that wait on this machine's disk until all of an epoch are there."""

from __future__ import annotations

import os
from contextlib import suppress
from tempfile import gettempdir, mkstemp
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.rows.incoming import NUMBER
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Spool"]


class Spool:
    """Takes batches of one schema in, and gives them back as a table that takes no memory."""

    def __init__(self, schema: pa.Schema, *, directory: str | Path | None) -> None:
        self._schema = schema.append(pa.field(NUMBER, pa.int64()))
        where = str(directory or gettempdir())
        with translated("put", where):
            descriptor, self._path = mkstemp(prefix="lakehand-upsert-", suffix=".arrow", dir=where)
            os.close(descriptor)
            self._writer: pa.RecordBatchWriter | None = pa.ipc.new_file(self._path, self._schema)
        self._source: pa.MemoryMappedFile | None = None
        #: Rows that were taken in.
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; their order is kept, and numbered."""
        if self._writer is None:
            raise ValueError("the rows were read already")
        numbers = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        columns = [*batch.columns, pa.array(numbers)]
        with translated("put", self._path):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        """Return all rows, and their numbers; no more can come."""
        with translated("put", self._path):
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            if self._source is None:
                self._source = pa.memory_map(self._path)
        return pa.ipc.open_file(self._source).read_all()

    def close(self) -> None:
        """Forget the rows. What was handed out stays readable while it is held."""
        if self._writer is not None:
            # A full disk is no reason to keep the file.
            with suppress(OSError):
                self._writer.close()
            self._writer = None
        with suppress(FileNotFoundError):
            os.unlink(self._path)  # noqa: PTH108
