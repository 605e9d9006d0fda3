"""Files of a table made from row groups of other files, byte for byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import lakehand
from lakehand.formats.base import CopiedFile, NotCopyable
from lakehand.formats.delta.files.merged_statistics import merge_statistics
from lakehand.formats.delta.files.writer import output_directory, partition_values_of
from lakehand.model.work import StagedFile
from lakehand.parquet.copy import Source, copy_row_groups
from lakehand.parquet.copyable import (
    CODECS,
    copy_class,
    merged_created_by,
    merged_key_values,
    refusal,
)
from lakehand.parquet.footer import read_footer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.formats.delta.files.writer import WriteContext
    from lakehand.model.work import DataFile
    from lakehand.parquet.copyable import CopyClass

__all__ = ["copy_files", "why_not_copyable", "why_not_of_class"]

_PARALLEL_READS = 16
_CODEC_PROPERTY = "delta.parquet.compression.codec"
#: A file of several codecs, or of none, is no pattern for new ones.
_KEPT_CODECS = frozenset(CODECS) - {"uncompressed"}


def copy_files(
    context: WriteContext, inputs: Sequence[DataFile], *, target_file_bytes: int, stem: str
) -> tuple[CopiedFile, ...]:
    """Write the row groups of `inputs` into new files of about the target size, undecoded.

    Raises NotCopyable, before anything is written, if their bytes would not mean the same there.
    """
    sources = _sources(context, inputs)
    reason = why_not_copyable(context, inputs, sources)
    if reason is not None:
        raise NotCopyable(reason)
    directory = output_directory(context, inputs)
    prefix = f"{directory}/{stem}" if directory else stem
    return tuple(
        _copy(context, part, key=f"{prefix}-{number:05d}.parquet")
        for number, part in enumerate(_parts(inputs, sources, target_file_bytes))
    )


def why_not_copyable(
    context: WriteContext, inputs: Sequence[DataFile], sources: Sequence[Source]
) -> str | None:
    """Return why these files cannot become one by moving their row groups; None if they can."""
    if any(file.deleted_rows for file in inputs):
        return "rows are deleted"
    refused = next((why for source in sources if (why := refusal(source.footer))), None)
    if refused is not None:
        return refused
    classes = {copy_class(source.footer) for source in sources}
    if len(classes) > 1:
        return "the files differ in schema, codec or calendar"
    return why_not_of_class(context, classes.pop())


def why_not_of_class(context: WriteContext, found: CopyClass) -> str | None:
    """Return why no file of this class may be copied within the table; None if all may."""
    if context.tracks_rows:
        return "row ids follow from positions, which would change"
    if context.holds_partition_columns and context.partition_columns:
        return "new files must hold partition columns, and old ones need not have them"
    if found.codec not in _KEPT_CODECS:
        return f"the files are {found.codec}, and new ones are not"
    wanted = context.configuration.get(_CODEC_PROPERTY, found.codec).lower()
    if found.codec != wanted:
        return f"the files are {found.codec}, and new ones are to be {wanted}"
    return None


def _sources(context: WriteContext, inputs: Sequence[DataFile]) -> list[Source]:
    def read(file: DataFile) -> Source:
        store, key = context.store.resolve(file.path)
        return Source(store=store, key=key, footer=read_footer(store, key, table=context.store.url))

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(pool.map(read, inputs))


_Part = list[tuple["DataFile", Source]]


def _parts(
    inputs: Sequence[DataFile], sources: Sequence[Source], target_file_bytes: int
) -> Iterator[_Part]:
    """Divide files into outputs of about equal size; a file is never split.

    Statistics are known per file, so a part of one would have none of its own.
    """
    total = sum(file.bytes for file in inputs)
    count = max(1, round(total / target_file_bytes))
    part: _Part = []
    done = number = 0
    for pair in zip(inputs, sources, strict=True):
        part.append(pair)
        done += pair[0].bytes
        if done * count >= total * (number + 1):
            yield part
            part, number = [], number + 1
    if part:
        yield part


def _copy(context: WriteContext, part: _Part, *, key: str) -> CopiedFile:
    inputs, sources = [file for file, _ in part], [source for _, source in part]
    footers = [source.footer for source in sources]
    writer = f"lakehand version {lakehand.__version__}"
    with context.store.open_writer(key) as sink:
        copied = copy_row_groups(
            sources,
            sink,
            created_by=merged_created_by(footers, writer=writer),
            key_values=merged_key_values(footers),
        )
        size = sink.tell()
    texts = [file.native["add"].get("stats") for file in inputs]
    stats = merge_statistics(texts, [footer.rows for footer in footers], context.statistics_rules())
    values = partition_values_of(context, inputs)
    staged = StagedFile(
        path=key,
        bytes=size,
        rows=copied.rows,
        native={"partitionValues": values, "stats": stats},
    )
    return CopiedFile(staged=staged, copied=copied)
