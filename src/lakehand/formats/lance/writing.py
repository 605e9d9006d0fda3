"""Rows written into new fragments under reserved names, and made durable on local disk."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.formats.lance.comparable_types import plain_batch, plain_schema
from lakehand.formats.lance.connect import DATA_DIRECTORY, address, load_lance, translated
from lakehand.formats.lance.deletions import FRAGMENT
from lakehand.formats.lance.reading import IDENTITY, described_identity
from lakehand.formats.lance.rewriting import staged_files
from lakehand.formats.lance.staged import open_empty
from lakehand.formats.worker import Decoder, TaskLimits, require_any_decoder
from lakehand.model.work import DataFile, StagedFile
from lakehand.storage.local_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from lakehand.prove.digest import Digester
    from lakehand.storage import Store


def made_durable(store: Store, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    """Return `files` once they would survive a power cut, as objects in a store always do."""
    named = [path for file in files if (path := store.local_path(file.path)) is not None]
    # Long payloads of blobs are in a directory next to their file, and no manifest names them.
    paths = [*named, *(path for file in named for path in file.with_suffix("").glob("*"))]
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for directory in {str(path.parent) for path in paths}:
        sync_directory(directory)
    return tuple(files)


class NewFragments:
    """Files of about a size each, which rows come to piece by piece."""

    def __init__(self, store: Store, dataset: Any, *, target_file_bytes: int, stem: str) -> None:
        self._store = store
        self._schema: pa.Schema = dataset.schema
        self._target = target_file_bytes
        self._writer = FragmentWriter(store, dataset, stem=stem)
        #: Size of the rows in the file that is open, as they lie in memory.
        self._held_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        # Lance can end a file and not give it up, so it is ended and then deleted.
        unfinished = self._writer.open_key
        with suppress(OSError, ValueError, RuntimeError):
            self._writer.close_file()
        if unfinished is not None:
            self._store.delete([unfinished])

    @property
    def keys(self) -> list[str]:
        """What may be in storage by now."""
        return self._writer.keys

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which have the columns and types of the table in its order."""
        with translated(self._store, "to write fragments"):
            self._writer.write(batch.cast(self._schema))
            self._held_bytes += batch.nbytes
            if self._held_bytes >= self._target:
                self._writer.close_file()
                self._held_bytes = 0

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files."""
        with translated(self._store, "to write fragments"):
            self._writer.close_file()
        return made_durable(self._store, [_staged(found) for found in self._writer.fragments()])


def _staged(fragment: dict[str, Any]) -> StagedFile:
    (file,) = fragment["files"]
    return StagedFile(
        path=f"{DATA_DIRECTORY}/{file['path']}",
        bytes=file["file_size_bytes"],
        rows=fragment["physical_rows"],
        native={FRAGMENT: json.dumps(fragment)},
    )


class NewRows:
    """The part of a worker that counts rows which are new to the table."""

    __slots__ = ()

    store: Store

    if TYPE_CHECKING:

        @property
        def schema(self) -> pa.Schema: ...

        def read_staged(self, files: Sequence[StagedFile]) -> pa.RecordBatchReader: ...

    @property
    def keeps_emptied_files(self) -> bool:
        """Lance replaces rows in one commit only if all fragments stay; compaction drops them."""
        return True

    @property
    def hands_on_row_ids(self) -> bool:
        """Lance gives new ids to rows that replace others."""
        return False

    @property
    def new_rows(self) -> pa.Schema:
        """Columns of rows that are new: without ids, which they get with the commit."""
        return plain_schema(self.schema)

    def counted_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return new rows in the types that are hashed."""
        return plain_batch(rows)

    def digest_new(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count rows that are new in `digester`, as storage gives them back."""
        require_any_decoder(decoder, format_name="Lance")
        with translated(self.store, "to read new fragments"):
            digester.add_all(map(plain_batch, self.read_staged(files)))


#: Lance counts rows of a file with 32 bits.
_ANY_ROWS = 2**31
_DECIMAL_BYTES = 16


def write_fragments(
    store: Store,
    dataset: Any,
    batches: Iterable[pa.RecordBatch],
    replaced: Sequence[DataFile],
    *,
    rows_a_file: int,
    stem: str,
) -> tuple[StagedFile, ...]:
    """Write rows into fragments that replace `replaced`, each of `rows_a_file` rows."""
    with FragmentWriter(store, dataset, rows_a_file=rows_a_file, stem=stem) as writer:
        for batch in batches:
            writer.write(batch)
    return staged_files(_account(dataset, replaced, writer.fragments()))


def _account(dataset: Any, replaced: Sequence[DataFile], new: list[dict[str, Any]]) -> str:
    """Return the result of a Lance rewrite task, for rows that were moved anywhere.

    Where rows went is left out: there is no index that would have to know. What is replaced is
    described at the commit, because every writing of a group would tell it again.
    """
    metrics = {
        "fragments_removed": len(replaced),
        "fragments_added": len(new),
        "files_removed": sum(len(file.native["files"]) for file in replaced),
        "files_added": len(new),
    }
    return json.dumps(
        {
            "metrics": metrics,
            "new_fragments": new,
            "read_version": dataset.version,
            "row_addrs": None,
        }
    )


class FragmentWriter:
    """Files of a number of rows each, one after the other."""

    def __init__(
        self, store: Store, dataset: Any, *, rows_a_file: int = _ANY_ROWS, stem: str
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._rows_a_file = rows_a_file
        self._stem = stem
        self._file: Any = None
        #: How Lance describes a data file with all columns of the table.
        self._description: dict[str, Any] = {}
        #: Rows of each file by its name.
        self._written: dict[str, int] = {}
        #: What the rows of each file keep, where ids of rows are stable.
        self._identities: dict[str, list[pa.RecordBatch]] = {}
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_file()

    @property
    def keys(self) -> list[str]:
        """Names of files that are complete or open."""
        return [f"{DATA_DIRECTORY}/{name}" for name in self._written]

    @property
    def open_key(self) -> str | None:
        """Name of the file that is not complete yet."""
        return None if self._file is None else f"{DATA_DIRECTORY}/{self._name}"

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which have the columns of the table; behind these what they keep, if any."""
        names = self._dataset.schema.names
        for piece in self._pieces(_aligned(batch)):
            rows = piece.select(names)
            if self._file is None:
                self._open(rows)
            self._file.write_batch(rows)
            self._written[self._name] += piece.num_rows
            if piece.num_columns > rows.num_columns:
                identity = piece.select(list(IDENTITY))
                self._identities.setdefault(self._name, []).append(identity)
            if self._written[self._name] >= self._rows_a_file:
                self.close_file()

    def fragments(self) -> list[dict[str, Any]]:
        """Return what was written, as Lance describes fragments."""
        return [
            {
                "id": 0,
                "files": [{**self._description, "path": name, "file_size_bytes": size}],
                "physical_rows": rows,
                **(described_identity(self._identities[name]) if self._identities else {}),
            }
            for (name, rows), size in zip(self._written.items(), self._sizes(), strict=True)
        ]

    def _sizes(self) -> list[int]:
        return [self._store.head(key).bytes for key in self.keys]

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        start = 0
        while start < batch.num_rows:
            taken = self._written[self._name] if self._file is not None else 0
            piece = batch.slice(start, self._rows_a_file - taken)
            yield piece
            start += piece.num_rows

    def _open(self, rows: pa.RecordBatch) -> None:
        load_lance()
        from lance.file import LanceFileWriter

        if not self._description:
            self._description = _describe_file(self._store, self._dataset, rows.slice(0, 1))
        self._name = f"{self._stem}-{len(self._written)}.lance"
        self._written[self._name] = 0
        self._file = LanceFileWriter(
            f"{address(self._store)}/{DATA_DIRECTORY}/{self._name}",
            self._dataset.schema,
            version=self._dataset.data_storage_version,
            storage_options=self._store.connection_options() or None,
        )

    def close_file(self) -> None:
        """Close the open file; later rows are written into another one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose decimals begin where Lance, which panics otherwise, can read them.

    Files that are mapped into memory align values by 8 bytes only.
    """
    columns = [
        pa.concat_arrays([column, column.slice(0, 0)]) if _is_askew(column) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_askew(column: pa.Array) -> bool:
    return _has_decimals(column.type) and any(
        buffer is not None and buffer.address % _DECIMAL_BYTES for buffer in column.buffers()
    )


def _has_decimals(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_decimals(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _has_decimals(kind.value_type)
    members = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_decimal(kind) or any(map(_has_decimals, members))


def _describe_file(store: Store, dataset: Any, row: pa.RecordBatch) -> dict[str, Any]:
    """Return which columns of a data file are which of the table.

    Lance tells by writing a row into another dataset that has the same ones.
    """
    empty = open_empty(store, dataset)
    fragments = load_lance().fragment.write_fragments(
        pa.Table.from_batches([row]),
        empty,
        mode="append",
        data_storage_version=dataset.data_storage_version,
    )
    description: dict[str, Any] = fragments[0].to_json()["files"][0]
    return description
