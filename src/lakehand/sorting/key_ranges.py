"""Partitions rows by ranges of their sort keys, so that each range is sorted separately.

Integers are downcast to the fewest bytes for it: most have small values, and the cost of
shuffling, spilling and sorting is moving bytes.
"""

from __future__ import annotations

import os
from array import array
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.engine.exchange import to_stream
from lakehand.parquet.dictionaries import without_dictionaries
from lakehand.sorting.sort_keys import SortKeys, search_numbers
from lakehand.storage.objects import fetch_ahead
from lakehand.storage.scratch import SpoolFile
from lakehand.temporary import scratch_errors, scratch_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.formats.worker import TaskLimits
    from lakehand.sorting.curves import Keys
    from lakehand.sorting.file_boundaries import Division

_LONG_DIGITS = 18
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals and dates as integers, and all integers as short as possible.

    The width depends on the rows: others of the same table may need more.
    """
    numbers = _numbers(column)
    if not pat.is_integer(numbers.type):
        return numbers
    # Without values, any width fits.
    low, high = (found.as_py() or 0 for found in pc.min_max(numbers).values())
    kinds = _SIGNED if pat.is_signed_integer(numbers.type) else _UNSIGNED
    kind = next(kind for kind in kinds if _holds(kind, low) and _holds(kind, high))
    return numbers if kind == numbers.type else numbers.cast(kind, safe=False)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_short(column.type):
        return pa.chunked_array([_without_point(chunk) for chunk in column.chunks], pa.int64())
    return column.cast(pa.int32()) if pat.is_date32(column.type) else column


def _holds(kind: pa.DataType, number: int) -> bool:
    bits: int = kind.bit_width - pat.is_signed_integer(kind)
    return (number if number >= 0 else ~number).bit_length() <= bits


def _without_point(chunk: pa.Array) -> pa.Array:
    numbers = _words(chunk)[:, 0].copy()
    if not chunk.null_count:
        return pa.array(numbers)
    nulls = np.from_dlpack(chunk.is_null().cast(pa.uint8())).astype(np.bool_)
    return pa.array(numbers, mask=nulls)


def _words(chunk: pa.Array) -> np.ndarray:
    if not len(chunk):
        return np.zeros((0, 2), np.int64)
    words = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
    return words[chunk.offset : chunk.offset + len(chunk)]


def widened(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return downcast integers with their original type `kind`; other columns unchanged."""
    if not pat.is_integer(column.type) or column.type == kind:
        return column
    if pat.is_date32(kind):
        return column.cast(pa.int32()).cast(kind)
    return _with_point(column, kind) if pat.is_decimal128(kind) else column.cast(kind)


