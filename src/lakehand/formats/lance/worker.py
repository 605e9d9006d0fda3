"""A Lance dataset as a task sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import (
    ObjectNotFoundError,
    UnknownColumnError,
    ValidationError,
    VersionNotFoundError,
)
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.lance.connect import open_dataset, translated
from lakehand.formats.lance.files.appending import NewFragments
from lakehand.formats.lance.files.deletions import hide_rows, staged_fragment
from lakehand.formats.lance.files.durable import made_durable
from lakehand.formats.lance.files.fragments import DATA_DIRECTORY, find_fragments, has_fragments
from lakehand.formats.lance.files.rewriting import new_fragments, run_task, staged_files
from lakehand.formats.lance.files.rows import (
    counted,
    digested_rows,
    digested_schema,
    hashed_places,
    hidden_positions,
    placed_rows,
    read_rows,
)
from lakehand.formats.lance.files.shown import Shown, only_rows, without_rows
from lakehand.formats.lance.files.staged import open_marked, open_staged, stored_rows
from lakehand.formats.lance.files.writing import write_fragments
from lakehand.formats.lance.log.snapshot import state_of
from lakehand.formats.lance.protocol import obstacles_to_order
from lakehand.formats.lance.unsupported import Unsupported
from lakehand.formats.lance.upkeep.file_check import check_files, check_rows
from lakehand.formats.worker import NotDecodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakehand.formats.rows import HiddenRows, PlacedColumns, Positions
    from lakehand.formats.worker import Decoder, TaskLimits, WriteSpec
    from lakehand.model.head import TableHead
    from lakehand.model.order import Order
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import Finding
    from lakehand.model.work import DataFile, Group, StagedFile
    from lakehand.prove.digest import Digester
    from lakehand.storage import Store

__all__ = ["LanceWorker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LanceWorker(Unsupported):
    """Reads and rewrites fragments of one version. Picklable."""

    store: Store
    version: int
    #: Versions that were opened: a version does not change, and keeps what it has read of files.
    _opened: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot | TableHead) -> Self:
        return cls(store=store, version=snapshot.version)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what was opened here."""
        return _worker_at, (self.store, self.version)

    @property
    def _dataset(self) -> Any:
        return self._open(self.version)

    def _open(self, version: int) -> Any:
        if version not in self._opened:
            self._opened[version] = open_dataset(self.store, version)
        return self._opened[version]

    def _at(self, inputs: Sequence[DataFile]) -> Any:
        """Return the version that `inputs` are of: this worker's, unless they name another.

        Files that came since are in the newest one.
        """
        version = max((file.native.get("version", self.version) for file in inputs), default=None)
        try:
            dataset = self._open(version or self.version)
        except VersionNotFoundError as error:
            raise ObjectNotFoundError(error.message, path=self.store.url) from error
        return dataset if has_fragments(dataset, inputs) else open_dataset(self.store)

    def _find(self, dataset: Any, inputs: Sequence[DataFile]) -> list[Any]:
        return find_fragments(dataset, inputs, table=self.store.url)

    def _counted(
        self, inputs: Sequence[DataFile], *, scratch: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs` as they are counted.

        Of files that no version has so yet, storage is asked as if one had.
        """
        known = [file for file in inputs if staged_fragment(file) is None]
        dataset = self._at(known)
        yield from digested_rows(dataset, self._find(dataset, known), shown=Shown(known))
        marked = [found for file in inputs if (found := staged_fragment(file)) is not None]
        if marked:
            (version,) = {file.native["version"] for file in inputs if file not in known}
            base = self._open(version)
            seen = open_marked(self.store, base, marked, scratch=scratch)
            yield from digested_rows(seen, [seen.get_fragment(one["id"]) for one in marked])

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have an identity that must survive when they move to another file."""
        return bool(self._dataset.has_stable_row_ids)

    @property
    def moved_rows(self) -> pa.Schema:
        """Columns of rows as they are counted: those of the table, and ids that rows keep."""
        return digested_schema(self._dataset)

    def read(
        self,
        inputs: Sequence[DataFile],
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream the visible rows of `inputs`."""
        dataset = self._at(inputs)
        return read_rows(
            dataset,
            self._find(dataset, inputs),
            columns=self._columns(columns),
            predicate=None if where is None else parse_predicate(where, dataset.schema),
            row_identity=row_identity,
            shown=Shown(inputs),
        )

    def _columns(self, names: Sequence[str] | None) -> Sequence[str]:
        known: list[str] = self.schema.names
        if names is None:
            return known
        if not names:
            raise ValidationError("no column is asked for", field="columns", value=[])
        for name in names:
            if name not in known:
                raise UnknownColumnError(name, known)
        return names

    def read_staged(
        self, files: Sequence[StagedFile], *, row_identity: bool = False
    ) -> pa.RecordBatchReader:
        """Read files back from storage exactly as a reader of the committed table would."""
        staged = open_staged(self.store, self._dataset, new_fragments(files))
        return read_rows(
            staged, staged.get_fragments(), columns=self.schema.names, row_identity=row_identity
        )

    def read_digested(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs`, each counted in `digester`."""
        _require_any(decoder)
        with translated(self.store, "to read fragments"):
            yield from counted(self.read(inputs), digester)

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        spec: WriteSpec,
        *,
        like: Sequence[DataFile],
        stem: str,
    ) -> tuple[StagedFile, ...]:
        """Write rows that come in another order into fragments whose names start with `stem`."""
        dataset = self._dataset
        # Bytes are those of deleted rows, too.
        rows = self.count_rows(like) + sum(file.deleted_rows for file in like)
        size = sum(file.bytes for file in like)
        rows_a_file = max(1, spec.target_file_bytes * rows // max(1, size))
        found = self._find(dataset, like)
        with translated(self.store, "to write fragments"):
            staged = write_fragments(
                self.store, dataset, batches, found, rows_a_file=rows_a_file, stem=stem
            )
        return made_durable(self.store, staged)

    def open_files(self, spec: WriteSpec, *, stem: str | Callable[[str], str]) -> NewFragments:
        """Open files for rows that are new to the table."""
        name = stem if isinstance(stem, str) else stem(DATA_DIRECTORY)
        return NewFragments(
            self.store, self._dataset, target_file_bytes=spec.target_file_bytes, stem=name
        )

    @property
    def hides_rows(self) -> bool:
        """Whether the table wants rows to be deleted without their file being written anew."""
        return True

    def read_placed(
        self,
        inputs: Sequence[DataFile],
        wanted: PlacedColumns,
        *,
        limits: TaskLimits,  # noqa: ARG002  Lance bounds its own memory
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream visible rows, in the types that are hashed, with their places."""
        _require_any(decoder)
        dataset = self._at(inputs)
        predicate = parse_predicate(wanted.where, dataset.schema) if wanted.where else None
        numbers = {file.native["id"]: number for number, file in enumerate(inputs)}
        with translated(self.store, "to read fragments"):
            yield from placed_rows(
                dataset,
                self._find(dataset, inputs),
                wanted,
                predicate=predicate,
                numbers=numbers,
            )

    def hash_placed(
        self,
        inputs: Sequence[DataFile],
        *,
        limits: TaskLimits,  # noqa: ARG002  Lance bounds its own memory
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream the hashes of visible rows, as a digest counts them, and where they lie."""
        _require_any(decoder)
        dataset = self._at(inputs)
        numbers = {file.native["id"]: number for number, file in enumerate(inputs)}
        with translated(self.store, "to read fragments"):
            yield from hashed_places(dataset, self._find(dataset, inputs), numbers=numbers)

    def deleted_positions(
        self, files: Sequence[DataFile], *, limits: TaskLimits
    ) -> list[Positions]:
        """Return the rows of fragments that Lance does not show.

        Of files that no version has so yet, storage is asked as if one had; all are such, or none.
        """
        marked = [found for file in files if (found := staged_fragment(file)) is not None]
        with translated(self.store, "to read which rows are deleted"):
            if not marked:
                dataset = self._at(files)
                return hidden_positions(dataset, self._find(dataset, files))
            (version,) = {file.native["version"] for file in files}
            base = self._open(version)
            seen = open_marked(self.store, base, marked, scratch=limits.scratch_directory)
            return hidden_positions(seen, [seen.get_fragment(one["id"]) for one in marked])

    def without_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it without some of its rows."""
        return without_rows(file, positions)

    def only_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it with no other rows."""
        return only_rows(file, positions)

    def hide_rows(self, files: Sequence[tuple[DataFile, Positions]], *, stem: str) -> HiddenRows:
        """Delete rows of fragments by deletion files."""
        inputs = [file for file, _ in files]
        dataset = self._at(inputs)
        return hide_rows(self.store, dataset, files, self._find(dataset, inputs), stem=stem)

    def mark_ordered(
        self,
        files: Sequence[StagedFile],
        order: Order,  # noqa: ARG002  the record of the commit has it
        *,
        unit: str,  # noqa: ARG002  the names of the files have it
    ) -> tuple[StagedFile, ...]:
        """Note nothing: see `order_marks`."""
        return tuple(files)

    def digest_rows(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the visible rows of `inputs`, with ids that they keep, in `digester`."""
        _require_any(decoder)
        with translated(self.store, "to read fragments"):
            for batch in self._counted(inputs, scratch=limits.scratch_directory):
                digester.add(batch)

    def digest_staged(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the rows of written files in `digester`, as storage gives them back."""
        _require_any(decoder)
        with translated(self.store, "to read new fragments"):
            staged = open_staged(self.store, self._dataset, new_fragments(files))
            for batch in digested_rows(staged, None):
                digester.add(batch)

    def can_recode(self) -> bool:
        """Say whether nobody needs to know where rows go that are written into other fragments."""
        return not any(obstacles_to_order(self.schema, state_of(self._dataset)))

    def run_native(self, group: Group, *, stem: str) -> tuple[StagedFile, ...]:  # noqa: ARG002
        """Let Lance write the rows of `group` into new fragments. It gives them names of its own.

        Every file that was written is among those returned.
        """
        dataset = self._dataset
        with translated(self.store, "to rewrite fragments"):
            account = run_task(dataset, self._find(dataset, group.inputs), group.native)
        return staged_files(account)

    def make_durable(self, files: Sequence[StagedFile]) -> None:
        made_durable(self.store, files)

    def count_rows(self, inputs: Sequence[DataFile]) -> int:
        """Count the visible rows of `inputs` as the table, or else their file, says."""
        return sum(
            (stored_rows(self.store, file.path) if file.rows is None else file.rows)
            - file.deleted_rows
            for file in inputs
        )

    def staged_difference(
        self,
        inputs: Sequence[DataFile],  # noqa: ARG002
        outputs: Sequence[StagedFile],
    ) -> str | None:
        """Return what readers find otherwise in `outputs`, though rows are equal; None: nothing."""
        staged = open_staged(self.store, self._dataset, new_fragments(outputs))
        if staged.schema != self.schema:
            return "the new fragments have other columns than the table"
        return None

    def output_directory(self, like: Sequence[DataFile]) -> str | None:  # noqa: ARG002  one for all
        """Return the directory that new fragments are written into."""
        return DATA_DIRECTORY

    def check_files(self, files: pa.Table) -> list[Finding]:
        """Look at the files of fragments as storage has them, without reading their rows."""
        return check_files(self.store, files)

    def check_rows(self, files: Sequence[DataFile]) -> Iterator[Finding]:
        """Decode all rows of fragments, and count them."""
        dataset = self._at(files)
        yield from check_rows(self.store, dataset, files)


def _worker_at(store: Store, version: int) -> LanceWorker:
    return LanceWorker(store=store, version=version)


def _require_any(decoder: Decoder) -> None:
    """There is one decoder of Lance files, so nothing can be read by another one."""
    if decoder == "only-duckdb":
        raise NotDecodable("Lance files are read by Lance alone")
