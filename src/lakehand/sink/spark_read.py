"""How a read is shared out among Spark's tasks, and what they hand back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.model.work import DataFile

__all__ = ["bins_of", "fit_batches"]

#: As Spark itself does it: so much for a task, and so much for the opening of a file.
_TASK_BYTES = 128 * 2**20
_OPENING_BYTES = 4 * 2**20
#: Rows that go to the JVM at once.
_BATCH_ROWS = 64 * 1024


def bins_of(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
    """Share files out among tasks, large ones first."""
    bins: list[list[DataFile]] = []
    size = _TASK_BYTES + 1
    for file in sorted(files, key=lambda file: file.bytes, reverse=True):
        cost = file.bytes + _OPENING_BYTES
        if size + cost > _TASK_BYTES:
            bins.append([])
            size = 0
        bins[-1].append(file)
        size += cost
    return [tuple(one) for one in bins]


def fit_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches under exactly the types that Spark expects, in pieces of moderate size."""
    for batch in batches:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, fitted.num_rows, _BATCH_ROWS):
            yield fitted.slice(start, _BATCH_ROWS)
