"""New rows written into files by partition, and change data for the change data feed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import SchemaMismatchError
from lakehand.formats.delta.protocol.partition_values import format_partition_value
from lakehand.formats.delta.protocol.schema import (
    CHANGE_TYPE,
    PrimitiveType,
    StructField,
    StructType,
    physical_name,
)
from lakehand.formats.delta.write.context import WriteContext, output_directory
from lakehand.formats.delta.write.writer import FileSeries, layout_of, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from lakehand.formats.rows import RowChange
    from lakehand.formats.worker import WriteSpec
    from lakehand.model.work import DataFile, StagedFile

#: Partitions whose files are open at the same time; each may hold an open file or an upload.
_MAX_OPEN_PARTITIONS = 128
#: Each waits for storage most of the time.
_CLOSED_AT_ONCE = 8

Values = tuple[str | None, ...]


class Part(NamedTuple):
    """Rows of one partition."""

    values: Values
    rows: pa.RecordBatch


class NewFiles:
    """Takes batches of logical rows and makes files of them.

    Memory stays within the spec's `group_memory_bytes`, however many partitions there are: when it
    is used up, the partition that holds most of it writes a row group early.
    """

    def __init__(
        self,
        context: WriteContext,
        spec: WriteSpec,
        *,
        stem: str | Callable[[str], str],
        directory: str | None = None,
    ) -> None:
        """`stem` may depend on the directory of a file; `directory` is one for all partitions."""
        self._context = context
        self._directory = directory
        self._columns = context.partition_fields()
        self._layout = layout_of(context, spec, (), ())
        self._memory_bytes = spec.group_memory_bytes
        self._stem = stem
        self._started = 0
        self._open: dict[Values, FileSeries] = {}
        self._files: list[StagedFile] = []
        self._keys: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for series in self._open.values():
            series.__exit__(kind, error, traceback)
            self._keys += series.keys
        self._open.clear()

    @property
    def keys(self) -> list[str]:
        """What may be in storage by now: names of complete files and of those that are open."""
        return [*self._keys, *(key for series in self._open.values() for key in series.keys)]

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`; they reach storage with their row groups."""
        for values, rows in split_by_partition(batch, self._columns):
            self._series(values, rows.schema.names).write(rows)
        while self._gathered_bytes() > self._memory_bytes:
            max(self._open.values(), key=lambda series: series.gathered_bytes).flush()

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is left, several partitions at a time, and return the files."""
        series = list(self._open.values())
        if len(series) == 1:
            # A thread takes longer to start, on a busy machine, than a small file to write.
            self._files += series[0].close()
        else:
            with ThreadPoolExecutor(min(_CLOSED_AT_ONCE, len(series) or 1)) as pool:
                for staged in pool.map(FileSeries.close, series):
                    self._files += staged
        self.__exit__(None, None, None)
        return tuple(self._files)

    def _gathered_bytes(self) -> int:
        return sum(series.gathered_bytes for series in self._open.values())

    def _series(self, values: Values, names: list[str]) -> FileSeries:
        series = self._open.get(values)
        if series is None:
            if len(self._open) >= _MAX_OPEN_PARTITIONS:
                self._end(next(iter(self._open)))
            series = self._open[values] = self._start(values, names)
        return series

    def _start(self, values: Values, names: list[str]) -> FileSeries:
        mode = self._context.mode
        physical = [physical_name(column, mode=mode) for column in self._columns]
        raw = dict(zip(physical, values, strict=True))
        directory = self._directory
        if directory is None:
            directory = output_directory(self._context, (), raw)
        stem = self._stem if isinstance(self._stem, str) else self._stem(directory)
        if self._columns:
            # The number tells partitions apart where their files lie in one directory.
            stem = f"{stem}-{self._started:04d}"
        self._started += 1
        prefix = f"{directory}/{stem}" if directory else stem
        store = self._context.store
        return FileSeries(
            self._context, self._layout, store=store, prefix=prefix, values=raw, names=names
        )

    def _end(self, values: Values) -> None:
        series = self._open[values]
        self._files += series.close()
        series.__exit__(None, None, None)
        self._keys += series.keys
        del self._open[values]


def split_by_partition(batch: pa.RecordBatch, columns: list[StructField]) -> Iterator[Part]:
    """Yield the rows of each partition, in their order; values are spelled as the log has them."""
    if not columns or not batch.num_rows:
        yield Part((None,) * len(columns), batch)
        return
    codes, dictionaries = _codes(batch, columns)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = [*starts[1:].tolist(), len(order)]
    rows = batch if len(starts) == 1 else batch.take(pa.array(order))
    for start, end in zip(starts.tolist(), ends, strict=True):
        part = rows.slice(start, end - start)
        yield Part(_values(int(codes[order[start]]), columns, dictionaries), part)


def _codes(batch: pa.RecordBatch, columns: list[StructField]) -> tuple[np.ndarray, list[pa.Array]]:
    """Return one number a row, equal where all partition columns are, and the values behind."""
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    dictionaries = []
    for column in columns:
        encoded = pc.dictionary_encode(batch.column(column.name), null_encoding="encode")
        dictionaries.append(encoded.dictionary)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    return codes, dictionaries


def _values(code: int, columns: list[StructField], dictionaries: list[pa.Array]) -> Values:
    values: list[str | None] = []
    for column, dictionary in zip(reversed(columns), reversed(dictionaries), strict=True):
        code, position = divmod(code, len(dictionary))
        values.insert(0, _spelled(dictionary[position].as_py(), column))
    return tuple(values)


def _spelled(value: object, column: StructField) -> str | None:
    if not isinstance(column.type, PrimitiveType):
        raise SchemaMismatchError(f"column {column.name!r} is nested and cannot partition a table")
    return format_partition_value(value, column.type)


CHANGE_DIRECTORY = "_change_data"

_ENABLED = "delta.enableChangeDataFeed"
_WORDS: dict[RowChange, str] = {
    "gone": "delete",
    "came": "insert",
    "replaced": "update_preimage",
    "replacing": "update_postimage",
}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def feeds_changes(context: WriteContext) -> bool:
    """Say whether the table has readers that want every change of it."""
    return context.configuration.get(_ENABLED, "false").lower() == "true"


def write_changes(
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    spec: WriteSpec,
    *,
    like: DataFile,
    stem: str,
    kind: RowChange,
) -> tuple[StagedFile, ...]:
    """Write rows to which `kind` happened; they were in the partition of `like`."""
    rows = (_with_kind(batch, kind) for batch in batches)
    return write_files(
        _with_kinds(context), rows, spec, like=[like], stem=stem, directory=CHANGE_DIRECTORY
    )


class ChangeFiles(NewFiles):
    """Takes new rows of the table, and writes them for change data feed readers."""

    def __init__(
        self, context: WriteContext, spec: WriteSpec, *, stem: str, kind: RowChange
    ) -> None:
        super().__init__(_with_kinds(context), spec, stem=stem, directory=CHANGE_DIRECTORY)
        self._kind: RowChange = kind

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`; they reach storage with their row groups."""
        super().write(_with_kind(batch, self._kind))


def _with_kinds(context: WriteContext) -> WriteContext:
    """Return a context with one more column, which is none of the table's."""
    kind = StructField(
        name=CHANGE_TYPE,
        type=PrimitiveType("string"),
        nullable=True,
        metadata={_PHYSICAL_NAME: CHANGE_TYPE},
    )
    return replace(context, schema=StructType((*context.schema.fields, kind)))


def _with_kind(batch: pa.RecordBatch, kind: RowChange) -> pa.RecordBatch:
    words = pa.repeat(pa.scalar(_WORDS[kind], pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, words], schema=batch.schema.append(pa.field(CHANGE_TYPE, pa.string()))
    )
