"""Rows in whatever form a caller has them, as Arrow batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import ValidationError

#: Rows of one batch of large tables: a batch is copied while it is made to fit.
_PIECE_ROWS = 256 * 1024


def batches_of(data: Any) -> list[pa.RecordBatch]:
    """Return rows that are in memory as batches.

    ValidationError for a stream of rows, whose size is unknown.
    """
    if isinstance(data, pa.RecordBatchReader):
        raise ValidationError(
            "a sink takes rows that are in memory, and not a reader",
            field="data",
            hint="write its batches one by one, or use Table.append",
        )
    return list(as_reader(data))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Return the rows of `data` as a stream, which is read once.

    It may be an Arrow table, batch, reader or dataset, anything that hands out Arrow by its
    exchange protocol (Polars, DuckDB), or a pandas frame.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader(max_chunksize=_PIECE_ROWS)
    if _is_pandas(data):
        return pa.Table.from_pandas(data, preserve_index=False).to_reader(_PIECE_ROWS)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):
        return data.scanner().to_reader()
    raise ValidationError(
        f"rows cannot be taken from a {type(data).__name__}",
        field="data",
        hint="give an Arrow table, batch or reader, or a pandas frame",
    )


def without_views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose strings and bytes are no views: Arrow filters and takes no views."""
    fields = [field.with_type(_without_view(field.type)) for field in rows.schema]
    schema = pa.schema(fields, rows.schema.metadata)
    return rows if schema == rows.schema else rows.cast(schema)


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pat.is_string_view(kind):
        return pa.string()
    return pa.binary() if pat.is_binary_view(kind) else kind


def _is_pandas(data: Any) -> bool:
    """Say whether it is a pandas frame, without importing pandas."""
    kind = type(data)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
