"""Files of a table made from row groups of other files, byte for byte."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    RefusedError,
    StorageError,
    StoreUnreachableError,
)
from lakehand.formats.delta.protocol.features import ROW_ID_PROPERTY, ROW_VERSION_PROPERTY
from lakehand.formats.delta.protocol.schema import physical_name
from lakehand.formats.delta.statistics.merge import StatisticsRules, merge_statistics
from lakehand.formats.delta.write.context import (
    CODEC_PROPERTY,
    codec_name,
    output_directory,
    partition_values_of,
)
from lakehand.formats.worker import CopiedFile, Copies, NotCopyable, WriteSpec
from lakehand.model.work import DataFile, StagedFile
from lakehand.observe import get_logger, log_event
from lakehand.parquet.copyable import (
    CODECS,
    copy_class,
    merged_created_by,
    merged_key_values,
    refusal,
)
from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    chunks,
    fetch_footer,
    field,
    parse_footer,
    row_group_bytes,
)
from lakehand.parquet.footer_bounds import leaf_bounds
from lakehand.parquet.footer_facts import check_row_count, check_size
from lakehand.parquet.leaves import leaves
from lakehand.parquet.row_group_copy import Source, copy_row_groups, divide
from lakehand.storage.objects import NotComposable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.parquet.copyable import CopyClass
    from lakehand.parquet.footer import Footer
    from lakehand.parquet.row_group_copy import Copied
    from lakehand.storage.s3_composer import S3Composer

_logger = get_logger(__name__)
_PARALLEL_READS = 16
#: A file of several codecs, or of none, is no pattern for new ones.
_KEPT_CODECS = frozenset(CODECS) - {"uncompressed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaCopier:
    """Moves row groups between files of a table. Picklable."""

    context: WriteContext
    #: How new files are written: row groups that differ are not copied. None: all are.
    spec: WriteSpec | None = None

    def output_directory(self, like: Sequence[DataFile]) -> str:
        return output_directory(self.context, like)

    @contextmanager
    def copy(
        self,
        inputs: Sequence[DataFile],
        *,
        target_file_bytes: int,
        stem: str,
        beside: Sequence[StagedFile] = (),
    ) -> Iterator[Copies]:
        """Write the row groups of all files into new ones of about the target size, undecoded.

        Raises NotCopyable, before anything is written, if their bytes would not mean the same
        there. While one file is on its way to the disk, the next is written, and all can be read.
        """
        files = [*inputs, *map(_as_data_file, beside)]
        sources = _sources(self.context, files)
        reason = why_not_copyable(self.context, files, sources, self.spec)
        if reason is not None:
            raise NotCopyable(reason)
        directory = self.output_directory(files)
        prefix = f"{directory}/{stem}" if directory else stem
        composed, streamed_because = self._try_composing(files, sources, prefix, target_file_bytes)
        if composed is not None:
            yield composed
            return
        with ExitStack() as until_durable:
            copied = tuple(
                _copy(self.context, part, f"{prefix}-{number:05d}.parquet", until_durable)
                for number, part in enumerate(_parts(files, sources, target_file_bytes))
            )
            yield Copies(
                files=copied,
                input_rows=_rows_of(sources),
                streamed_because=streamed_because,
            )

    def _try_composing(
        self,
        files: Sequence[DataFile],
        sources: Sequence[Source],
        prefix: str,
        target_file_bytes: int,
    ) -> tuple[Copies | None, str | None]:
        """Return files that the store wrote by itself; else None, and why not if it is asked to."""
        asked = self.spec.server_side_copy if self.spec else "never"
        if asked == "never" or (asked == "auto" and not self.context.store.may_compose):
            return None, None
        try:
            return self._compose(files, sources, prefix, target_file_bytes), None
        except NotComposable as reason:
            if asked == "always":
                raise RefusedError(
                    f"these row groups cannot be copied on the server: {reason}",
                    feature="server_side_copy",
                    hint="set server_side_copy to auto; nothing was changed",
                ) from reason
            message = "Row groups are streamed through the task: %s"
            log_event(_logger, logging.INFO, "server_side_copy_declined", message, reason)
            return None, str(reason)

    def _compose(
        self,
        files: Sequence[DataFile],
        sources: Sequence[Source],
        prefix: str,
        target_file_bytes: int,
    ) -> Copies:
        """Have the store write the new files; NotComposable if it cannot, or cannot prove it."""
        from lakehand.parquet.composed_copy import find_movable  # loads NumPy

        store = self.context.store
        try:
            with store.composer() as composer:
                movable = find_movable(composer, store, sources)
                copied = tuple(
                    _composed(self.context, composer, part, f"{prefix}-{number:05d}.parquet")
                    for number, part in enumerate(_parts(files, movable, target_file_bytes))
                )
        except (ObjectNotFoundError, ObjectChangedError, StoreUnreachableError):
            raise
        except StorageError as error:
            raise NotComposable(f"the store refuses: {error.message}") from error
        moved = tuple(source.movable for source in movable if source.movable is not None)
        return Copies(files=copied, input_rows=_rows_of(sources), moved=moved)


def _as_data_file(staged: StagedFile) -> DataFile:
    native = {"add": dict(staged.native)}
    return DataFile(path=staged.path, bytes=staged.bytes, rows=staged.rows, native=native)


def why_not_copyable(
    context: WriteContext,
    inputs: Sequence[DataFile],
    sources: Sequence[Source],
    spec: WriteSpec | None = None,
) -> str | None:
    """Return why these files cannot become one by moving their row groups; None if they can."""
    if any(file.deleted_rows for file in inputs):
        return "rows are deleted"
    reasons = (why_not_of_file(context, source.footer, spec) for source in sources)
    refused = next((reason for reason in reasons if reason), None)
    if refused is not None:
        return refused
    if len({copy_class(source.footer) for source in sources}) > 1:
        return "the files differ in schema, codec or calendar"
    return None


def why_not_of_file(
    context: WriteContext, footer: Footer, spec: WriteSpec | None = None
) -> str | None:
    """Return why the row groups of a file must not be moved within the table; None if they may."""
    why_not = refusal(footer) or why_not_of_class(context, copy_class(footer), spec)
    if why_not is None and spec is not None and spec.bloom_columns:
        why_not = _why_not_of_filters(context, footer, spec.bloom_columns)
    if why_not is None and context.tracks_rows and not _holds_row_identity(context, footer):
        return "row ids follow from positions, which would change"
    return why_not


def why_not_of_class(
    context: WriteContext, found: CopyClass, spec: WriteSpec | None = None
) -> str | None:
    """Return why no file of this class may be copied within the table; None if all may."""
    if context.holds_partition_columns and context.partition_columns:
        return "new files must hold partition columns, and old ones need not have them"
    if found.codec not in _KEPT_CODECS:
        return f"the files are {found.codec}, and new ones are not"
    asked = (spec.codec if spec else None) or context.configuration.get(CODEC_PROPERTY, found.codec)
    if codec_name(found.codec) != codec_name(asked):
        return f"the files are {found.codec}, and new ones are to be {asked.lower()}"
    return None


def _why_not_of_filters(context: WriteContext, footer: Footer, names: Sequence[str]) -> str | None:
    """Return which Bloom filter that is asked for is missing in a row group."""
    columns = {leaf.path: index for index, leaf in enumerate(leaves(footer.schema))}
    for name in names:
        column = context.schema.find(name)
        path = None if column is None else (physical_name(column, mode=context.mode),)
        index = columns.get(path) if path is not None else None
        metadata = (
            field(chunks(group)[index], ChunkField.METADATA)
            for group in footer.row_groups
            if index is not None
        )
        if index is None or not all(field(chunk, ColumnField.BLOOM) for chunk in metadata):
            return f"column {name!r} has no Bloom filter in all row groups"
    return None


def _holds_row_identity(context: WriteContext, footer: Footer) -> bool:
    """Return whether every row has its id and its commit version stored, by the null counts."""
    properties = (ROW_ID_PROPERTY, ROW_VERSION_PROPERTY)
    columns = {leaf.path: (index, leaf) for index, leaf in enumerate(leaves(footer.schema))}
    found = [columns.get((context.configuration.get(name, ""),)) for name in properties]
    everywhere = range(len(footer.row_groups))
    return all(
        column is not None and leaf_bounds(footer, *column, everywhere).nulls == 0
        for column in found
    )


def _sources(context: WriteContext, inputs: Sequence[DataFile]) -> list[Source]:
    places = [context.store.resolve(file.path) for file in inputs]
    # Threads wait for bytes; taking them apart is work for one.
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        fetched = pool.map(lambda place: fetch_footer(*place, table=context.store.url), places)
        sources = []
        for file, (store, key), (data, size) in zip(inputs, places, fetched, strict=True):
            check_size(file.path, found=size, expected=file.bytes)
            footer = parse_footer(data, path=key, file_bytes=size)
            check_row_count(file.path, found=footer.rows, expected=file.rows)
            sources.append(Source.stored(store, key, footer))
        return sources


_Part = list[tuple["DataFile", Source]]


def _parts(
    inputs: Sequence[DataFile], sources: Sequence[Source], target_file_bytes: int
) -> list[_Part]:
    """Divide row groups into outputs of about equal size."""
    sizes = [[row_group_bytes(group) for group in source.row_groups] for source in sources]
    return [
        [(inputs[piece.file], sources[piece.file].part(piece.first, piece.end)) for piece in pieces]
        for pieces in divide(sizes, target_bytes=target_file_bytes)
    ]


def _rows_of(sources: Sequence[Source]) -> int:
    return sum(source.footer.rows for source in sources)


def _copy(context: WriteContext, part: _Part, key: str, until_durable: ExitStack) -> CopiedFile:
    sink = until_durable.enter_context(context.store.open_writer(key))
    copied = copy_row_groups([source for _, source in part], sink, **_file_facts(part))
    sink.publish()
    return _copied_file(context, part, key, copied, sink.tell())


def _composed(context: WriteContext, composer: S3Composer, part: _Part, key: str) -> CopiedFile:
    from lakehand.parquet.composed_copy import compose_row_groups

    sources = [source for _, source in part]
    copied = compose_row_groups(composer, context.store, key, sources, **_file_facts(part))
    assert copied.composition is not None  # noqa: S101  it was composed
    return _copied_file(context, part, key, copied, copied.composition.stored.bytes)


def _file_facts(part: _Part) -> dict[str, Any]:
    footers = [source.footer for _, source in part]
    writer = f"lakehand version {__version__}"
    return {
        "created_by": merged_created_by(footers, writer=writer),
        "key_values": merged_key_values(footers),
    }


def _copied_file(
    context: WriteContext, part: _Part, key: str, copied: Copied, size: int
) -> CopiedFile:
    inputs, sources = [file for file, _ in part], [source for _, source in part]
    rules = context.statistics_rules()
    texts = [_statistics(file, source, rules) for file, source in part]
    stats = merge_statistics(texts, [source.rows for source in sources], rules)
    values = partition_values_of(context, inputs)
    staged = StagedFile(
        path=key,
        bytes=size,
        rows=copied.rows,
        native={"partitionValues": values, "stats": stats},
    )
    return CopiedFile(staged=staged, copied=copied)


def _statistics(file: DataFile, source: Source, rules: StatisticsRules) -> str | None:
    """Return what is known of the rows that are copied from a file."""
    text: str | None = file.native["add"].get("stats")
    if source.rows == source.footer.rows:
        return text
    from lakehand.formats.delta.statistics.slices import slice_statistics  # loads Arrow

    return slice_statistics(text, source.footer, source.chosen, rules, rows=source.rows)
