"""Rows divided by ranges of their sort keys, so that each range can be sorted on its own."""

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
from lakehand.sorting.downcast import narrowed, widened
from lakehand.sorting.sort_keys import search_numbers
from lakehand.storage.objects import fetch_ahead
from lakehand.storage.scratch import SpoolFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.formats.worker import TaskLimits
    from lakehand.sorting.curves import Keys
    from lakehand.sorting.file_boundaries import Division
    from lakehand.sorting.sort_keys import SortKeys

__all__ = [
    "Arranged",
    "KeyRanges",
    "RangeSpool",
    "arrange",
    "arranged_before",
    "frugal_arrow",
    "give_back",
    "known_schema",
    "pack_rows",
    "sorted_rows",
    "unpack_rows",
]


#: From here on what Arrow keeps for later is a small part of what a task has.
_ROOMY_BYTES = 2**30
#: Where rows are taken by one thread and freed by another, its default keeps as much as it uses,
#: and on Linux it takes huge pages, each of which the system clears as a whole.
_FRUGAL_BACKEND = "jemalloc"


@contextmanager
def frugal_arrow() -> Iterator[None]:
    """Let Arrow give memory back that it does not use, for as long as the block runs."""
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


def give_back(limits: TaskLimits) -> None:
    """Return what this thread has freed to the system, where a task has little memory."""
    if limits.memory_bytes < _ROOMY_BYTES:
        pa.default_memory_pool().release_unused()


def known_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return `schema` if rows of it can be read by whoever knows it; None if they need more.

    A message with rows has neither their schema nor the values that numbers stand for.
    """
    return None if any(_has_dictionary(kind) for kind in schema.types) else schema


def pack_rows(
    rows: pa.RecordBatch, known: pa.Schema | None = None, *, compression: str | None = None
) -> pa.Buffer:
    """Return rows as Arrow writes them, with their schema unless it is the one that is known."""
    if compression is None and known is not None and rows.schema.equals(known):
        return rows.serialize()
    return to_stream(rows, compression=compression)


def unpack_rows(content: pa.Buffer, known: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the rows that were packed under the same known schema."""
    message = pa.ipc.read_message(content)
    if message.type == "record batch":
        return pa.ipc.read_record_batch(message, known)
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


def _has_dictionary(kind: pa.DataType) -> bool:
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return pat.is_dictionary(kind) or any(_has_dictionary(part) for part in parts)