def _with_point(column: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = np.from_dlpack(column.fill_null(0) if column.null_count else column)
    content = pa.allocate_buffer(16 * len(column))
    words = np.frombuffer(content, np.int64).reshape(-1, 2)
    words[:, 0] = numbers
    np.right_shift(words[:, 0], 63, out=words[:, 1])
    validity = column.is_valid() if column.null_count else None
    bits = None if validity is None else validity.buffers()[1]
    return pa.Array.from_buffers(kind, len(column), [bits, content])


def _is_short(kind: pa.DataType) -> bool:
    return bool(pat.is_decimal128(kind) and kind.precision <= _LONG_DIGITS)


#: From this size on, memory that Arrow caches is a small part of a task's memory.
_AMPLE_MEMORY_BYTES = 2**30
#: If one thread allocates rows and another frees them, Arrow's default allocator caches as much as
#: it uses, and on Linux it uses huge pages, which the system clears as a whole.
_FRUGAL_BACKEND = "jemalloc"


@contextmanager
def low_memory_arrow() -> Iterator[None]:
    """Let Arrow return unused memory to the system while the block runs."""
    if _FRUGAL_BACKEND not in pa.supported_memory_backends():
        yield
        return
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        pa.set_memory_pool(usual)


def release_memory(limits: TaskLimits) -> None:
    """Return the freed memory of this thread to the system, if a task has little memory."""
    if limits.memory_bytes < _AMPLE_MEMORY_BYTES:
        pa.default_memory_pool().release_unused()


def known_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return `schema` if rows of it can be read without a schema message; else None.

    A record batch message contains neither the schema nor the dictionaries.
    """
    return None if any(_has_dictionary(kind) for kind in schema.types) else schema


def pack_rows(
    rows: pa.RecordBatch, known: pa.Schema | None = None, *, compression: str | None = None
) -> pa.Buffer:
    """Serialize rows as Arrow IPC, with their schema unless it is the known one."""
    if compression is None and known is not None and rows.schema.equals(known):
        return rows.serialize()
    return to_stream(rows, compression=compression)


def unpack_rows(content: pa.Buffer, known: pa.Schema | None = None) -> pa.RecordBatch:
    """Deserialize rows that were packed with the same known schema."""
    message = pa.ipc.read_message(content)
    if message.type == "record batch":
        return pa.ipc.read_record_batch(message, known)
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


def _has_dictionary(kind: pa.DataType) -> bool:
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return pat.is_dictionary(kind) or any(_has_dictionary(part) for part in parts)


#: The last column of partitioned rows.
_KEY = "__lakehand_sort_key"
#: The fraction of a task's disk for ranges that wait to be sorted.
_DISK_SHARE = 2
#: The fraction of a task's memory for them, minus memory that cannot be measured.
_WAITING_SHARE, _UNCOUNTED_BYTES = 16, 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KeyRanges:
    """Start keys of ranges; the first range has no lower bound."""

    starts: Keys

    @classmethod
    def of_sample(cls, keys: Keys, *, count: int) -> Self:
        """Return up to `count` ranges with equally many rows; a frequent key gets its own range."""
        positions = np.arange(1, count) * len(keys) // max(count, 1)
        quantiles = np.sort(keys)[positions] if len(keys) else np.zeros(0, np.uint64)
        frequent = quantiles[1:][quantiles[1:] == quantiles[:-1]]
        behind = frequent[frequent < np.iinfo(np.uint64).max] + np.uint64(1)
        return cls(starts=np.unique(np.concatenate([quantiles, behind])))

    @classmethod
    def at(cls, keys: Keys) -> Self:
        """Return ranges that start at these keys."""
        return cls(starts=np.unique(keys))

    def __len__(self) -> int:
        return len(self.starts) + 1

    def divided(self, coarser: KeyRanges) -> Self:
        """Return these ranges, split at the start keys of `coarser` ranges as well."""
        return replace(self, starts=np.union1d(self.starts, coarser.starts))

    def joined(self, most: int) -> Self:
        """Merge neighbouring ranges until there are at most this many."""
        together = -(-len(self) // most)
        return replace(self, starts=self.starts[together - 1 :: together])

    def owners(self, coarser: KeyRanges) -> np.ndarray:
        """Return the index of the `coarser` range that contains each range."""
        return np.concatenate([[0], coarser.number(self.starts)])

    def number(self, keys: Keys) -> np.ndarray:
        """Return the range of each key."""
        found = search_numbers(self.starts, keys, side="right")
        # Narrow integers are sorted in a fraction of the time, but must distinguish all ranges.
        return found.astype(np.min_scalar_type(len(self.starts)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Arranged:
    """Rows grouped by the range of their key, which is the last column."""

    rows: pa.RecordBatch
    #: Start of each range in `rows`, and the end.
    bounds: list[int]

    def pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each nonempty range."""
        return self._slices(self.bounds)

    def parts(self, owners: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each nonempty part; `owners` has the part of each range."""
        firsts = np.searchsorted(owners, np.arange(owners[-1] + 1)).tolist()
        return self._slices([*(self.bounds[first] for first in firsts), self.bounds[-1]])

    def _slices(self, starts: list[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, (start, end) in enumerate(pairwise(starts)):
            if end > start:
                yield number, self.rows.slice(start, end - start)


def arrange(rows: pa.Table, *, sort_keys: SortKeys, ranges: KeyRanges) -> Arranged:
    """Group rows by range."""
    keys = sort_keys.keys(rows)
    numbers = ranges.number(keys)
    by_range = np.argsort(numbers, kind="stable")
    wide, permutation = rows.append_column(_KEY, pa.array(keys)), pa.array(by_range)
    columns = [_take(narrowed(column), permutation) for column in wide.columns]
    taken = _as_batch(columns, wide.schema)
    return Arranged(rows=taken, bounds=_bounds(numbers[by_range], len(ranges)))


def arranged_before(rows: pa.RecordBatch, *, ranges: KeyRanges) -> Arranged:
    """Find the ranges in rows that are already grouped."""
    numbers = ranges.number(_keys(rows))
    return Arranged(rows=rows, bounds=_bounds(numbers, len(ranges)))


def _keys(rows: pa.RecordBatch | pa.Table) -> Keys:
    keys: Keys = rows.column(rows.num_columns - 1).to_numpy().astype(np.uint64)
    return keys


def _bounds(numbers: np.ndarray, ranges: int) -> list[int]:
    bounds: list[int] = np.searchsorted(numbers, np.arange(ranges + 1)).tolist()
    return bounds


def _sort_range(
    waiting: tuple[int, list[pa.RecordBatch]],
    *,
    sort_keys: SortKeys,
    schema: pa.Schema,
    limits: TaskLimits,
) -> tuple[int, list[pa.RecordBatch]]:
    """Return the rows of one range sorted, without their keys."""
    number, pieces = waiting
    release_memory(limits)
    rows = _joined(pieces)
    keys = _keys(rows)
    plain = rows.remove_column(rows.num_columns - 1)
    first = int(keys[0])
    if (keys == first).all() and not sort_keys.sorts_within(first):
        return number, [_widened(batch.columns, schema) for batch in plain.to_batches()]
    permutation = sort_keys.permutation(plain, keys)
    return number, [_widened((_take(column, permutation) for column in plain.columns), schema)]


def _widened(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns with the types of `schema`, except dictionary-encoded strings."""
    kinds = zip(columns, schema.types, strict=True)
    return _as_batch([widened(column, kind) for column, kind in kinds], schema)


def _joined(pieces: list[pa.RecordBatch]) -> pa.Table:
    """Concatenate rows, with integers as wide as the widest of a column.

    Strings are decoded if only some batches have dictionaries.
    """
    if all(piece.schema.equals(pieces[0].schema) for piece in pieces):
        return pa.Table.from_batches(pieces)
    tables = [pa.Table.from_batches([piece]) for piece in pieces]
    if any(_has_other_strings(piece.schema, pieces[0].schema) for piece in pieces):
        tables = [without_dictionaries(table) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def _has_other_strings(schema: pa.Schema, other: pa.Schema) -> bool:
    return any(
        one != another and (pat.is_dictionary(one) or pat.is_dictionary(another))
        for one, another in zip(schema.types, other.types, strict=True)
    )


def _take(column: pa.ChunkedArray, permutation: pa.Array) -> pa.Array:
    return pc.take(column.combine_chunks(), permutation, boundscheck=False)


def _as_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns with the names of `schema`, whatever their types are."""
    named = zip(schema, columns, strict=True)
    fields = [field.with_type(column.type) for field, column in named]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def sorted_rows(
    waiting: Iterable[tuple[int, list[pa.RecordBatch]]],
    division: Division,
    *,
    schema: pa.Schema,
    limits: TaskLimits,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Stream the sorted rows of all ranges, with the number of their file.

    `schema` is the one before partitioning. The next ranges are sorted in parallel.
    """
    sort = partial(_sort_range, sort_keys=division.sort_keys, schema=schema, limits=limits)
    file_of = division.ranges.owners(division.files).tolist()
    for number, batches in fetch_ahead(waiting, sort, window=limits.threads):
        yield from ((file_of[number], batch) for batch in batches)


def _waiting_bytes(limits: TaskLimits) -> int:
    return limits.memory_bytes // _WAITING_SHARE - _UNCOUNTED_BYTES


class RangeSpool:
    """Holds the pieces of all ranges until they are sorted, in memory and on disk."""

    def __init__(self, ranges: int, *, limits: TaskLimits) -> None:
        self._kept: list[list[pa.RecordBatch]] = [[] for _ in range(ranges)]
        #: Offset and size of each piece on disk: there may be very many.
        self._spilled = [array("Q") for _ in range(ranges)]
        self._memory_left = _waiting_bytes(limits)
        self._known: pa.Schema | None = None
        place = Path(scratch_root(limits.scratch_directory), "lakehand-sort-")
        with scratch_errors(place, "no file to sort rows can be created"):
            descriptor, path = mkstemp(prefix=place.name, dir=place.parent)
        os.close(descriptor)
        self._file = SpoolFile(Path(path), most_bytes=limits.scratch_bytes // _DISK_SHARE)
        # Reads into Arrow's memory, which is returned to the system, unlike Python's.
        self._reader = pa.OSFile(path)
        # An unlinked file is deleted when this process ends, for any reason.
        Path(path).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.clear()
        self._reader.close()
        self._file.close()

    def add(self, number: int, piece: pa.RecordBatch) -> None:
        """Add some rows of a range."""
        self._memory_left -= piece.nbytes
        # A small piece would keep the memory of the batch it was sliced from: the last one in
        # memory.
        if self._memory_left >= 0:
            self._kept[number].append(piece)
            return
        self._memory_left = -1
        self._known = self._known or known_schema(piece.schema)
        content = pack_rows(piece, self._known)
        self._spilled[number].extend((self._file.append(content), content.size))

    def take(self) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """Yield each nonempty range with its pieces, and drop them."""
        self._file.flush()
        for number, spilled in enumerate(self._spilled):
            pieces, self._kept[number] = self._kept[number], []
            # After the first spilled piece none is kept in memory, so these came later.
            pieces += map(self._loaded, spilled[::2], spilled[1::2])
            if pieces:
                yield number, pieces

    def _loaded(self, start: int, size: int) -> pa.RecordBatch:
        self._reader.seek(start)
        return unpack_rows(self._reader.read_buffer(size), self._known)
