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
    return [data] if isinstance(data, pa.RecordBatch) else list(as_reader(data))


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


def schema_of(columns: Any) -> pa.Schema:
    """Return the Arrow schema of a schema or of a data frame of another library.

    It may be an Arrow schema, anything that hands out a schema or rows by Arrow's exchange protocol
    (Polars, DuckDB), or a pandas frame. Rows of a frame are not read.
    """
    if isinstance(columns, pa.Schema):
        return columns
    if _is_pandas(columns):
        found = pa.Schema.from_pandas(columns, preserve_index=False)
    elif hasattr(columns, "__arrow_c_schema__"):
        found = pa.schema(columns)
    else:
        found = as_reader(columns).schema
    # What pandas notes there would become metadata of the table.
    return pa.schema([field.with_type(_plain_type(field.type)) for field in found])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without views, categories and large offsets: tables store no such things."""
    if pat.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pat.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return _SMALL.get(kind) or _without_view(kind)


def kept_schema(schema: pa.Schema) -> pa.Schema:
    """Return rows in types in which they can be kept in a file, and taken out of it.

    They are without views and categories, and otherwise as they came.
    """
    return pa.schema([pa.field(field.name, _kept_type(field.type)) for field in schema])


def _kept_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_dictionary(kind):
        return _kept_type(kind.value_type)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_kept_type(field.type)) for field in kind])
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(_kept_type(kind.value_type)))
    return _without_view(kind)


_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


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
