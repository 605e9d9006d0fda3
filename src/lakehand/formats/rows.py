"""What a format does for operations on single rows: find, hide and take out, and tell who listens.

A row is named by its place: its file and its position there, deleted rows counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from lakehand.errors import RefusedError
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lakehand.formats.worker import Decoder, NewFiles, TaskLimits, WriteSpec
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile, StagedFile
    from lakehand.prove.digest import Digester

    #: Ascending, each once.
    Positions = npt.NDArray[np.int64]

__all__ = [
    "FormatRowWorker",
    "FormatRows",
    "HiddenRows",
    "NewRowsAsMoved",
    "PlacedColumns",
    "Positions",
    "RowChange",
    "require_no_reserved_names",
]

_RESERVED = frozenset({FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION})

#: What happened to a row, for readers of changes: it went, it came, or it was one and is another.
RowChange = Literal["gone", "came", "replaced", "replacing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedColumns:
    """What is read of rows beside their places."""

    columns: tuple[str, ...]
    #: Only rows for which this condition is true.
    where: str | None = None
    #: With the identity of rows, where the table tracks it.
    row_identity: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenRows:
    """Files that stay where they are, with more of their rows deleted."""

    #: The entries of the same files from now on, and the files as readers see them then.
    files: tuple[tuple[StagedFile, DataFile], ...]
    #: What was written to say which rows are deleted.
    objects: tuple[StagedFile, ...]


def require_no_reserved_names(names: Iterable[str], *, table: str, operation: str) -> None:
    """Raise RefusedError if a column has a name under which rows are told where they lie."""
    for name in names:
        if name.lower() in _RESERVED:
            raise RefusedError(
                f"{operation} is refused on {table}: it has a column {name!r}, a name under which"
                " lakehand keeps where a row lies",
                table=table,
                operation=operation,
                hint="nothing was written; rename the column",
            )


class FormatRows(Protocol):
    """The part of a table that knows which rows came when, and whether they may go."""

    def require_deletion(self, snapshot: Snapshot, *, keys: Sequence[str] = ()) -> None:
        """Raise RefusedError where rows may not be deleted, or not be compared by `keys`."""
        ...

    def placed_schema(self, snapshot: Snapshot) -> pa.Schema:
        """Return the columns as `read_placed` hands them out: in types that can be compared."""
        ...

    def comparable_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows that are not in the table yet in the types of `placed_schema`."""
        ...

    def file_versions(self, snapshot: Snapshot) -> pa.Array:
        """Return numbers that order the rows of `snapshot.files` by the version that brought them.

        Null where nobody knows.
        """
        ...


class FormatRowWorker(Protocol):
    """The part of a worker that deals with single rows."""

    @property
    def hides_rows(self) -> bool:
        """Whether the table wants rows to be deleted without their file being written anew."""
        ...

    @property
    def proves_positions(self) -> bool:
        """Whether `deleted_positions` alone prove which rows of a file readers see."""
        ...

    @property
    def feeds_changes(self) -> bool:
        """Whether readers of changes must be told which rows went when a file is written anew."""
        ...

    def read_placed(
        self,
        inputs: Sequence[DataFile],
        wanted: PlacedColumns,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream visible rows with FILE_NUMBER, which counts `inputs`, and POSITION.

        Raises NotDecodable where only Arrow can read a file.
        """
        ...

    def hash_placed(
        self, inputs: Sequence[DataFile], *, limits: TaskLimits, decoder: Decoder = "duckdb"
    ) -> Iterator[pa.RecordBatch]:
        """Stream both hashes by which a digest counts each visible row, and the row's place.

        The place is as `read_placed` tells it. Raises NotDecodable where only Arrow can read a
        file.
        """
        ...

    def deleted_positions(
        self, files: Sequence[DataFile], *, limits: TaskLimits
    ) -> list[Positions]:
        """Return the rows of each file that readers do not see, as storage says."""
        ...

    def without_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it without some of its rows. Writes nothing."""
        ...

    def only_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it with no other rows. Writes nothing."""
        ...

    @property
    def keeps_emptied_files(self) -> bool:
        """Whether a file stays, with all rows hidden, if rows are added in the same commit."""
        ...

    @property
    def hands_on_row_ids(self) -> bool:
        """Whether a row that replaces another one takes over its id."""
        ...

    @property
    def new_rows(self) -> pa.Schema:
        """Columns of rows that are new to the table as a digest counts them."""
        ...

    def counted_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return new rows, which are written as they are, under the columns of `new_rows`."""
        ...

    def digest_new(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count rows that are new, as storage gives them back, under the columns of `new_rows`."""
        ...

    def hide_rows(self, files: Sequence[tuple[DataFile, Positions]], *, stem: str) -> HiddenRows:
        """Delete rows of files without writing the files anew."""
        ...

    def change_directory(self) -> str:
        """Return the directory that files for readers of changes go into."""
        ...

    def write_changes(
        self, changed: DataFile, spec: WriteSpec, *, stem: str, kind: RowChange = "gone"
    ) -> tuple[StagedFile, ...]:
        """Write the visible rows of `changed` for readers of changes, who learn what happened."""
        ...

    def open_changes(self, spec: WriteSpec, *, stem: str, kind: RowChange) -> NewFiles:
        """Open files for rows that are new, for readers of changes, whatever their partitions."""
        ...


class NewRowsAsMoved:
    """The part of a worker of a format that counts new rows as it counts those that move."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def tracks_rows(self) -> bool: ...

        @property
        def moved_rows(self) -> pa.Schema: ...

        def digest_staged(
            self,
            files: Sequence[StagedFile],
            digester: Digester,
            *,
            limits: TaskLimits,
            decoder: Decoder = "duckdb",
        ) -> None: ...

    @property
    def streamed_rows(self) -> pa.Schema:
        """Columns of rows as `read_digested` streams them, and `write` takes them."""
        return self.moved_rows

    @property
    def keeps_emptied_files(self) -> bool:
        """Whether a file stays, with all rows hidden, if rows are added in the same commit."""
        return False

    @property
    def hands_on_row_ids(self) -> bool:
        """Whether a row that replaces another one takes over its id."""
        return self.tracks_rows

    @property
    def new_rows(self) -> pa.Schema:
        """Columns of rows that are new to the table as a digest counts them."""
        return self.moved_rows

    def counted_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return new rows as they are."""
        return rows

    def digest_new(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count rows that are new, as storage gives them back, with ids that they keep."""
        self.digest_staged(files, digester, limits=limits, decoder=decoder)
