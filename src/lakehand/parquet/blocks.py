"""Reads byte ranges of files in blocks of bounded memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakehand.errors import CorruptFileError
from lakehand.storage import Store
from lakehand.storage.local_files import read_file_blocks
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

#: Fits into the processor's cache from reading a block to writing it.
_LOCAL_BLOCK_BYTES = 512 * 1024
#: Over a network a request costs more than its bytes; this many are in flight.
_REMOTE_BLOCK_BYTES = 4 * 2**20
_REMOTE_WINDOW = 4
#: Ranges with a smaller gap between them are read together.
_GAP_BYTES = 64 * 1024


class Ranges(Protocol):
    """A source of byte ranges: a store, or memory."""

    def get_range(self, key: str, *, start: int, length: int) -> bytes: ...


def read_blocks(
    store: Ranges, key: str, ranges: Iterable[tuple[int, int]]
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of `ranges` (start and length) in order; no block spans two of them.

    A block is valid until the next one is requested. Raises CorruptFileError if the file ends
    before a range does.
    """
    path = store.local_path(key) if isinstance(store, Store) else None
    if path is not None:
        yield from _blocks_of_file(path, key, list(ranges))
    elif isinstance(store, Store):
        read = partial(_read, store, key)
        yield from fetch_ahead(_cut(ranges, _REMOTE_BLOCK_BYTES), read, window=_REMOTE_WINDOW)
    else:
        yield from (
            _read(store, key, byte_range) for byte_range in _cut(ranges, _LOCAL_BLOCK_BYTES)
        )


def _blocks_of_file(
    path: Path, key: str, ranges: Sequence[tuple[int, int]]
) -> Iterator[memoryview]:
    for block in read_file_blocks(path, ranges, block_bytes=_LOCAL_BLOCK_BYTES):
        if not block:
            raise _cut_off(key)
        yield block


def _read(store: Ranges, key: str, byte_range: tuple[int, int]) -> bytes:
    start, length = byte_range
    data = store.get_range(key, start=start, length=length)
    if len(data) < length:
        raise _cut_off(key)
    return data


def _cut_off(key: str) -> CorruptFileError:
    return CorruptFileError(
        f"{key} ends within a column chunk",
        path=key,
        hint="it was truncated after its footer was read; restore it from a backup",
    )


def _cut(ranges: Iterable[tuple[int, int]], block_bytes: int) -> Iterator[tuple[int, int]]:
    for start, length in ranges:
        for at in range(start, start + length, block_bytes):
            yield at, min(block_bytes, start + length - at)


def read_ranges(
    store: Ranges, key: str, byte_ranges: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the bytes of many small ranges (start and length), read with few requests."""
    found: dict[tuple[int, int], bytes] = {}
    for first, end, inside in _joined(sorted(set(byte_ranges))):
        data = store.get_range(key, start=first, length=end - first)
        for start, length in inside:
            found[start, length] = data[start - first : start - first + length]
    return found


def _joined(
    byte_ranges: Iterable[tuple[int, int]],
) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    first = end = 0
    inside: list[tuple[int, int]] = []
    for start, length in byte_ranges:
        if inside and (start - end > _GAP_BYTES or start - first > _REMOTE_BLOCK_BYTES):
            yield first, end, inside
            inside = []
        first, end = (first, max(end, start + length)) if inside else (start, start + length)
        inside.append((start, length))
    if inside:
        yield first, end, inside
