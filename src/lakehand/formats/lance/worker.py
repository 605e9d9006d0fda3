"""What tasks do with fragments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.lance import rewriting
from lakehand.formats.lance.checks import check_files, check_rows
from lakehand.formats.lance.connect import DATA_DIRECTORY, translated
from lakehand.formats.lance.dataset_cache import OpenVersions
from lakehand.formats.lance.deletions import hide_rows, marked_positions, staged_fragment
from lakehand.formats.lance.prefetch import counted, read_ahead
from lakehand.formats.lance.protocol import obstacles_to_recoding
from lakehand.formats.lance.reading import (
    Shown,
    digested_rows,
    digested_schema,
    hashed_places,
    hidden_positions,
    identified_rows,
    identified_schema,
    only_rows,
    placed_rows,
    read_rows,
    without_rows,
)
from lakehand.formats.lance.snapshot import state_of
from lakehand.formats.lance.staged import open_marked, open_staged, stored_rows
from lakehand.formats.lance.writing import (
    NewFragments,
    NewRows,
    made_durable,
    write_fragments,
)
from lakehand.formats.worker import Decoder, TaskLimits, WriteSpec, require_any_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakehand.formats.rows import HiddenRows, PlacedColumns, Positions
    from lakehand.model.verification import Finding
    from lakehand.model.work import DataFile, Group, StagedFile
    from lakehand.prove.digest import Digester


@dataclass(frozen=True, kw_only=True, slots=True)
class LanceWorker(OpenVersions, NewRows):
    """Reads and rewrites fragments of one version. Picklable."""

    def _counted(
        self, inputs: Sequence[DataFile], *, scratch: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs` as they are counted.

        Of files that no version has so yet, storage is asked as if one had.
        """
        is_known = [staged_fragment(file) is None for file in inputs]
        known = inputs if all(is_known) else list(compress(inputs, is_known))
        yield from digested_rows(*self._found(known), shown=Shown(known))
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
        dataset = self._dataset
        with translated(self.store, "to read columns"):
            return digested_schema(dataset)

    def read(
        self,
        inputs: Sequence[DataFile],
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream the visible rows of `inputs`."""
        dataset, fragments = self._found(inputs)
        return read_rows(
            self.store,
            dataset,
            fragments,
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
        with translated(self.store, "to read new fragments"):
            staged = open_staged(self.store, self._dataset, rewriting.new_fragments(files))
            return read_rows(
                self.store,
                staged,
                staged.get_fragments(),
                columns=self.schema.names,
                row_identity=row_identity,
            )

    def read_digested(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
        dictionaries: bool = False,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs`, each counted in `digester`."""
        require_any_decoder(decoder, format_name="Lance")
        rows = self._identified(inputs) if self.tracks_rows else self.read(inputs)
        with translated(self.store, "to read fragments"):
            yield from counted(rows, digester, columns=len(self.moved_rows))

    def _identified(self, inputs: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        return identified_rows(self.store, *self._found(inputs))

    @property
    def streamed_rows(self) -> pa.Schema:
        """Columns of the table and, where ids are stable, what rows keep as they move."""
        return identified_schema(self._dataset) if self.tracks_rows else self.schema

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        spec: WriteSpec,
        *,
        like: Sequence[DataFile],
        stem: str,
    ) -> tuple[StagedFile, ...]:
        """Write sorted rows into fragments whose names start with `stem`."""
        dataset = self._dataset
        # Bytes are those of deleted rows, too.
        rows = self.count_rows(like) + sum(file.deleted_rows for file in like)
        size = sum(file.bytes for file in like)
        rows_a_file = max(1, spec.target_file_bytes * rows // max(1, size))
        with translated(self.store, "to write fragments"):
            staged = write_fragments(
                self.store, dataset, batches, like, rows_a_file=rows_a_file, stem=stem
            )
        return made_durable(self.store, staged) if spec.is_durable else staged

    def open_files(self, spec: WriteSpec, *, stem: str | Callable[[str], str]) -> NewFragments:
        """Open files for rows that are new to the table."""
        name = stem if isinstance(stem, str) else stem(DATA_DIRECTORY)
        return NewFragments(
            self.store, self._dataset, target_file_bytes=spec.target_file_bytes, stem=name
        )

    @property
    def hides_rows(self) -> bool:
        """Whether the table deletes rows without rewriting their file."""
        return True

    @property
    def proves_positions(self) -> bool:
        """Whether positions prove which rows are left: Lance's own are not read without it."""
        return False

    def read_placed(
        self,
        inputs: Sequence[DataFile],
        wanted: PlacedColumns,
        *,
        limits: TaskLimits,  # noqa: ARG002  Lance bounds its own memory
        decoder: Decoder = "duckdb",
    ) -> Iterator[pa.RecordBatch]:
        """Stream visible rows, in the types that are hashed, with their places."""
        require_any_decoder(decoder, format_name="Lance")
        dataset, fragments = self._found(inputs)
        predicate = parse_predicate(wanted.where, dataset.schema) if wanted.where else None
        numbers = {file.native["id"]: number for number, file in enumerate(inputs)}
        with translated(self.store, "to read fragments"):
            yield from placed_rows(
                dataset,
                fragments,
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
        require_any_decoder(decoder, format_name="Lance")
        numbers = {file.native["id"]: number for number, file in enumerate(inputs)}
        with translated(self.store, "to read fragments"):
            yield from hashed_places(*self._found(inputs), numbers=numbers)

    def deleted_positions(
        self, files: Sequence[DataFile], *, limits: TaskLimits
    ) -> list[Positions]:
        """Return the rows of fragments that Lance does not show.

        Of files that no version has so yet, storage is asked as if one had; all are such, or none.
        """
        marked = [found for file in files if (found := staged_fragment(file)) is not None]
        with translated(self.store, "to read which rows are deleted"):
            if not marked:
                dataset, fragments = self._found(files)
                # Lance lists fragments in its own order.
                ids = [fragment.fragment_id for fragment in fragments]
                hidden = dict(zip(ids, hidden_positions(dataset, fragments), strict=True))
                return [hidden[file.native["id"]] for file in files]
            (version,) = {file.native["version"] for file in files}
            base = self._open(version)
            seen = open_marked(self.store, base, marked, scratch=limits.scratch_directory)
            return marked_positions(self.store, seen, marked)

    def without_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it without some of its rows."""
        return without_rows(file, positions)

    def only_rows(self, file: DataFile, positions: Positions) -> DataFile:
        """Return `file` as a reader should see it with no other rows."""
        return only_rows(file, positions)

    def hide_rows(self, files: Sequence[tuple[DataFile, Positions]], *, stem: str) -> HiddenRows:
        """Delete rows of fragments by deletion files."""
        inputs = [file for file, _ in files]
        dataset, fragments = self._found(inputs)
        with translated(self.store, "to delete rows of fragments"):
            return hide_rows(self.store, dataset, files, fragments, stem=stem)

    def digest_rows(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the visible rows of `inputs`, with ids that they keep, in `digester`."""
        require_any_decoder(decoder, format_name="Lance")
        found = self._counted(inputs, scratch=limits.scratch_directory)
        with translated(self.store, "to read fragments"), read_ahead(found) as rows:
            digester.add_all(rows)

    def digest_staged(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the rows of written files in `digester`, as storage gives them back."""
        require_any_decoder(decoder, format_name="Lance")
        with translated(self.store, "to read new fragments"):
            staged = open_staged(self.store, self._dataset, rewriting.new_fragments(files))
            with read_ahead(digested_rows(staged, None)) as rows:
                digester.add_all(rows)

    def can_recode(self) -> bool:
        """Return whether the new places of rewritten rows need not be recorded."""
        return not any(obstacles_to_recoding(self.schema, state_of(self._dataset)))

    def can_copy(self, inputs: Sequence[DataFile]) -> bool:
        """Return whether Lance can copy pages, and the new places of rows need not be recorded."""
        if not rewriting.is_worth_a_look(inputs) or not self.can_recode():
            return False
        with translated(self.store, "to read fragments"):
            return rewriting.may_copy(self.store, self._dataset, self._replaced(inputs))

    def run_native(
        self,
        group: Group,
        *,
        stem: str,  # noqa: ARG002  Lance chooses the names of files
        is_copied: bool = False,
    ) -> tuple[StagedFile, ...]:
        """Let Lance write the rows of `group` into new fragments, or move their pages there.

        Every file that was written is among those returned.
        """
        dataset = self._dataset
        options = {**group.native, **self._copying(group)} if is_copied else group.native
        with translated(self.store, "to rewrite fragments"):
            account = rewriting.run_task(dataset, self._replaced(group.inputs), options)
        return rewriting.staged_files(
            rewriting.with_sizes(self.store, account) if is_copied else account
        )

    def _copying(self, group: Group) -> Mapping[str, Any]:
        """Return options by which pages are moved; files then end by their rows alone."""
        rows = self.count_rows(group.inputs) * group.target_file_bytes // max(1, group.input_bytes)
        return {"compaction_mode": rewriting.COPYING, "target_rows_per_fragment": max(1, rows)}

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
        self, _inputs: Sequence[DataFile], outputs: Sequence[StagedFile], /
    ) -> str | None:
        """Return what readers find otherwise in `outputs`, though rows are equal; None: nothing."""
        with translated(self.store, "to read new fragments"):
            staged = open_staged(self.store, self._dataset, rewriting.new_fragments(outputs))
        if staged.schema != self.schema:
            return "the new fragments have other columns than the table"
        return None

    def output_directory(self, _like: Sequence[DataFile], /) -> str | None:
        """Return the directory that new fragments are written into."""
        return DATA_DIRECTORY

    def check_files(self, files: pa.Table) -> list[Finding]:
        """Look at the files of fragments as storage has them, without reading their rows."""
        return check_files(self.store, files)

    def check_rows(self, files: Sequence[DataFile]) -> Iterator[Finding]:
        """Decode all rows of fragments, and count them."""
        dataset = self._at(files)
        yield from check_rows(self.store, dataset, files)
