"""Footers of Parquet files: read from storage, and parsed without loss."""

from __future__ import annotations

import gc
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakehand.errors import CorruptFileError, RefusedError
from lakehand.parquet.footer_check import FooterError, check_footer
from lakehand.parquet.thrift import (
    LIST,
    STRUCT,
    Struct,
    ThriftError,
    decode,
    find_field,
    first_element,
    read_varint,
)
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

    from lakehand.storage import Store


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the garbage collector while footers are parsed.

    They have many values and no cycles. Parsing would take twice as long, and copying row groups a
    tenth longer.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TRAILER_BYTES = 8
#: One request of this size returns most footers completely.
TAIL_BYTES = 64 * 1024
_RESTORE = "compare its size with the log, and restore it from a backup"


class Tails(Protocol):
    """A source of file tails: a store, or one local file."""

    def get_tail(self, key: str, length: int, /) -> tuple[bytes, int]: ...


class FileField:
    VERSION, SCHEMA, ROWS, ROW_GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = range(1, 8)
    ENCRYPTION, SIGNING_KEY = 8, 9


class RowGroupField:
    COLUMNS, TOTAL_BYTES, ROWS, SORTING, FILE_OFFSET, COMPRESSED_BYTES, ORDINAL = range(1, 8)


class ChunkField:
    FILE_PATH, FILE_OFFSET, METADATA = 1, 2, 3
    OFFSET_INDEX, OFFSET_INDEX_BYTES, COLUMN_INDEX, COLUMN_INDEX_BYTES = 4, 5, 6, 7
    CRYPTO, ENCRYPTED_METADATA = 8, 9


class ColumnField:
    TYPE, ENCODINGS, PATH, CODEC, VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES = range(1, 8)
    KEY_VALUES, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, STATISTICS = 8, 9, 10, 11, 12
    ENCODING_STATS, BLOOM, BLOOM_BYTES, SIZE_STATISTICS, GEOSPATIAL = 13, 14, 15, 16, 17


class StatisticsField:
    OLD_MAX, OLD_MIN, NULLS, DISTINCT, MAX, MIN, MAX_EXACT, MIN_EXACT = range(1, 9)


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file: `meta` is its FileMetaData as read."""

    path: str
    file_bytes: int
    meta: Struct

    @property
    def rows(self) -> int:
        return int(field(self.meta, FileField.ROWS, 0))

    @property
    def row_groups(self) -> list[Struct]:
        return elements(self.meta, FileField.ROW_GROUPS)

    @property
    def schema(self) -> list[Struct]:
        """Schema elements, depth first, including the root."""
        return elements(self.meta, FileField.SCHEMA)

    @property
    def created_by(self) -> str | None:
        value = field(self.meta, FileField.CREATED_BY)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def key_values(self) -> dict[str, str | None]:
        pairs = elements(self.meta, FileField.KEY_VALUES)
        return {_text(field(pair, 1)) or "": _text(field(pair, 2)) for pair in pairs}

    @property
    def column_orders(self) -> list[Struct] | None:
        if FileField.COLUMN_ORDERS not in self.meta:
            return None
        return elements(self.meta, FileField.COLUMN_ORDERS)


def field(struct_: Struct, field_id: int, default: Any = None) -> Any:
    """Return the value of a field, without its wire type."""
    return struct_[field_id][1] if field_id in struct_ else default


def elements(struct_: Struct, field_id: int) -> list[Any]:
    """Return the elements of a list field; empty if absent."""
    return struct_[field_id][1][1] if field_id in struct_ else []


def struct_list(structs: list[Struct]) -> tuple[int, tuple[int, list[Struct]]]:
    """Return a list field of structs."""
    return (LIST, (STRUCT, structs))


def chunks(row_group: Struct) -> list[Struct]:
    return elements(row_group, RowGroupField.COLUMNS)


def chunk_range(chunk: Struct) -> tuple[int, int]:
    """Return the byte range of a chunk's pages: start and length, including the dictionary page.

    Raises RefusedError if the column is encrypted.
    """
    column = field(chunk, ChunkField.METADATA)
    if column is None:
        raise RefusedError("a column of the file is encrypted", feature="encryption")
    start = field(column, ColumnField.DATA_PAGE)
    dictionary = dictionary_offset(column)
    length = field(column, ColumnField.COMPRESSED_BYTES)
    return (start if dictionary is None else dictionary), length


def row_group_bytes(row_group: Struct) -> int:
    """Return the size of a row group's pages."""
    return sum(chunk_range(chunk)[1] for chunk in chunks(row_group))


