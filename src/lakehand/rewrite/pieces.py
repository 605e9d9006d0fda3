"""Rows as bytes, while they wait or travel, and back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["known_schema", "pack_rows", "unpack_rows"]


def known_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return `schema` if rows of it can be read by whoever knows it; None if they need more.

    A message with rows has neither their schema nor the values that numbers stand for.
    """
    return None if any(_has_dictionary(kind) for kind in schema.types) else schema


def pack_rows(
    rows: pa.RecordBatch, known: pa.Schema | None = None, *, compression: str | None = None
) -> pa.Buffer:
    """Return rows as Arrow writes them, with their schema unless it is the one that is known."""
    if compression is None and known is not None and rows.schema.equals(known):
        return rows.serialize()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def unpack_rows(content: pa.Buffer, known: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the rows that were packed under the same known schema."""
    message = pa.ipc.read_message(content)
    if message.type == "record batch":
        return pa.ipc.read_record_batch(message, known)
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


def _has_dictionary(kind: pa.DataType) -> bool:
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return pat.is_dictionary(kind) or any(_has_dictionary(part) for part in parts)
