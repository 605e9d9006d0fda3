"""A Delta table as a task sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from lakehand import errors
from lakehand.formats.delta.deletion_vectors import row_deletion
from lakehand.formats.delta.protocol.arrow_types import check_type_changes, to_arrow
from lakehand.formats.delta.protocol.clustering import order_mark
from lakehand.formats.delta.read.file_plan import ReadRequest, SourceFile, read_rows
from lakehand.formats.delta.read.scanner import open_scanner
from lakehand.formats.delta.statistics.written import Refresher
from lakehand.formats.delta.write.context import WriteContext, output_directory
from lakehand.formats.delta.write.copier import DeltaCopier
from lakehand.formats.delta.write.file_schema import staged_difference
from lakehand.formats.delta.write.new_rows import (
    CHANGE_DIRECTORY,
    ChangeFiles,
    NewFiles,
    feeds_changes,
    write_changes,
)
from lakehand.formats.delta.write.writer import write_files
from lakehand.formats.rows import HiddenRows, NewRowsAsMoved, PlacedColumns, RowChange
from lakehand.parquet.footer_facts import dominant_codec
from lakehand.storage import Store, open_store
from lakehand.temporary import held_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.formats.rows import Positions
    from lakehand.formats.worker import Decoder, TaskLimits, WriteSpec
    from lakehand.model.order import Order
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.model.verification import Finding
    from lakehand.model.work import DataFile, Refreshed, StagedFile
    from lakehand.prove.digest import Digester


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaWorker(NewRowsAsMoved):
    """Reads and writes files of a table, without its log. Picklable."""

    store: Store
    context: WriteContext
    #: Zone of partition values that state none.
    time_zone: str = "UTC"

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot | TableHead, *, time_zone: str = "UTC") -> Self:
        return cls(store=store, context=WriteContext.of(snapshot.native), time_zone=time_zone)

    @property
    def schema(self) -> pa.Schema:
        return to_arrow(self.context.schema)

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have an identity that must survive when they move to another file."""
        return self.context.tracks_rows

    @property
    def moved_rows(self) -> pa.Schema:
        """Columns of rows that move to other files: those of the table, and their identity."""
        return self._request(row_identity=self.tracks_rows).output

    def read(
        self,
        inputs: Sequence[DataFile],
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream the visible rows of `inputs` under their logical names and current types."""
        request = self._request(columns=columns, where=where, row_identity=row_identity)
        return read_rows(request, _live(inputs))

    def read_staged(
        self, files: Sequence[StagedFile], *, row_identity: bool = False
    ) -> pa.RecordBatchReader:
        """Read files back from storage exactly as a reader of the committed table would."""
        return read_rows(self._request(row_identity=row_identity), _staged(files))

    def read_digested(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
        dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs` with their identity, each counted in `digester`.

        Low-cardinality strings may come as `dictionaries`. Raises NotDecodable where only Arrow can
        read a file.
        """
        request = self._request(row_identity=self.tracks_rows)
        request = replace(request, dictionaries=dictionaries)
        with open_scanner(request, limits=limits, decoder=decoder) as scanner:
            yield from scanner.read(_live(inputs), digester)

    def digest_rows(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the visible rows of `inputs`, with their identity, in `digester`."""
        request = self._request(row_identity=self.tracks_rows)
        with open_scanner(request, limits=limits, decoder=decoder) as scanner:
            scanner.digest(_live(inputs), digester)

    def digest_staged(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the rows of written files in `digester`, as storage gives them back."""
        request = self._request(row_identity=self.tracks_rows)
        with open_scanner(request, limits=limits, decoder=decoder) as scanner:
            scanner.digest(_staged(files), digester)

    def _request(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool,
    ) -> ReadRequest:
        chosen = self._columns(columns)
        check_type_changes(self.context.schema, table=self.store.url)
        return ReadRequest(
            store=self.store,
            schema=self.context.schema,
            mode=self.context.mode,
            partition_columns=self.context.partition_columns,
            properties=self.context.configuration,
            time_zone=self.time_zone,
            columns=chosen,
            predicate=None if where is None else self._predicate(where),
            row_identity=row_identity,
        )

    def _predicate(self, where: str) -> Predicate:
        from lakehand.expressions.predicate import parse_predicate  # SQL takes long to import

        return parse_predicate(where, self.schema)

    def _columns(self, names: Sequence[str] | None) -> tuple[StructField, ...]:
        schema = self.context.schema
        if not schema.fields:
            raise errors.SchemaMismatchError(
                f"the table {self.store.url} has no columns, so it has no rows to read",
                table=self.store.url,
                hint="add columns to the table with the engine that created it",
            )
        if names is None:
            return schema.fields
        found = {name: schema.find(name) for name in names}
        for name, column in found.items():
            if column is None:
                raise errors.UnknownColumnError(name, schema.names)
        if not found:
            raise errors.ValidationError(
                "no column is asked for", field="columns", value=list(names)
            )
        return tuple(column for column in found.values() if column is not None)

    @property
    def hides_rows(self) -> bool:
        """Whether the table deletes rows without rewriting their file."""
        return row_deletion.marks_rows(self.context)

    @property
    def proves_positions(self) -> bool:
        """Whether positions prove which rows are left: vectors name physical rows."""
        return True

    @property
    def feeds_changes(self) -> bool:
        """Whether a rewrite of a file must write its deleted rows for change data feed readers."""
        return feeds_changes(self.context)

    def read_placed(
        self,
        inputs: Sequence[DataFile],
        wanted: PlacedColumns,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream visible rows with the number of their file and their position there."""
        request = self._request(
            columns=wanted.columns, where=wanted.where, row_identity=wanted.row_identity
        )
        files = [replace(file, number=number) for number, file in enumerate(_live(inputs))]
        # DuckDB would bring whole files here, where Arrow asks for single columns of them.
        owners = [self.store.resolve(file.path) for file in inputs]
        is_far = any(owner.local_path(key) is None for owner, key in owners)
        chosen = "arrow" if is_far or wanted.where is not None else decoder
        with open_scanner(replace(request, places=True), limits=limits, decoder=chosen) as scanner:
            yield from scanner.read_uncounted(files)

    def hash_placed(
        self, inputs: Sequence[DataFile], *, limits: TaskLimits, decoder: Decoder = "duckdb"
    ) -> Iterator[pa.RecordBatch]:
        """Stream the hashes of visible rows, as a digest counts them, and where they lie."""
        request = replace(self._request(row_identity=self.tracks_rows), places=True)
        files = [replace(file, number=number) for number, file in enumerate(_live(inputs))]
        with open_scanner(request, limits=limits, decoder=decoder) as scanner:
            yield from scanner.hash_placed(files)

    def deleted_positions(
        self,
        files: Sequence[DataFile],
        *,
        limits: TaskLimits,  # noqa: ARG002  vectors are small
    ) -> list[Positions]:
        """Return the rows of each file that readers do not see, as its vector in storage says."""
        return [row_deletion.deleted_positions(self.context, file) for file in files]

    def without_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it without some of its rows."""
        return row_deletion.without_rows(self.context, file, positions)

    def only_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it with no other rows."""
        return row_deletion.only_rows(self.context, file, positions)

    def hide_rows(self, files: Sequence[tuple[DataFile, Positions]], *, stem: str) -> HiddenRows:
        """Delete rows of files by deletion vectors."""
        return row_deletion.hide_rows(self.context, files, stem=stem)

    def change_directory(self) -> str:
        """Return the directory of files for change data feed readers."""
        return CHANGE_DIRECTORY

    def write_changes(
        self, changed: DataFile, spec: WriteSpec, *, stem: str, kind: RowChange = "gone"
    ) -> tuple[StagedFile, ...]:
        """Write the visible rows of `changed` for change data feed readers."""
        rows = self.read([changed])
        return write_changes(self.context, rows, spec, like=changed, stem=stem, kind=kind)

    def open_changes(self, spec: WriteSpec, *, stem: str, kind: RowChange) -> ChangeFiles:
        """Open files for new rows, for change data feed readers."""
        return ChangeFiles(self.context, spec, stem=stem, kind=kind)

    def refresh(
        self, files: Sequence[DataFile], *, accept_changes: bool = False
    ) -> Iterator[Refreshed | errors.LakehandError]:
        """Recompute the statistics of files from their visible rows, one after the other."""

        def read(file: DataFile, columns: list[str]) -> pa.RecordBatchReader:
            return self.read([file], columns=columns)

        with Refresher(self.context, read, accept_changes) as refresher:
            for file in files:
                try:
                    yield refresher.refresh(file)
                except errors.LakehandError as error:
                    yield error

    def check_files(self, files: pa.Table) -> list[Finding]:
        """Look at files as storage has them, without reading their rows."""
        from lakehand.formats.delta.repair.file_check import check_files

        return check_files(self.context, files)

    def check_rows(self, files: Sequence[DataFile]) -> Iterator[Finding]:
        """Decode all rows of files, and hold them against what the table says of them."""
        from lakehand.formats.delta.repair.file_check import RowChecker, check_sums

        with RowChecker(self.context, lambda file: self.read([file])) as checker:
            for file in files:
                yield from checker.check(file)
                yield from check_sums(self.context, file.path, whole=True)

    def staged_difference(
        self, inputs: Sequence[DataFile], outputs: Sequence[StagedFile]
    ) -> str | None:
        """Return what readers find otherwise in `outputs`, though rows are equal; None: nothing."""
        return staged_difference(self.context, inputs, outputs)

    def count_rows(self, inputs: Sequence[DataFile]) -> int:
        """Count the visible rows of `inputs` by what the files say of themselves, unread."""
        facts = self.context.footers.of(self.store, inputs)
        return sum(file.rows for file in facts) - sum(file.deleted_rows for file in inputs)

    def output_directory(self, like: Sequence[DataFile]) -> str | None:
        """Return the directory that `write` writes into."""
        return output_directory(self.context, like)

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        spec: WriteSpec,
        *,
        like: Sequence[DataFile],
        stem: str,
    ) -> tuple[StagedFile, ...]:
        """Write rows into new files whose names start with `stem`, in the partition of `like`."""
        return write_files(self.context, batches, spec, like=like, stem=stem)

    def open_files(self, spec: WriteSpec, *, stem: str | Callable[[str], str]) -> NewFiles:
        """Open files for rows that are new to the table, whatever their partitions."""
        return NewFiles(self.context, spec, stem=stem)

    def mark_ordered(
        self, files: Sequence[StagedFile], order: Order, *, unit: str
    ) -> tuple[StagedFile, ...]:
        """Note on files that their rows were put into `order` together."""
        context = self.context
        mark = order_mark(
            order, unit, context.schema, mode=context.mode, declared=context.clustering_columns
        )
        return tuple(replace(file, native={**file.native, **mark}) for file in files)

    def rehearse(self, inputs: Sequence[DataFile], spec: WriteSpec, *, limits: TaskLimits) -> int:
        """Return the size that the rows of `inputs` have when they are rewritten."""
        request = self._request(row_identity=self.tracks_rows)
        with (
            held_directory(limits.scratch_directory, purpose="rehearsal") as directory,
            open_scanner(request, limits=limits, decoder="duckdb") as scanner,
        ):
            rows, into = scanner.read_uncounted(_live(inputs)), open_store(directory)
            staged = write_files(self.context, rows, spec, like=inputs, stem="r", into=into)
        return sum(file.bytes for file in staged)

    def copier(self, spec: WriteSpec | None = None) -> DeltaCopier:
        """Return what moves row groups from file to file, as far as they are as `spec` asks."""
        return DeltaCopier(context=self.context, spec=spec)

    def codec_of(self, inputs: Sequence[DataFile]) -> str | None:
        """Return the codec of most bytes of `inputs`; None if nothing is compressed."""
        facts = self.context.footers.of(self.store, inputs)
        return dominant_codec(facts)


def _live(files: Sequence[DataFile]) -> list[SourceFile]:
    return [
        SourceFile(
            path=file.path,
            size_bytes=file.bytes,
            add=file.native["add"],
            hidden=file.native.get(row_deletion.HIDDEN),
        )
        for file in files
    ]


def _staged(files: Sequence[StagedFile]) -> list[SourceFile]:
    return [
        SourceFile(path=file.path, size_bytes=file.bytes, add=file.native, is_committed=False)
        for file in files
    ]