def dictionary_offset(column: Struct) -> int | None:
    """Return the offset of the dictionary page; some writers use 0 for none."""
    offset = field(column, ColumnField.DICTIONARY_PAGE, 0)
    return offset if 0 < offset < field(column, ColumnField.DATA_PAGE) else None


def read_footer(store: Store, key: str, *, table: str | None = None) -> Footer:
    """Read the footer of a file; errors for an encrypted and for a corrupt one."""
    data, size = fetch_footer(store, key, table=table)
    return parse_footer(data, path=key, file_bytes=size)


def fetch_footer(store: Tails, key: str, *, table: str | None = None) -> tuple[bytes, int]:
    """Return the bytes of a footer, and the size of its file."""
    tail, size = store.get_tail(key, TAIL_BYTES)
    if len(tail) < TRAILER_BYTES + len(MAGIC):
        raise CorruptFileError(f"{key} has {size} bytes: not a Parquet file", path=key, table=table)
    length, magic = struct.unpack("<I4s", tail[-TRAILER_BYTES:])
    if magic == ENCRYPTED_MAGIC:
        raise RefusedError(f"{key} has an encrypted footer", feature="encryption", table=table)
    if magic != MAGIC or length + TRAILER_BYTES + len(MAGIC) > size:
        raise CorruptFileError(
            f"{key} does not end like a Parquet file (it may be truncated)",
            path=key,
            table=table,
            hint=_RESTORE,
        )
    if length + TRAILER_BYTES > len(tail):
        tail, size = store.get_tail(key, length + TRAILER_BYTES)
    return split_footer(tail), size


def split_footer(tail: bytes) -> bytes:
    """Return the footer from the last bytes of a file, which must contain all of it."""
    (length,) = struct.unpack("<I", tail[-TRAILER_BYTES : -len(MAGIC)])
    return tail[-TRAILER_BYTES - length : -TRAILER_BYTES]


def parse_footer(data: bytes, *, path: str, file_bytes: int) -> Footer:
    """Parse the bytes of a FileMetaData; CorruptFileError if it is invalid."""
    try:
        with collector_paused():
            meta, _ = decode(data)
            check_footer(meta, file_bytes=file_bytes or None)
    except (ThriftError, FooterError) as error:
        raise CorruptFileError(
            f"the footer of {path} is corrupt: {error}", path=path, hint=_RESTORE
        ) from error
    return Footer(path=path, file_bytes=file_bytes, meta=meta)


class FirstCodecs:
    """Finds the codec of the first column of files, without parsing their footers.

    The schema comes first, with the same bytes in files of one schema and writer, which are skipped
    if they are known.
    """

    def __init__(self) -> None:
        self._known = b""

    def of(self, footer: bytes) -> int | None:
        """Return the number of the codec; None without row groups. ThriftError if it is invalid."""
        at = len(self._known)
        if not at or not footer.startswith(self._known):
            _, at = find_field(footer, 0, FileField.ROWS)
            # The byte before a value is the header of its field, which follows the schema.
            at -= 1
            self._known = footer[:at]
        _, at = find_field(footer, at, FileField.ROW_GROUPS, after=FileField.SCHEMA)
        group = first_element(footer, at)
        if group is None:
            return None
        chunk = first_element(footer, find_field(footer, group, RowGroupField.COLUMNS)[1])
        if chunk is None:
            return None
        _, column = find_field(footer, chunk, ChunkField.METADATA)
        _, at = find_field(footer, column, ColumnField.CODEC)
        number, _ = read_varint(footer, at)
        return number >> 1


def read_local_footer(path: Path) -> Footer:
    """Read the footer of a local file."""
    with translated("get", str(path)), path.open("rb", buffering=0) as file:
        data, size = fetch_footer(LocalTails(file), str(path))
    return parse_footer(data, path=str(path), file_bytes=size)


class LocalTails:
    """The tail of one local file."""

    def __init__(self, file: FileIO) -> None:
        self._descriptor = file.fileno()

    def get_tail(self, _key: str, length: int, /) -> tuple[bytes, int]:
        size = os.fstat(self._descriptor).st_size
        start = max(size - length, 0)
        return os.pread(self._descriptor, size - start, start), size


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
