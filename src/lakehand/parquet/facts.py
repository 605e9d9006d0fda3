"""What a rewriting task must know of its inputs' footers, read by Arrow: a thousand in a second."""

from __future__ import annotations

import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import CorruptFileError
from lakehand.parquet.footer import MAGIC, TAIL_BYTES, TRAILER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.storage import Store

__all__ = [
    "FileFacts",
    "check_row_count",
    "check_size",
    "dominant_codec",
    "read_facts",
    "read_facts_and_size",
    "read_many_facts",
    "read_metadata_and_size",
]

_PARALLEL_READS = 16
_CHANGED = (
    "the file was changed since it was committed: restore it from a backup;"
    " `lakehand verify` lists all such files"
)
# Codecs that new files keep; an uncompressed file is no wish for more of them.
_KEPT_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd"}
_KEPT_CODECS |= {"LZ4": "lz4", "LZ4_RAW": "lz4"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """A footer in a few words."""

    rows: int
    #: Compressed bytes by codec, as Parquet names it.
    codec_bytes: Mapping[str, int]
    has_int96: bool
    key_values: Mapping[str, str | None]


def read_facts(store: Store, key: str) -> FileFacts:
    """Read the footer of one file; CorruptFileError if there is none."""
    facts, _ = read_facts_and_size(store, key)
    if isinstance(facts, CorruptFileError):
        raise facts
    return facts


def read_facts_and_size(store: Store, key: str) -> tuple[FileFacts | CorruptFileError, int]:
    """Read the footer of one file, or why it cannot be read, and the size of the file."""
    metadata, size = read_metadata_and_size(store, key)
    return (metadata if isinstance(metadata, CorruptFileError) else _facts(metadata)), size


def read_metadata_and_size(
    store: Store, key: str
) -> tuple[pq.FileMetaData | CorruptFileError, int]:
    """Read the footer of one file as Arrow has it, or why it cannot be read, and the size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail, size = store.get_tail(key, TAIL_BYTES)
    footer_bytes = (
        struct.unpack("<I", tail[-TRAILER_BYTES:-4])[0] if len(tail) > TRAILER_BYTES else 0
    )
    if len(tail) < footer_bytes + TRAILER_BYTES <= size:
        tail, _ = store.get_tail(key, footer_bytes + TRAILER_BYTES)
    # Arrow wants a file: magic and footer alone are one, as far as its metadata goes.
    file = pa.BufferReader(MAGIC + tail[-footer_bytes - TRAILER_BYTES :])
    try:
        return pq.read_metadata(file), size
    except (pa.ArrowException, OSError) as error:
        corrupt = CorruptFileError(
            f"{key} has no footer that can be read: {error}",
            path=key,
            hint="compare its size with the log, and restore it from a copy",
        )
        corrupt.__cause__ = error
        return corrupt, size


def read_many_facts(files: Iterable[tuple[Store, str]]) -> list[FileFacts]:
    """Read footers in parallel, in the order of `files`."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return list(pool.map(lambda file: read_facts(*file), files))


def check_size(path: str, *, found: int, expected: int | None) -> None:
    """Refuse a file of another size than the table says; it says nothing by 0 or None."""
    if expected and found != expected:
        raise CorruptFileError(
            f"{path} has {found} bytes, and the table says {expected}", path=path, hint=_CHANGED
        )


def check_row_count(path: str, *, found: int, expected: int | None) -> None:
    """Refuse a file of another number of rows than the table says."""
    if expected is not None and found != expected:
        raise CorruptFileError(
            f"{path} holds {found} rows, and the table says {expected}", path=path, hint=_CHANGED
        )


def dominant_codec(facts: Iterable[FileFacts]) -> str | None:
    """Return the codec of most bytes; None if nothing is compressed."""
    total: Counter[str] = Counter()
    for file in facts:
        total.update(file.codec_bytes)
    kept = [(size, codec) for codec, size in total.items() if codec in _KEPT_CODECS]
    return _KEPT_CODECS[max(kept)[1]] if kept else None


def _facts(metadata: pq.FileMetaData) -> FileFacts:
    codec_bytes: Counter[str] = Counter()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        # One column stands for its row group: writers use one codec for a file.
        if group.num_columns:
            codec_bytes[group.column(0).compression] += group.total_byte_size
    columns = (metadata.schema.column(i) for i in range(metadata.num_columns))
    return FileFacts(
        rows=metadata.num_rows,
        codec_bytes=codec_bytes,
        has_int96=any(column.physical_type == "INT96" for column in columns),
        key_values=_key_values(metadata),
    )


def _key_values(metadata: pq.FileMetaData) -> dict[str, str | None]:
    pairs: Sequence[tuple[bytes, bytes]] = list((metadata.metadata or {}).items())
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs
    }