#: The last column of divided rows.
_KEY = "__lakehand_sort_key"
#: The part of a task's disk for ranges that wait to be sorted.
_DISK_SHARE = 2
#: The part of a task's memory for them, less what cannot be counted, however little there is.
_WAITING_SHARE, _UNCOUNTED_BYTES = 16, 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KeyRanges:
    """Where ranges of keys begin; the first one at nothing."""

    starts: Keys

    @classmethod
    def of_sample(cls, keys: Keys, *, count: int) -> Self:
        """Return up to `count` ranges of equally many rows; a frequent key gets one of its own."""
        places = np.arange(1, count) * len(keys) // max(count, 1)
        quantiles = np.sort(keys)[places] if len(keys) else np.zeros(0, np.uint64)
        frequent = quantiles[1:][quantiles[1:] == quantiles[:-1]]
        behind = frequent[frequent < np.iinfo(np.uint64).max] + np.uint64(1)
        return cls(starts=np.unique(np.concatenate([quantiles, behind])))

    @classmethod
    def at(cls, keys: Keys) -> Self:
        """Return ranges that begin at these keys."""
        return cls(starts=np.unique(keys))

    def __len__(self) -> int:
        return len(self.starts) + 1

    def divided(self, coarser: KeyRanges) -> Self:
        """Return these ranges, cut where `coarser` ones begin as well."""
        return replace(self, starts=np.union1d(self.starts, coarser.starts))

    def joined(self, most: int) -> Self:
        """Return ranges of as many neighbours each as it takes that there are no more than that."""
        together = -(-len(self) // most)
        return replace(self, starts=self.starts[together - 1 :: together])

    def owners(self, coarser: KeyRanges) -> np.ndarray:
        """Return for each range which of `coarser` ones it is part of."""
        return np.concatenate([[0], coarser.number(self.starts)])

    def number(self, keys: Keys) -> np.ndarray:
        """Return the range of each key."""
        found = search_numbers(self.starts, keys, side="right")
        # Short numbers are sorted in a fraction of the time, but must tell all ranges apart.
        return found.astype(np.min_scalar_type(len(self.starts)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Arranged:
    """Rows by the ranges of their keys, which are the last column."""

    rows: pa.RecordBatch
    #: Where each range begins in `rows`, and one entry more for the end.
    bounds: list[int]

    def pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range that has some."""
        return self._slices(self.bounds)

    def parts(self, owners: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each part that has some; `owners` says of which part a range is."""
        firsts = np.searchsorted(owners, np.arange(owners[-1] + 1)).tolist()
        return self._slices([*(self.bounds[first] for first in firsts), self.bounds[-1]])

    def _slices(self, starts: list[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, (start, end) in enumerate(pairwise(starts)):
            if end > start:
                yield number, self.rows.slice(start, end - start)


def arrange(rows: pa.Table, *, sort_keys: SortKeys, ranges: KeyRanges) -> Arranged:
    """Put rows of the same range together."""
    keys = sort_keys.keys(rows)
    numbers = ranges.number(keys)
    by_range = np.argsort(numbers, kind="stable")
    wide, places = rows.append_column(_KEY, pa.array(keys)), pa.array(by_range)
    columns = [_take(narrowed(column), places) for column in wide.columns]
    taken = _as_batch(columns, wide.schema)
    return Arranged(rows=taken, bounds=_bounds(numbers[by_range], len(ranges)))


def arranged_before(rows: pa.RecordBatch, *, ranges: KeyRanges) -> Arranged:
    """Find the ranges again in rows that were put together by them."""
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
    """Return the rows of one range in their order, without their keys."""
    number, pieces = waiting
    give_back(limits)
    rows = _joined(pieces)
    keys = _keys(rows)
    plain = rows.remove_column(rows.num_columns - 1)
    first = int(keys[0])
    if (keys == first).all() and not sort_keys.sorts_within(first):
        return number, [_widened(batch.columns, schema) for batch in plain.to_batches()]
    places = sort_keys.permutation(plain, keys)
    return number, [_widened((_take(column, places) for column in plain.columns), schema)]


def _widened(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns as `schema` has them, but for texts that have numbers."""
    kinds = zip(columns, schema.types, strict=True)
    return _as_batch([widened(column, kind) for column, kind in kinds], schema)


def _joined(pieces: list[pa.RecordBatch]) -> pa.Table:
    """Return all rows, with numbers as wide as the widest of a column.

    Texts are plain wherever some are and others have numbers.
    """
    if all(piece.schema.equals(pieces[0].schema) for piece in pieces):
        return pa.Table.from_batches(pieces)
    tables = [pa.Table.from_batches([piece]) for piece in pieces]
    if any(_has_other_texts(piece.schema, pieces[0].schema) for piece in pieces):
        tables = [without_dictionaries(table) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def _has_other_texts(schema: pa.Schema, other: pa.Schema) -> bool:
    return any(
        one != another and (pat.is_dictionary(one) or pat.is_dictionary(another))
        for one, another in zip(schema.types, other.types, strict=True)
    )


def _take(column: pa.ChunkedArray, places: pa.Array) -> pa.Array:
    return pc.take(column.combine_chunks(), places, boundscheck=False)


def _as_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns under the names of `schema`, whatever their types are."""
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
    """Stream the rows of all ranges, which come with their pieces, with the number of their file.

    `schema` is theirs before they were divided. The next ranges are sorted meanwhile.
    """
    sort = partial(_sort_range, sort_keys=division.sort_keys, schema=schema, limits=limits)
    file_of = division.ranges.owners(division.files).tolist()
    for number, batches in fetch_ahead(waiting, sort, window=limits.threads):
        yield from ((file_of[number], batch) for batch in batches)


def _waiting_bytes(limits: TaskLimits) -> int:
    return limits.memory_bytes // _WAITING_SHARE - _UNCOUNTED_BYTES


class RangeSpool:
    """Keeps the pieces of all ranges until they are sorted, some in memory and some on disk."""

    def __init__(self, ranges: int, *, limits: TaskLimits) -> None:
        self._kept: list[list[pa.RecordBatch]] = [[] for _ in range(ranges)]
        #: Where pieces begin on disk, each with its size behind it: there may be very many.
        self._spilled = [array("Q") for _ in range(ranges)]
        self._memory_left = _waiting_bytes(limits)
        self._known: pa.Schema | None = None
        descriptor, path = mkstemp(prefix="lakehand-sort-", dir=limits.scratch_directory)
        os.close(descriptor)
        self._file = SpoolFile(Path(path), most_bytes=limits.scratch_bytes // _DISK_SHARE)
        # Reads into Arrow's memory, which is given back, and not into Python's, which is kept.
        self._reader = pa.OSFile(path)
        # Without a name it goes with this process, whichever way that ends.
        Path(path).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.clear()
        self._reader.close()
        self._file.close()

    def add(self, number: int, piece: pa.RecordBatch) -> None:
        """Keep some rows of a range."""
        self._memory_left -= piece.nbytes
        # A small piece would keep the memory of all that it was divided from: no more after this.
        if self._memory_left >= 0:
            self._kept[number].append(piece)
            return
        self._memory_left = -1
        self._known = self._known or known_schema(piece.schema)
        content = pack_rows(piece, self._known)
        self._spilled[number].extend((self._file.append(content), content.size))

    def take(self) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """Yield each range that has some with its pieces, and forget them."""
        self._file.flush()
        for number, spilled in enumerate(self._spilled):
            pieces, self._kept[number] = self._kept[number], []
            # Nothing is kept after the first piece that was not: these came later.
            pieces += map(self._loaded, spilled[::2], spilled[1::2])
            if pieces:
                yield number, pieces

    def _loaded(self, start: int, size: int) -> pa.RecordBatch:
        self._reader.seek(start)
        return unpack_rows(self._reader.read_buffer(size), self._known)
