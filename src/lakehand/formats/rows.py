"""What a format does for operations on single rows: find, hide and take out, and tell who listens.

A row is named by its place: its file and its position there, deleted rows counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from lakehand.errors import RefusedError
from lakehand.formats.worker import AppendWorker
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lakehand.formats.worker import Decoder, FormatWorker, NewFiles, TaskLimits, WriteSpec
    from lakehand.model.work import DataFile, StagedFile
    from lakehand.prove.digest import Digester

    #: Ascending, each once.
    Positions = npt.NDArray[np.int64]

_RESERVED = frozenset({FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION})

#: What happened to a row, for change data feed readers: deleted, inserted, before or after update.
RowChange = Literal["gone", "came", "replaced", "replacing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedColumns:
    """What is read of rows in addition to their places."""

    columns: tuple[str, ...]
    #: Only rows for which this condition is true.
    where: str | None = None
    #: With the identity of rows, where the table tracks it.
    row_identity: bool = False
    #: In the types of the table, and not in those that can be compared to the bit.
    in_own_types: bool = False


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


@runtime_checkable
class DeletedPositionsWorker(Protocol):
    """The part of a worker that reads which rows of a file are deleted."""

    def deleted_positions(
        self, files: Sequence[DataFile], *, limits: TaskLimits
    ) -> list[Positions]:
        """Return the rows of each file that readers do not see, as storage says."""
        ...


class RowChangeWorker(AppendWorker, DeletedPositionsWorker, Protocol):
    """A worker that finds, deletes and replaces single rows (`SupportsRowChanges`)."""

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have an identity that must survive when they move to another file."""
        ...

    @property
    def hides_rows(self) -> bool:
        """Whether the table deletes rows without rewriting their file."""
        ...

    @property
    def proves_positions(self) -> bool:
        """Whether `deleted_positions` alone prove which rows of a file readers see."""
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
        """Return new rows, which are written unchanged, under the columns of `new_rows`."""
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
        """Delete rows of files without rewriting the files."""
        ...


@runtime_checkable
class ChangeFeedWorker(Protocol):
    """The part of a worker of tables that may have a change data feed."""

    @property
    def feeds_changes(self) -> bool:
        """Whether the change data feed must list the rows that change when a file is rewritten."""
        ...

    def change_directory(self) -> str:
        """Return the directory that files of the change data feed are written into."""
        ...

    def write_changes(
        self, changed: DataFile, spec: WriteSpec, *, stem: str, kind: RowChange = "gone"
    ) -> tuple[StagedFile, ...]:
        """Write the visible rows of `changed` for the change data feed, with what happened."""
        ...

    def open_changes(self, spec: WriteSpec, *, stem: str, kind: RowChange) -> NewFiles:
        """Open files of the change data feed for new rows of any partition."""
        ...


def change_feed_of(worker: FormatWorker) -> ChangeFeedWorker | None:
    """Return `worker` if the change data feed must list the rows that it changes, else None."""
    if isinstance(worker, ChangeFeedWorker) and worker.feeds_changes:
        return worker
    return None


def require_change_feed(worker: FormatWorker) -> ChangeFeedWorker:
    """Return `worker`, which is asked to write to the change data feed."""
    feed = change_feed_of(worker)
    if feed is None:
        raise ValueError("rows are to be written to a change data feed, and the table has none")
    return feed


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
        """Return new rows unchanged."""
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
