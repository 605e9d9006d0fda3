"""The facts of footers that rewriting tasks need, read by Arrow: a thousand per second."""

from __future__ import annotations

import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import CorruptFileError
from lakehand.parquet.footer import (
    MAGIC,
    TAIL_BYTES,
    TRAILER_BYTES,
    FirstCodecs,
    parse_footer,
    split_footer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.storage import Store

_PARALLEL_READS = 16
_CHANGED = (
    "the file was changed since it was committed: restore it from a backup;"
    " `lakehand verify` lists all such files"
)
#: In the order of their Parquet numbers.
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
# Codecs that new files keep; an uncompressed input does not ask for uncompressed output.
_KEPT_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd"}
_KEPT_CODECS |= {"LZ4": "lz4", "LZ4_RAW": "lz4"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """A summary of a footer."""

    rows: int
    #: Compressed bytes by codec, with Parquet's names.
    codec_bytes: Mapping[str, int]
    has_int96: bool
    key_values: Mapping[str, str | None]


def read_facts(store: Store, key: str, *, codecs: FirstCodecs | None = None) -> FileFacts:
    """Read the footer of one file; CorruptFileError if there is none."""
    tail, _, footer_bytes = _footer_tail(store, key)
    return _facts_of(tail, footer_bytes, key, codecs or FirstCodecs())


def read_facts_and_size(store: Store, key: str) -> tuple[FileFacts | CorruptFileError, int]:
    """Read and fully check the footer of one file, or return its error, and the size of the file.

    `read_facts` is faster and checks less.
    """
    tail, size, footer_bytes = _footer_tail(store, key)
    try:
        facts = _facts_of(tail, footer_bytes, key, FirstCodecs())
        parse_footer(split_footer(tail), path=key, file_bytes=size)
    except CorruptFileError as error:
        return error, size
    return facts, size


def read_metadata_and_size(
    store: Store, key: str
) -> tuple[pq.FileMetaData | CorruptFileError, int]:
    """Read the footer of one file as Arrow metadata, or return its error, and the size.

    The whole footer was checked, so that Arrow's accessors for single columns are safe.
    """
    tail, size, footer_bytes = _footer_tail(store, key)
    try:
        metadata = _metadata(tail[-footer_bytes - TRAILER_BYTES :], key)
        parse_footer(split_footer(tail), path=key, file_bytes=size)
    except CorruptFileError as error:
        return error, size
    return metadata, size


def _footer_tail(store: Store, key: str) -> tuple[bytes, int, int]:
    """Return the end of a file with its footer, the size of the file, and that of the footer."""
    tail, size = store.get_tail(key, TAIL_BYTES)
    footer_bytes = (
        struct.unpack("<I", tail[-TRAILER_BYTES:-4])[0] if len(tail) > TRAILER_BYTES else 0
    )
    if len(tail) < footer_bytes + TRAILER_BYTES <= size:
        tail, _ = store.get_tail(key, footer_bytes + TRAILER_BYTES)
    return tail, size, footer_bytes


def _facts_of(tail: bytes, footer_bytes: int, key: str, codecs: FirstCodecs) -> FileFacts:
    ending = tail[-footer_bytes - TRAILER_BYTES :]
    metadata = _metadata(ending, key)
    try:
        return _facts(metadata, codecs.of(ending[:-TRAILER_BYTES]))
    except ValueError as error:
        raise _unreadable(key, error) from error


def _metadata(ending: bytes, key: str) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Arrow needs a file: magic bytes and footer alone are sufficient for its metadata.
        return pq.read_metadata(pa.BufferReader(MAGIC + ending))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(key, error) from error


def _unreadable(key: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{key} has no readable footer: {error}",
        path=key,
        hint="compare its size with the log, and restore it from a backup",
    )


def read_many_facts(files: Iterable[tuple[Store, str]]) -> list[FileFacts]:
    """Read footers in parallel, in the order of `files`."""
    codecs = FirstCodecs()
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(pool.map(lambda file: read_facts(*file, codecs=codecs), files))


def check_size(path: str, *, found: int, expected: int | None) -> None:
    """Reject a file whose size differs from the table's; 0 and None are not checked."""
    if expected and found != expected:
        raise CorruptFileError(
            f"{path} has {found} bytes, but the table records {expected}", path=path, hint=_CHANGED
        )


def check_row_count(path: str, *, found: int, expected: int | None) -> None:
    """Reject a file whose row count differs from the table's."""
    if expected is not None and found != expected:
        raise CorruptFileError(
            f"{path} has {found} rows, but the table records {expected}", path=path, hint=_CHANGED
        )


def dominant_codec(facts: Iterable[FileFacts]) -> str | None:
    """Return the codec of most bytes; None if nothing is compressed."""
    total: Counter[str] = Counter()
    for file in facts:
        total.update(file.codec_bytes)
    kept = [(size, codec) for codec, size in total.items() if codec in _KEPT_CODECS]
    return _KEPT_CODECS[max(kept)[1]] if kept else None


def _facts(metadata: pq.FileMetaData, codec: int | None) -> FileFacts:
    """Return facts; ValueError if they contradict each other.

    No accessor of single columns is used here: invalid values would crash the process. One column
    represents all, because writers use one codec for a file.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        raise ValueError("the row counts of its row groups do not add up to its row count")
    if codec is not None and codec not in range(len(_CODECS)):
        raise ValueError(f"it has the unknown codec {codec}")
    plain_bytes = sum(group.total_byte_size for group in groups)
    columns = (metadata.schema.column(i) for i in range(metadata.num_columns))
    return FileFacts(
        rows=metadata.num_rows,
        codec_bytes={} if codec is None else {_CODECS[codec]: plain_bytes},
        has_int96=any(column.physical_type == "INT96" for column in columns),
        key_values=_key_values(metadata),
    )


def _key_values(metadata: pq.FileMetaData) -> dict[str, str | None]:
    pairs: Sequence[tuple[bytes, bytes]] = list((metadata.metadata or {}).items())
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs
    }
