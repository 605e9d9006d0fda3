"""Footers of Parquet files: read from storage, parsed without loss, and checked.

A flipped bit in a footer changes a number, a type or a length. For some of these Arrow throws C++
exceptions that are not caught, which ends the process, and code that trusts the footer fails in
other ways. So every value that is used is checked once, here.
"""

from __future__ import annotations

import gc
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lakehand.errors import CorruptFileError, RefusedError
from lakehand.parquet.thrift import (
    BINARY,
    BYTE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
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


# The check of a decoded footer


class FooterError(ValueError):
    """A footer has an invalid value."""


#: The type of a field: a wire type, a struct by its fields, or a list of one of these.
_Spec = dict[int, Any]
_BOOLEAN = TRUE
_TIME = {1: _BOOLEAN, 2: {1: {}, 2: {}, 3: {}}}
_LOGICAL_TYPE: _Spec = {
    **{number: {} for number in range(1, 19)},
    5: {1: I32, 2: I32},
    7: _TIME,
    8: _TIME,
    10: {1: BYTE, 2: _BOOLEAN},
    16: {1: BYTE},
    17: {1: BINARY},
    18: {1: BINARY, 2: I32},
}
_SCHEMA_ELEMENT: _Spec = {
    1: I32, 2: I32, 3: I32, 4: BINARY, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: _LOGICAL_TYPE,
}  # fmt: skip
_KEY_VALUE: _Spec = {1: BINARY, 2: BINARY}
#: Column chunks are many: `_check_chunk` checks only the values that are used.
_ROW_GROUP: _Spec = {
    1: [{}], 2: I64, 3: I64, 4: [{1: I32, 2: _BOOLEAN, 3: _BOOLEAN}], 5: I64, 6: I64, 7: I16,
}  # fmt: skip
_FILE: _Spec = {
    1: I32, 2: [_SCHEMA_ELEMENT], 3: I64, 4: [_ROW_GROUP], 5: [_KEY_VALUE], 6: BINARY, 7: [{}],
    8: {}, 9: BINARY,
}  # fmt: skip
_BOOLEANS = (TRUE, FALSE)

_TYPES, _REPETITIONS, _CODECS, _CONVERTED_TYPES = range(8), range(3), range(8), range(22)
_BYTE_ARRAY, _FIXED_BYTES = 6, 7
#: Bytes of a value, by the number of its type.
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_REQUIRED, _REPEATED = 0, 2
_MAGIC_BYTES = 4
_MAX_DEPTH = 200

# Field numbers, by struct.
_SCHEMA, _FILE_ROWS, _ROW_GROUPS = 2, 3, 4
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED = range(1, 7)
_COLUMNS, _ROWS, _SORTING = 1, 3, 4
_FILE_PATH, _METADATA, _CRYPTO, _ENCRYPTED = 1, 3, 8, 9
#: Fields with the offsets and lengths of page indexes.
_INDEXES = ((4, 5), (6, 7))
_ENCODINGS, _PATH, _CODEC, _VALUES, _PLAIN_BYTES, _BYTES, _DATA_PAGE, _DICTIONARY = (
    *range(2, 8), 9, 11,
)  # fmt: skip
_STATISTICS, _SIZES = 12, 16
_FEW_FIELDS = 2
_BOUNDS, _NULLS = (1, 2, 5, 6), 3
_STRING_BYTES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3


class _Leaf(NamedTuple):
    name: str
    type: int
    #: Bytes of a value; None if variable.
    width: int | None
    definition: int
    repetition: int


def check_footer(meta: Struct, *, file_bytes: int | None) -> None:
    """Raise FooterError if `meta`, the FileMetaData of a file, is invalid.

    Without `file_bytes`, offsets are not checked.
    """
    _check_types(meta, _FILE)
    columns = _leaves(_list(meta, _SCHEMA))
    groups = _list(meta, _ROW_GROUPS)
    end = 1 << 63 if file_bytes is None else file_bytes
    for group in groups:
        _check_row_group(group, columns, end)
    if sum(group[_ROWS][1] for group in groups) != _natural(meta, _FILE_ROWS, "file", "rows"):
        raise FooterError("the row counts of its row groups do not add up to its row count")


def _check_types(struct: Struct, spec: _Spec) -> None:
    """Compare wire types; an unknown field may have any."""
    for number, (kind, value) in struct.items():
        want = spec.get(number)
        if want == kind or want is None or (want == _BOOLEAN and kind in _BOOLEANS):
            continue
        if kind == STRUCT and isinstance(want, dict):
            _check_types(value, want)
        elif kind == LIST and isinstance(want, list):
            _check_elements(number, value, want[0])
        else:
            raise FooterError(f"field {number} has the wire type {kind}")


def _check_elements(number: int, found: tuple[int, list[Any]], want: Any) -> None:
    kind, elements = found
    if not elements or kind == want:
        return
    if kind != STRUCT or not isinstance(want, dict):
        raise FooterError(f"field {number} is a list of the wire type {kind}")
    if want:
        for element in elements:
            _check_types(element, want)


def _leaves(schema: list[Struct]) -> list[_Leaf]:
    nodes = iter(schema)
    root = next(nodes, None)
    if root is None:
        raise FooterError("it has no schema")
    found = list(_children(nodes, root, (0, 0), depth=0))
    if next(nodes, None) is not None:
        raise FooterError("its schema has more elements than their parents declare")
    return found


def _children(
    nodes: Iterator[Struct], parent: Struct, levels: tuple[int, int], *, depth: int
) -> Iterator[_Leaf]:
    if depth > _MAX_DEPTH:
        raise FooterError("its columns are nested too deeply")
    for _ in range(_value(parent, _CHILDREN, 0)):
        node = next(nodes, None)
        if node is None:
            raise FooterError("its schema has fewer elements than their parents declare")
        name = _name(node)
        kind = _member(node, _REPETITION, _REPETITIONS, name, "repetition", default=_REQUIRED)
        _member(node, _CONVERTED, _CONVERTED_TYPES, name, "converted type", default=0)
        here = (levels[0] + (kind != _REQUIRED), levels[1] + (kind == _REPEATED))
        if _value(node, _CHILDREN, 0):
            yield from _children(nodes, node, here, depth=depth + 1)
        elif _TYPE in node:
            yield _Leaf(name, *_type(node, name), *here)


def _name(node: Struct) -> str:
    try:
        return str(node[_NAME][1], "utf-8")
    except (KeyError, UnicodeDecodeError) as error:
        raise FooterError("a column name is not valid UTF-8") from error


def _type(node: Struct, name: str) -> tuple[int, int | None]:
    """Return the type of a leaf, and the bytes of its values."""
    kind = _member(node, _TYPE, _TYPES, name, "type")
    if kind == _FIXED_BYTES:
        return kind, _natural(node, _LENGTH, name, "bytes")
    return kind, _WIDTHS.get(kind)


def _check_row_group(group: Struct, columns: list[_Leaf], file_bytes: int) -> None:
    chunks = _list(group, _COLUMNS)
    rows = _natural(group, _ROWS, "a row group", "rows")
    if len(chunks) != len(columns):
        raise FooterError(f"a row group has {len(chunks)} of {len(columns)} columns")
    for chunk, leaf in zip(chunks, columns, strict=True):
        if _METADATA not in chunk and (_CRYPTO in chunk or _ENCRYPTED in chunk):
            continue
        try:
            _check_chunk(chunk, leaf, rows, file_bytes)
        except FooterError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise FooterError(f"the metadata of {leaf.name} cannot be decoded") from error
    for term in _list(group, _SORTING):
        _member(term, 1, range(len(columns)), "a sort key", "column")


def _check_chunk(chunk: Struct, leaf: _Leaf, rows: int, file_bytes: int) -> None:
    """Check one chunk; a missing value, or one of another type, may raise any exception.

    A footer has up to a hundred thousand of them, so this makes few calls.
    """
    name, kind, _, definition, repetition = leaf
    column = chunk[_METADATA][1]
    if column[_TYPE][1] != kind or column[_CODEC][1] not in _CODECS:
        raise FooterError(f"{name} has a different type than in the schema, or an unknown codec")
    values = column[_VALUES][1]
    if values < rows or (values > rows and not repetition):
        raise FooterError(f"{name} has {values:,} values in {rows:,} rows")
    if column[_PLAIN_BYTES][1] < 0 or column[_ENCODINGS][0] != LIST or column[_PATH][0] != LIST:
        raise FooterError(f"the metadata of {name} is invalid")
    # Without values there need not be a page, and writers use any offset.
    if values and _FILE_PATH not in chunk:
        _check_place(column, name, file_bytes)
    if _STATISTICS in column:
        _check_statistics(column[_STATISTICS][1], leaf)
    if _SIZES in column:
        sizes = column[_SIZES][1]
        _check_histogram(sizes, _REPETITION_LEVELS, name, repetition)
        _check_histogram(sizes, _DEFINITION_LEVELS, name, definition)
        _check_string_bytes(sizes, name, kind)
    if len(chunk) > _FEW_FIELDS:
        _check_indexes(chunk, name, file_bytes)


def _check_place(column: Struct, name: str, file_bytes: int) -> None:
    first = data_page = column[_DATA_PAGE][1]
    length = column[_BYTES][1]
    if _DICTIONARY in column and 0 < column[_DICTIONARY][1] < data_page:
        first = column[_DICTIONARY][1]
    if not _MAGIC_BYTES <= first <= data_page <= first + length <= file_bytes:
        raise FooterError(f"{name} is outside the file")


def _check_statistics(statistics: Struct, leaf: _Leaf) -> None:
    name, kind, width, _, _ = leaf
    for number in _BOUNDS:
        if number in statistics:
            length = len(statistics[number][1])
            # Writers may truncate fixed-length values.
            if width is not None and (length > width or (length < width and kind != _FIXED_BYTES)):
                raise FooterError(f"a bound of {name} has {length} bytes")
    if _NULLS in statistics and statistics[_NULLS][1] < 0:
        raise FooterError(f"{name} has a negative null count")


def _check_histogram(sizes: Struct, number: int, name: str, deepest: int) -> None:
    if number in sizes:
        levels = len(sizes[number][1][1])
        if levels and levels != deepest + 1:
            raise FooterError(f"{name} has a histogram of {levels} levels")


def _check_string_bytes(sizes: Struct, name: str, kind: int) -> None:
    if _STRING_BYTES in sizes and kind != _BYTE_ARRAY:
        raise FooterError(f"{name} has a size of strings")


def _check_indexes(chunk: Struct, name: str, file_bytes: int) -> None:
    for start, length in _INDEXES:
        if start in chunk and not 0 <= chunk[start][1] <= file_bytes - chunk[length][1]:
            raise FooterError(f"an index of {name} is outside the file")


def _list(struct: Struct, number: int) -> list[Any]:
    found: list[Any] = struct[number][1][1] if number in struct else []
    return found


def _value(struct: Struct, number: int, default: int) -> int:
    value: int = struct[number][1] if number in struct else default
    return value


# Names have two parts, because joining them takes longer than the check.


def _natural(struct: Struct, number: int, name: str, what: str) -> int:
    value: int = struct[number][1] if number in struct else -1
    if value < 0:
        raise FooterError(f"{what} of {name}: missing, or negative")
    return value


def _member(
    struct: Struct, number: int, allowed: range, name: str, what: str, *, default: int = -1
) -> int:
    value: int = struct[number][1] if number in struct else default
    if value not in allowed:
        raise FooterError(f"{what} of {name}: missing, or {value}, which is not a Parquet value")
    return value
