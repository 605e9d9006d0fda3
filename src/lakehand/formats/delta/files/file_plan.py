"""How the rows of one file become rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakehand.errors import CorruptFileError, SchemaMismatchError
from lakehand.formats.delta.files.deletion_vectors import DvDescriptor, read_deletion_vector
from lakehand.formats.delta.files.projection import project_rows
from lakehand.formats.delta.files.row_group_bounds import checked_groups, row_group_facts
from lakehand.formats.delta.files.row_identity import RowIdentity, places
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import physical_name
from lakehand.parquet.columns import file_columns
from lakehand.parquet.facts import check_size
from lakehand.parquet.reading import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lakehand.formats.delta.files.projection import RowProjection
    from lakehand.formats.delta.files.reader import ReadRequest, SourceFile
    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.parquet.columns import FileColumn
    from lakehand.parquet.reading import OpenFile

__all__ = ["FilePlan", "deleted_rows", "plan_file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePlan:
    """Worked out once a file, then applied to its batches."""

    request: ReadRequest
    file: OpenFile
    #: Columns wanted, then those that only the predicate reads.
    columns: tuple[StructField, ...]
    #: The same as Arrow fields, then the identity of rows if it is wanted.
    schema: pa.Schema
    projection: RowProjection
    #: Values of the partition columns that are needed.
    partition: Mapping[str, pa.Scalar]
    identity: RowIdentity
    #: Positions of deleted rows, ascending.
    deleted: npt.NDArray[np.int64]
    #: What the file holds.
    stored: tuple[FileColumn, ...]
    #: Among the files that are read.
    number: int

    @property
    def leaves(self) -> tuple[int, ...]:
        """Stored columns that have to be read."""
        identity = self.identity.leaves if self.request.row_identity else ()
        return tuple(sorted({*self.projection.leaves, *identity}))

    def visible_rows(self, stored: pa.RecordBatch, *, position: int) -> pa.RecordBatch:
        """Turn stored rows that begin at `position` into rows of the table, less the deleted."""
        rows = self._rows(stored, position)
        if not len(self.deleted):
            return rows
        return rows.filter(self._is_visible(position, stored.num_rows))

    def groups(self) -> tuple[int, ...]:
        """Return the row groups that may hold rows for which the predicate is true."""
        everything = tuple(range(self.file.metadata.num_row_groups))
        predicate = self.request.predicate
        if predicate is None or self.file.is_one_piece:
            return everything
        from lakehand.expressions.pruning import may_match  # SQL takes long to import

        facts = row_group_facts(
            checked_groups(self.file),
            self.stored,
            predicate.references,
            schema=self.request.schema,
            mode=self.request.mode,
            partition=self.partition,
        )
        wanted = may_match(predicate, facts).to_pylist()
        return tuple(group for group in everything if wanted[group])

    def _rows(self, stored: pa.RecordBatch, position: int) -> pa.RecordBatch:
        try:
            projected = iter(self.projection.apply(stored))
        except pa.ArrowInvalid as error:
            message = f"{self.file.path} holds a value that does not fit its column: {error}"
            raise CorruptFileError(message, path=self.file.path) from error
        arrays = [
            pa.repeat(self.partition[column.name], stored.num_rows)
            if column.name in self.partition
            else next(projected)
            for column in self.columns
        ]
        if self.request.row_identity:
            arrays += self.identity.columns(stored, first_position=position)
        if self.request.places:
            arrays += places(self.number, stored.num_rows, first_position=position)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _is_visible(self, position: int, rows: int) -> pa.BooleanArray:
        first, last = np.searchsorted(self.deleted, [position, position + rows])
        visible = np.ones(rows, dtype=np.bool_)
        visible[self.deleted[first:last] - position] = False
        return pa.array(visible)


def plan_file(request: ReadRequest, source: SourceFile) -> FilePlan:
    """Read the footer and the deletion vector of a file, and see how its columns fit."""
    file = open_file(request.store, source.path, bytes_hint=source.size_bytes)
    check_size(source.path, found=file.size_bytes, expected=source.stated_bytes)
    stored = file_columns(file.schema)
    columns = request.needed
    partition = _partition(request, columns, source)
    try:
        unshared = [column for column in columns if column.name not in partition]
        projection = project_rows(unshared, stored, request.mode)
    except SchemaMismatchError as error:
        message = f"{source.path} does not fit the table: {error.message}"
        raise SchemaMismatchError(message, hint=error.hint, path=source.path) from error
    return FilePlan(
        request=request,
        file=file,
        columns=columns,
        schema=request.rows_with(columns),
        projection=projection,
        partition=partition,
        identity=RowIdentity.of(source.add, request.properties, stored),
        deleted=deleted_rows(request, source, rows=file.rows),
        stored=stored,
        number=source.number,
    )


def _partition(
    request: ReadRequest, columns: Sequence[StructField], source: SourceFile
) -> dict[str, pa.Scalar]:
    values = source.add.get("partitionValues") or {}
    return {
        column.name: _partition_value(request, column, values)
        for column in columns
        if request.is_partition_column(column)
    }


def _partition_value(
    request: ReadRequest, column: StructField, values: Mapping[str, Any]
) -> pa.Scalar:
    raw = values.get(physical_name(column, mode=request.mode))
    texts = pa.chunked_array([pa.array([raw], pa.string())])
    return parse_partition_values(texts, column.type, time_zone=request.time_zone)[0]


def deleted_rows(
    request: ReadRequest, source: SourceFile, *, rows: int | None = None
) -> npt.NDArray[np.int64]:
    """Return the positions of deleted rows, ascending."""
    if source.hidden is not None:
        return source.hidden
    described = source.add.get("deletionVector")
    if not described:
        return np.empty(0, dtype=np.int64)
    descriptor = DvDescriptor.from_json(described)
    bitmap = read_deletion_vector(request.store, descriptor, rows=rows)
    return np.asarray(bitmap.to_array(), dtype=np.int64)
