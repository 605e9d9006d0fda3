"""The visible rows of data files, under the table's names and types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.protocol.arrow_types import to_arrow
from lakehand.formats.delta.protocol.schema import StructType
from lakehand.formats.delta.read.file_plan import IDENTITY_FIELDS, PLACE_FIELDS, FilePlan, plan_file
from lakehand.model.batches import gathered, join_batches
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.delta.protocol.schema import MappingMode, StructField
    from lakehand.parquet.row_group_reader import RowGroup
    from lakehand.storage import Store

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
    #: Among the files that are read, where somebody asks for places.
    number: int = 0
    #: Positions of rows to be left out; None: those that the table says are deleted.
    hidden: npt.NDArray[np.int64] | None = None

    @property
    def stated_bytes(self) -> int | None:
        """Size that the table states; None if it states none."""
        return self.size_bytes if self.is_committed else None

    @property
    def hides_rows(self) -> bool:
        """Whether some rows may have to be left out."""
        return self.hidden is not None or bool(self.add.get("deletionVector"))


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
    #: Whether texts of few values may come as dictionaries.
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
