"""Writes rows into new files of a table, ready to be committed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lakehand.errors import SchemaMismatchError, UnknownColumnError, ValidationError
from lakehand.formats.delta.protocol.arrow_types import has_dates_made_timestamps
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.protocol.schema import PrimitiveType, leaves, physical_name
from lakehand.formats.delta.statistics.written import WrittenStatistics
from lakehand.formats.delta.write.context import (
    CODEC_PROPERTY,
    codec_name,
    output_directory,
    partition_values_of,
)
from lakehand.formats.delta.write.file_schema import file_schema
from lakehand.formats.rows import require_no_reserved_names
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.model.work import DataFile, StagedFile
from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.footer_facts import FileFacts, dominant_codec
from lakehand.parquet.rebase import RecodedCalendar, reject_old_dates
from lakehand.parquet.rolling_writer import ParquetLayout, RollingWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.formats.worker import WriteSpec
    from lakehand.model.order import Term
    from lakehand.storage import Store

_FORMAT_PROPERTY = "delta.parquet.format.version"
_DEFAULT_CODEC, _ZSTD_LEVEL = "zstd", 1
_MAX_GZIP_LEVEL = 9


def write_files(
    context: WriteContext,
    batches: Iterable[pa.RecordBatch],
    spec: WriteSpec,
    *,
    like: Sequence[DataFile] = (),
    stem: str,
    partition_values: Mapping[str, str | None] | None = None,
    into: Store | None = None,
    directory: str | None = None,
) -> tuple[StagedFile, ...]:
    """Write logical rows into files whose names start with `stem`.

    They go into the partition of `like`, the files whose rows these are, or else into the one of
    `partition_values` (raw, by physical name). Columns of row identity in the batches are kept.
    `into` takes the files in place of the table's store, `directory` in place of the partition's.
    """
    values = partition_values_of(context, like, partition_values)
    facts = context.footers.of(context.store, like)
    calendar = RecodedCalendar.of(facts)
    layout = replace(layout_of(context, spec, like, facts), key_values=dict(calendar.key_values))
    rows = iter(_with_one_calendar(context, batches, calendar))
    if directory is None:
        directory = output_directory(context, like, partition_values)
    first = next(rows, None)
    if first is None:
        return ()
    with FileSeries(
        context,
        layout,
        store=into or context.store,
        prefix=f"{directory}/{stem}" if directory else stem,
        values=values,
        names=first.schema.names,
    ) as series:
        series.write(first)
        for batch in rows:
            series.write(batch)
        return series.close()


def _with_one_calendar(
    context: WriteContext, batches: Iterable[pa.RecordBatch], calendar: RecodedCalendar
) -> Iterable[pa.RecordBatch]:
    """Refuse values that readers would take for others under the marks of the new files."""
    # Readers shift dates of an old calendar, and never the timestamps that they are written as.
    with_clocks = calendar.is_legacy and has_dates_made_timestamps(context.schema)
    if not (calendar.modern_values_only or with_clocks):
        return batches
    return reject_old_dates(batches, with_clocks=with_clocks)


def layout_of(
    context: WriteContext,
    spec: WriteSpec,
    like: Sequence[DataFile],
    facts: Sequence[FileFacts],
) -> ParquetLayout:
    """Return how files are laid out, whose rows are those of `like`, of which `facts` tell."""
    codec = _codec(context, spec, facts)
    physical_rows = sum(file.rows for file in facts)
    deleted_rows = sum(file.deleted_rows for file in like)
    input_bytes = sum(file.bytes for file in like)
    is_new_format = context.configuration.get(_FORMAT_PROPERTY, "1.0.0").startswith("2")
    return ParquetLayout(
        target_file_bytes=spec.target_file_bytes,
        codec=codec,
        codec_level=_codec_level(codec, spec.codec_level),
        has_dictionaries=spec.has_dictionaries,
        has_page_index=spec.has_page_statistics,
        row_group_rows=spec.row_group_rows,
        row_group_bytes=spec.row_group_bytes,
        group_memory_bytes=spec.group_memory_bytes,
        threads=spec.threads,
        data_page_version="2.0" if is_new_format else "1.0",
        sorted_by=_physical_terms(context, spec.sorted_by),
        expected_rows=physical_rows - deleted_rows if facts else None,
        expected_bytes_per_row=input_bytes / physical_rows if physical_rows else None,
        bloom_columns=_bloom_columns(context, spec.bloom_columns),
        bloom_fpp=spec.bloom_fpp,
    )


def _physical_terms(context: WriteContext, terms: Sequence[Term]) -> tuple[Term, ...]:
    if not terms:
        return ()
    paths = {leaf.path: leaf.physical_path for leaf in leaves(context.schema, mode=context.mode)}
    return tuple(replace(term, path=paths[term.path]) for term in terms)


def _bloom_columns(context: WriteContext, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in files of columns that are to get Bloom filters."""
    found = []
    for name in names:
        column = context.schema.find(name)
        if column is None:
            raise UnknownColumnError(name, context.schema.names)
        if not isinstance(column.type, PrimitiveType) or column.type.name == "boolean":
            message = f"column {name!r} can have no Bloom filter, because of its type"
            raise ValidationError(message, field="bloom_columns", value=name)
        found.append(physical_name(column, mode=context.mode))
    return tuple(found)


