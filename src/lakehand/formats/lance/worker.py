"""A Lance dataset as a task sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import (
    ObjectNotFoundError,
    UnknownColumnError,
    ValidationError,
    VersionNotFoundError,
)
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.lance.connect import open_dataset, translated
from lakehand.formats.lance.files.durable import made_durable
from lakehand.formats.lance.files.fragments import DATA_DIRECTORY, find_fragments
from lakehand.formats.lance.files.plain import plain_batch
from lakehand.formats.lance.files.rewriting import new_fragments, run_task, staged_files
from lakehand.formats.lance.files.rows import digested_rows, digested_schema, read_rows
from lakehand.formats.lance.files.staged import open_staged, stored_rows
from lakehand.formats.lance.files.writing import write_fragments
from lakehand.formats.lance.unsupported import Unsupported
from lakehand.formats.lance.upkeep.file_check import check_files, check_rows
from lakehand.formats.worker import NotDecodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

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

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot | TableHead) -> Self:
        return cls(store=store, version=snapshot.version)

    @property
    def _dataset(self) -> Any:
        return open_dataset(self.store, self.version)

    def _at(self, inputs: Sequence[DataFile]) -> Any:
        """Return the version that `inputs` are of: this worker's, unless they name another."""
        version = max((file.native.get("version", self.version) for file in inputs), default=None)
        try:
            return open_dataset(self.store, version or self.version)
        except VersionNotFoundError as error:
            raise ObjectNotFoundError(error.message, path=self.store.url) from error

    def _find(self, dataset: Any, inputs: Sequence[DataFile]) -> list[Any]:
        return find_fragments(dataset, inputs, table=self.store.url)

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
            for batch in self.read(inputs):
                digester.add(plain_batch(batch))
                yield batch

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
        size, rows = sum(file.bytes for file in like), self.count_rows(like)
        rows_a_file = max(1, spec.target_file_bytes * rows // max(1, size))
        found = self._find(dataset, like)
        with translated(self.store, "to write fragments"):
            staged = write_fragments(
                self.store, dataset, batches, found, rows_a_file=rows_a_file, stem=stem
            )
        return made_durable(self.store, staged)

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
        limits: TaskLimits,  # noqa: ARG002  Lance bounds its own memory
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the visible rows of `inputs`, with ids that they keep, in `digester`."""
        dataset = self._at(inputs)
        _require_any(decoder)
        with translated(self.store, "to read fragments"):
            for batch in digested_rows(dataset, self._find(dataset, inputs)):
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

    def run_native(self, group: Group, *, stem: str) -> tuple[StagedFile, ...]:  # noqa: ARG002
        """Let Lance write the rows of `group` into new fragments. It gives them names of its own.

        Every file that was written is among those returned.
        """
        dataset = self._dataset
        with translated(self.store, "to rewrite fragments"):
            account = run_task(dataset, self._find(dataset, group.inputs), group.native)
        return made_durable(self.store, staged_files(account))

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


def _require_any(decoder: Decoder) -> None:
    """There is one decoder of Lance files, so nothing can be read by another one."""
    if decoder == "only-duckdb":
        raise NotDecodable("Lance files are read by Lance alone")
