"""Which row of the table a row of a file is, where the table tracks rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.files.context import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.files.projection import named
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.parquet.columns import FileColumn

__all__ = ["IDENTITY_FIELDS", "PLACE_FIELDS", "RowIdentity", "places"]

IDENTITY_FIELDS = (pa.field(ROW_ID, pa.int64()), pa.field(ROW_VERSION, pa.int64()))
PLACE_FIELDS = (pa.field(FILE_NUMBER, pa.int32()), pa.field(POSITION, pa.int64()))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowIdentity:
    """How the rows of one file are identified: by columns in it, else by position and default."""

    id_column: FileColumn | None
    version_column: FileColumn | None
    #: Id of the file's first row; None where the file has none.
    base_id: int | None
    default_version: int | None

    @classmethod
    def of(
        cls, add: Mapping[str, Any], properties: Mapping[str, str], columns: Sequence[FileColumn]
    ) -> Self:
        return cls(
            id_column=_column(properties.get(ROW_ID_PROPERTY), columns),
            version_column=_column(properties.get(ROW_VERSION_PROPERTY), columns),
            base_id=add.get("baseRowId"),
            default_version=add.get("defaultRowCommitVersion"),
        )

    @property
    def leaves(self) -> tuple[int, ...]:
        found = (self.id_column, self.version_column)
        return tuple(leaf for column in found if column for leaf in column.leaves)

    def columns(self, batch: pa.RecordBatch, *, first_position: int) -> list[pa.Array]:
        """Return ids and versions of rows that follow each other in the file."""
        rows = batch.num_rows
        ids, versions = pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.int64())
        if self.base_id is not None:
            start = self.base_id + first_position
            ids = pa.array(np.arange(start, start + rows, dtype=np.int64))
        if self.default_version is not None:
            versions = pa.repeat(pa.scalar(self.default_version, pa.int64()), rows)
        return [_first(batch, self.id_column, ids), _first(batch, self.version_column, versions)]


def places(number: int, rows: int, *, first_position: int) -> list[pa.Array]:
    """Return where rows that follow each other in a file lie."""
    positions = np.arange(first_position, first_position + rows, dtype=np.int64)
    return [pa.repeat(pa.scalar(number, pa.int32()), rows), pa.array(positions)]


def _column(name: str | None, columns: Sequence[FileColumn]) -> FileColumn | None:
    return None if name is None else named(name, columns)


def _first(batch: pa.RecordBatch, column: FileColumn | None, default: pa.Array) -> pa.Array:
    if column is None:
        return default
    return pc.coalesce(batch.column(column.name).cast(pa.int64()), default)
