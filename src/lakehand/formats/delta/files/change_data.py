"""Change data: rows that went or came, in files of their own, for readers of the change feed.

A commit needs them only where its adds and removes would tell the wrong story: rows that were
copied into a new file look as if they had been deleted and inserted again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.delta.files.writer import WriteContext, write_files
from lakehand.formats.delta.protocol.schema import PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.formats.worker import WriteSpec
    from lakehand.model.work import DataFile, StagedFile

__all__ = ["CHANGE_DIRECTORY", "feeds_changes", "write_deleted"]

CHANGE_DIRECTORY = "_change_data"

_ENABLED = "delta.enableChangeDataFeed"
_KIND = "_change_type"
_DELETED = "delete"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def feeds_changes(context: WriteContext) -> bool:
    """Say whether the table has readers that want every change of it."""
    return context.configuration.get(_ENABLED, "false").lower() == "true"


def write_deleted(
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    spec: WriteSpec,
    *,
    like: DataFile,
    stem: str,
) -> tuple[StagedFile, ...]:
    """Write rows that leave the table; they were in the partition of `like`."""
    kind = StructField(
        name=_KIND,
        type=PrimitiveType("string"),
        nullable=True,
        metadata={_PHYSICAL_NAME: _KIND},
    )
    fields = StructType((*context.schema.fields, kind))
    with_kind = replace(context, schema=fields)
    rows = _with_kind(batches, _DELETED)
    return write_files(with_kind, rows, spec, like=[like], stem=stem, directory=CHANGE_DIRECTORY)


def _with_kind(batches: Iterable[pa.RecordBatch], kind: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kinds = pa.repeat(pa.scalar(kind, pa.string()), batch.num_rows)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, kinds], schema=batch.schema.append(pa.field(_KIND, pa.string()))
        )
