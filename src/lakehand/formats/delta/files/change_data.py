"""Change data: rows that went or came, in files of their own, for readers of the change feed.

A commit needs them only where its adds and removes would tell the wrong story: rows that were
copied into a new file look as if they had been deleted and inserted again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.delta.files.new_rows import NewFiles
from lakehand.formats.delta.files.writer import write_files
from lakehand.formats.delta.protocol.schema import PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.formats.rows import RowChange
    from lakehand.formats.worker import WriteSpec
    from lakehand.model.work import DataFile, StagedFile

__all__ = ["CHANGE_DIRECTORY", "ChangeFiles", "feeds_changes", "write_changes"]

CHANGE_DIRECTORY = "_change_data"

_ENABLED = "delta.enableChangeDataFeed"
_KIND = "_change_type"
_WORDS: dict[RowChange, str] = {
    "gone": "delete",
    "came": "insert",
    "replaced": "update_preimage",
    "replacing": "update_postimage",
}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def feeds_changes(context: WriteContext) -> bool:
    """Say whether the table has readers that want every change of it."""
    return context.configuration.get(_ENABLED, "false").lower() == "true"


def write_changes(
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    spec: WriteSpec,
    *,
    like: DataFile,
    stem: str,
    kind: RowChange,
) -> tuple[StagedFile, ...]:
    """Write rows to which `kind` happened; they were in the partition of `like`."""
    rows = (_with_kind(batch, kind) for batch in batches)
    return write_files(
        _with_kinds(context), rows, spec, like=[like], stem=stem, directory=CHANGE_DIRECTORY
    )


class ChangeFiles(NewFiles):
    """Takes rows that are new to the table, and tells readers of changes of them."""

    def __init__(
        self, context: WriteContext, spec: WriteSpec, *, stem: str, kind: RowChange
    ) -> None:
        super().__init__(_with_kinds(context), spec, stem=stem, directory=CHANGE_DIRECTORY)
        self._kind: RowChange = kind

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`; they reach storage with their row groups."""
        super().write(_with_kind(batch, self._kind))


def _with_kinds(context: WriteContext) -> WriteContext:
    """Return a context with one more column, which is none of the table's."""
    kind = StructField(
        name=_KIND,
        type=PrimitiveType("string"),
        nullable=True,
        metadata={_PHYSICAL_NAME: _KIND},
    )
    return replace(context, schema=StructType((*context.schema.fields, kind)))


def _with_kind(batch: pa.RecordBatch, kind: RowChange) -> pa.RecordBatch:
    words = pa.repeat(pa.scalar(_WORDS[kind], pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, words], schema=batch.schema.append(pa.field(_KIND, pa.string()))
    )
