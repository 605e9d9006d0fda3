"""How the rows of one file become rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptFileError, SchemaMismatchError
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor, read_deletion_vector
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import physical_name
from lakehand.formats.delta.read.projection import named, project_rows
from lakehand.formats.delta.statistics.bounds import checked_groups, row_group_facts
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION
from lakehand.parquet.columns import file_columns
from lakehand.parquet.footer_facts import check_size
from lakehand.parquet.row_group_reader import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.formats.delta.read.projection import RowProjection
    from lakehand.formats.delta.read.reader import ReadRequest, SourceFile
    from lakehand.parquet.columns import FileColumn
    from lakehand.parquet.row_group_reader import OpenFile

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
