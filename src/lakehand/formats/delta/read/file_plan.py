"""The visible rows of data files, under the table's names and types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptFileError, SchemaMismatchError
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor, read_deletion_vector
from lakehand.formats.delta.protocol.arrow_types import to_arrow
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import StructType, physical_name
from lakehand.formats.delta.read.projection import RowProjection, named, project_rows
from lakehand.formats.delta.statistics.bounds import checked_groups, row_group_facts
from lakehand.model.batches import gathered, join_batches
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION
from lakehand.parquet.columns import FileColumn, file_columns
from lakehand.parquet.footer_facts import check_size
from lakehand.parquet.row_group_reader import OpenFile, RowGroup, open_file
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.delta.protocol.schema import MappingMode, StructField
    from lakehand.storage import Store

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
    """Made once per file, then applied to its batches."""

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
    #: The only rows that are visible, by position, ascending; None: all that are not deleted.
    shown: npt.NDArray[np.int64] | None

    @property
    def leaves(self) -> tuple[int, ...]:
        """Stored columns that have to be read."""
        identity = self.identity.leaves if self.request.row_identity else ()
        return tuple(sorted({*self.projection.leaves, *identity}))

    def visible_rows(self, stored: pa.RecordBatch, *, position: int) -> pa.RecordBatch:
        """Turn stored rows that begin at `position` into rows of the table, less the deleted."""
        rows = self._rows(stored, position)
        if self.shown is None and not len(self.deleted):
            return rows
        return rows.filter(self._is_visible(position, stored.num_rows))

    def groups(self) -> tuple[int, ...]:
        """Return the row groups that may hold rows for which the predicate is true."""
        everything = tuple(range(self.file.metadata.num_row_groups))
        predicate = self.request.predicate
        if self.shown is not None:
            starts = [*self.file.group_starts(), self.file.rows]
            bounds = np.searchsorted(self.shown, starts)
            return tuple(group for group in everything if bounds[group] < bounds[group + 1])
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
        listed = self.deleted if self.shown is None else self.shown
        first, last = np.searchsorted(listed, [position, position + rows])
        visible = np.full(rows, self.shown is None, dtype=np.bool_)
        visible[listed[first:last] - position] = self.shown is not None
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
        shown=source.shown,
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
    if not described or source.shown is not None:
        return np.empty(0, dtype=np.int64)
    descriptor = DvDescriptor.from_json(described)
    bitmap = read_deletion_vector(request.store, descriptor, rows=rows)
    return np.asarray(bitmap.to_array(), dtype=np.int64)


# Rows of many files

#: Files whose footers are fetched while earlier files are decoded.
_FILES_AHEAD = 8
#: Row groups whose bytes are fetched while an earlier one is decoded.
_GROUPS_AHEAD = 2
_GATHERED_ROWS, _GATHERED_BYTES = 32 * 1024, 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file to be read, with the members of its `add` action that reading needs."""

    #: Decoded path.
    path: str
    size_bytes: int
    add: Mapping[str, Any]
    #: Whether the table has the file; one that it is to get is judged by its proof.
    is_committed: bool = True
    #: Number among the files that are read, if places are requested.
    number: int = 0
    #: Positions of rows to be left out; None: those that the table says are deleted.
    hidden: npt.NDArray[np.int64] | None = None
    #: The only rows to be read, by position, ascending; None: all but the deleted ones.
    shown: npt.NDArray[np.int64] | None = None

    @property
    def stated_bytes(self) -> int | None:
        """Size that the table states; None if it states none."""
        return self.size_bytes if self.is_committed else None

    @property
    def hides_rows(self) -> bool:
        """Whether some rows may have to be left out."""
        has_rows = self.hidden is None and self.shown is None
        return not has_rows or bool(self.add.get("deletionVector"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRequest:
    """What is read of each file."""

    store: Store
    schema: StructType
    mode: MappingMode
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    #: Zone of partition values that state none.
    time_zone: str
    #: Columns wanted, in this order.
    columns: tuple[StructField, ...]
    predicate: Predicate | None = None
    row_identity: bool = False
    #: Whether rows come with the number of their file and their position in it.
    places: bool = False
    #: Whether low-cardinality strings may come as dictionaries.
    dictionaries: bool = False

    @property
    def output(self) -> pa.Schema:
        """Columns of the rows that are handed out."""
        return self.rows_with(self.columns)

    def rows_with(self, columns: tuple[StructField, ...]) -> pa.Schema:
        """Return `columns` as Arrow fields, then identity and place of rows where wanted."""
        identity = IDENTITY_FIELDS if self.row_identity else ()
        places = PLACE_FIELDS if self.places else ()
        return pa.schema([*to_arrow(StructType(columns)), *identity, *places])

    @property
    def needed(self) -> tuple[StructField, ...]:
        """Columns wanted, then those that only the predicate reads."""
        names = {column.name for column in self.columns}
        read = self.predicate.columns if self.predicate else ()
        extra = (self.schema.find(name) for name in read if name not in names)
        return self.columns + tuple(column for column in extra if column is not None)

    def is_partition_column(self, column: StructField) -> bool:
        return column.name.lower() in {name.lower() for name in self.partition_columns}


def read_rows(request: ReadRequest, files: Sequence[SourceFile]) -> pa.RecordBatchReader:
    """Stream the rows of `files` in their order. Nothing is read before the first batch is."""
    return pa.RecordBatchReader.from_batches(request.output, _batches(request, files))


def _batches(request: ReadRequest, files: Sequence[SourceFile]) -> Iterator[pa.RecordBatch]:
    plans = fetch_ahead(files, lambda file: plan_file(request, file), window=_FILES_AHEAD)
    pieces = fetch_ahead(_pieces(plans), _fetch, window=_GROUPS_AHEAD)
    batches = (batch for piece in pieces for batch in _rows(piece))
    for few in gathered(batches, rows=_GATHERED_ROWS, size=_GATHERED_BYTES):
        rows = join_batches(few)
        wanted = rows if request.predicate is None else _keep_true(request.predicate, rows)
        if wanted.num_rows:
            yield wanted.select(request.output.names)


def _keep_true(predicate: Predicate, rows: pa.RecordBatch) -> pa.RecordBatch:
    from lakehand.expressions.evaluate import keep_true  # SQL takes long to import

    return keep_true(predicate, rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """One row group of one file."""

    plan: FilePlan
    group: int
    #: Position in the file of its first row.
    position: int
    fetched: RowGroup | None = None


def _pieces(plans: Iterable[FilePlan]) -> Iterator[_Piece]:
    for plan in plans:
        starts = plan.file.group_starts()
        for group in plan.groups():
            yield _Piece(plan=plan, group=group, position=starts[group])


def _fetch(piece: _Piece) -> _Piece:
    return replace(piece, fetched=piece.plan.file.fetch(piece.group, piece.plan.leaves))


def _rows(piece: _Piece) -> Iterator[pa.RecordBatch]:
    position = piece.position
    assert piece.fetched is not None  # noqa: S101  set by _fetch
    for stored in piece.fetched.batches():
        rows = piece.plan.visible_rows(stored, position=position)
        position += stored.num_rows
        if rows.num_rows:
            yield rows