def _codec_level(codec: str, asked: int | None) -> int | None:
    if codec == "zstd":
        return asked or _ZSTD_LEVEL
    return min(asked, _MAX_GZIP_LEVEL) if asked and codec == "gzip" else None


def _codec(context: WriteContext, spec: WriteSpec, facts: Sequence[FileFacts]) -> str:
    asked = spec.codec or context.configuration.get(CODEC_PROPERTY)
    if asked is None:
        return dominant_codec(facts) or _DEFAULT_CODEC
    return codec_name(asked)


class FileSeries:
    """Rows of one partition on their way into files whose names start alike.

    Leaving the block by an exception makes files vanish that were open; those before them stay.
    """

    def __init__(
        self,
        context: WriteContext,
        layout: ParquetLayout,
        *,
        store: Store,
        prefix: str,
        values: Mapping[str, str | None],
        names: Sequence[str],
    ) -> None:
        """`values` are the raw partition values, `names` the columns of the batches to come."""
        extras = _identity_columns(context, names)
        self._schema = file_schema(context.data_fields(), mode=context.mode, extras=extras)
        self._values = dict(values)
        self._prefix = f"{prefix}-"
        self._suffix = f".{layout.codec}.parquet"
        #: Names that were handed out: what may be in storage, whatever becomes of the series.
        self.keys: list[str] = []
        rules = context.statistics_rules()
        is_legacy = calendar_class(layout.key_values).datetime == "legacy"
        self._statistics = defaultdict[int, WrittenStatistics](
            lambda: WrittenStatistics(rules, self._schema.arrow, is_legacy=is_legacy)
        )
        self._writer = RollingWriter(
            store,
            self._schema.arrow,
            layout,
            name=self._name,
            form=self._schema.to_file,
            watch=lambda index, group: self._statistics[index].watch(group),
        )

    def _name(self, index: int) -> str:
        self.keys.append(f"{self._prefix}{index:05d}{self._suffix}")
        return self.keys[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    @property
    def gathered_bytes(self) -> int:
        """Memory of the rows that wait for their row group to be full."""
        return self._writer.gathered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(self._schema.choose(batch))

    def flush(self) -> None:
        """Write the rows gathered so far, and free their memory."""
        self._writer.flush()

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files with their statistics."""
        files = self._writer.close()
        return tuple(
            StagedFile(
                path=file.key,
                bytes=file.bytes,
                rows=file.rows,
                native={
                    "partitionValues": dict(self._values),
                    "stats": self._statistics[index].finish(file.row_groups),
                },
                tail=(file.tail.start, file.tail.crc),
            )
            for index, file in enumerate(files)
        )


def _identity_columns(context: WriteContext, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return under which names the file keeps the identity of rows, where batches have one."""
    properties = {ROW_ID: ROW_ID_PROPERTY, ROW_VERSION: ROW_VERSION_PROPERTY}
    present = {name: key for name, key in properties.items() if name in names}
    if present:
        # A column of the table with such a name would be written instead of the row ids.
        table = context.store.url
        require_no_reserved_names(context.schema.names, table=table, operation="write")
    missing = [key for key in present.values() if key not in context.configuration]
    if missing:
        raise SchemaMismatchError(f"the table has no property {missing[0]} to keep row ids by")
    return [(name, context.configuration[key]) for name, key in present.items()]
