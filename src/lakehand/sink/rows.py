"""Rows in whatever form a caller has them, as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_reader", "batches_of"]


def batches_of(data: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `data` batch by batch.

    It may be an Arrow table, batch, reader or dataset, anything that hands out Arrow by its
    exchange protocol (Polars, DuckDB), or a pandas frame.
    """
    return iter(as_reader(data))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Return the rows of `data` as a stream, which is read once."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if _is_pandas(data):
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):
        return data.scanner().to_reader()
    raise ValidationError(
        f"rows cannot be taken from a {type(data).__name__}",
        field="data",
        hint="give an Arrow table, batch or reader, or a pandas frame",
    )


def _is_pandas(data: Any) -> bool:
    """Say so without importing pandas, which nobody may have loaded."""
    kind = type(data)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
