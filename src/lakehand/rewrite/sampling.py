"""A few rows that stand for all: the same ones whenever the same files are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.engine.cores import usable_cores
from lakehand.storage.prefetch import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.worker import FormatWorker
    from lakehand.model.order import Order
    from lakehand.model.work import DataFile

__all__ = ["sample_rows"]

_SEED = 20_260_101
#: Enough that quantiles are off by a thousandth or so.
_SAMPLED_ROWS = 128 * 1024
#: Of more rows than this not all files are read.
_READ_ROWS = 32 * 2**20
_MOST_FILES_AT_ONCE = 8
#: Where the table does not say how many rows a file has.
_GUESSED_ROW_BYTES = 32


def sample_rows(
    worker: FormatWorker, inputs: Sequence[DataFile], order: Order, *, rows: int = _SAMPLED_ROWS
) -> pa.Table:
    """Return about so many rows of `inputs`, with the columns of `order` only."""
    files = _some(inputs, np.random.default_rng(_SEED))
    share = min(1.0, rows / max(1, sum(_rows(file) for file in files)))
    names = list(dict.fromkeys(term.path[0] for term in order.terms))

    def picked(item: tuple[int, DataFile]) -> pa.Table:
        number, file = item
        reader, lot = worker.read([file], columns=names), np.random.default_rng([_SEED, number])
        batches = (_picked(batch, share, lot) for batch in reader)
        return pa.Table.from_batches([batch for batch in batches if batch.num_rows], reader.schema)

    # Nothing else runs yet, so all cores may decode.
    window = min(usable_cores(), _MOST_FILES_AT_ONCE)
    tables = list(fetch_ahead(enumerate(files), picked, window=window))
    return pa.concat_tables(tables or [worker.read([], columns=names).read_all()])


def _some(inputs: Sequence[DataFile], generator: np.random.Generator) -> list[DataFile]:
    """Return all files, or as many as have rows enough, chosen by lot."""
    chosen, rows = [], 0
    for number in generator.permutation(len(inputs)).tolist():
        if rows >= _READ_ROWS:
            break
        chosen.append(inputs[number])
        rows += _rows(inputs[number])
    return chosen


def _rows(file: DataFile) -> int:
    return file.bytes // _GUESSED_ROW_BYTES if file.rows is None else file.rows


def _picked(batch: pa.RecordBatch, share: float, generator: np.random.Generator) -> pa.RecordBatch:
    if share >= 1.0:
        return batch
    kept = np.flatnonzero(generator.random(batch.num_rows) < share)
    return batch.take(pa.array(kept))
